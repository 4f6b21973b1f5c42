"""File systems of fsspec's for tests: in memory, and one that fails where it is told to."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.memory import MemoryFileSystem

_numbers = itertools.count()


def memory_address() -> str:
    """Address of a folder that nobody else has."""
    return f"memory://test{next(_numbers)}"


class FaultyFileSystem(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """In memory; what `fault` raises for a method and a path happens instead."""

    protocol = "faulty"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    fault: Callable[[str, str], None] = staticmethod(lambda method, path: None)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(MemoryFileSystem._strip_protocol(path.removeprefix("faulty:")))

    def put_file(self, lpath: str, rpath: str, **options: object) -> None:
        self.fault("put", rpath)
        super().put_file(lpath, rpath, **options)

    def pipe_file(self, path: str, value: bytes, **options: object) -> None:
        self.fault("put", path)
        super().pipe_file(path, value, **options)

    def rm(self, path: str, **options: object) -> None:
        self.fault("remove", path)
        super().rm(path, **options)


def register_faulty() -> None:
    fsspec.register_implementation("faulty", FaultyFileSystem, clobber=True)
