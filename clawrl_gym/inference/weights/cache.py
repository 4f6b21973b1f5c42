"""Models that came from another machine, one folder each, named by their content.

    ~/.cache/clawrl_gym/models/DIGEST/          the model's files, its owner's alone
    ~/.cache/clawrl_gym/models/DIGEST.lock      held by whoever uses the model, or fetches it

A model is fetched once for all who start on a machine at the same time. When the folder grows over
its limit, those go that nobody uses, the one unused for longest first.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from clawrl_gym.core.files.transfer import Get, Manifest, Transfer, receive

LIMIT_BYTES = 100 << 30
_LOCK = ".lock"


class CachedModel:
    """A model's folder, which stays as long as this is open."""

    def __init__(self, folder: Path, descriptor: int) -> None:
        self.folder = folder
        self._descriptor = descriptor

    def close(self) -> None:
        """Others may delete the folder from now on; idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class ModelCache:
    """See the module's docstring."""

    def __init__(self, root: Path, limit_bytes: int = LIMIT_BYTES) -> None:
        self._root = root
        self._limit_bytes = limit_bytes

    def find(self, manifest: Manifest) -> CachedModel | None:
        """The model if it is here, whole."""
        folder = self._root / manifest.digest
        descriptor = self._lock(manifest.digest, fcntl.LOCK_SH)
        if _is_whole(folder, manifest):
            os.utime(folder)
            return CachedModel(folder, descriptor)
        os.close(descriptor)
        return None

    def take(self, transfer: Transfer, get: Get) -> CachedModel:
        """The model, received unless it is here by now. Raises TransferError."""
        manifest = transfer.manifest
        folder = self._root / manifest.digest
        descriptor = self._lock(
            manifest.digest, fcntl.LOCK_EX
        )  # others who want it wait, and find it
        try:
            if not _is_whole(folder, manifest):
                shutil.rmtree(folder, ignore_errors=True)
                self._make_room(manifest.size_bytes)
                receive(transfer, folder, get)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        except BaseException:
            os.close(descriptor)
            raise
        return CachedModel(folder, descriptor)

    def make(self, digest: str, fill: Callable[[Path], None], size_bytes: int) -> CachedModel:
        """The model of this name, made by `fill` in an empty folder unless it is here by now.

        Raises OSError, and what `fill` raises; nothing of it is left then.
        """
        folder, partial = self._root / digest, self._root / f".{digest}.partial"
        descriptor = self._lock(digest, fcntl.LOCK_SH)
        try:
            if not folder.is_dir():
                os.close(descriptor)
                descriptor = self._lock(digest, fcntl.LOCK_EX)  # others who want it wait
            if folder.is_dir():
                os.utime(folder)
            else:
                shutil.rmtree(partial, ignore_errors=True)
                self._make_room(size_bytes)
                partial.mkdir(mode=0o700)
                _check_room(partial, size_bytes)
                fill(partial)
                partial.rename(folder)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            os.close(descriptor)
            raise
        return CachedModel(folder.resolve(), descriptor)

    def _make_room(self, size_bytes: int) -> None:
        """Delete what nobody uses until a model of this size is within the limit."""
        folders = sorted(
            (path for path in self._root.iterdir() if path.is_dir()),
            key=lambda path: path.stat().st_mtime,
        )
        sizes = {folder: _size_bytes(folder) for folder in folders}
        for folder in folders:
            if sum(sizes.values()) + size_bytes <= self._limit_bytes:
                return
            with self._unused(_digest_of(folder)) as is_unused:
                if is_unused:
                    shutil.rmtree(folder, ignore_errors=True)
                    del sizes[folder]

    @contextmanager
    def _unused(self, digest: str) -> Iterator[bool]:
        """Whether nobody uses or fetches the model, and nobody can begin to inside."""
        try:
            descriptor = self._lock(digest, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        try:
            yield True
        finally:
            os.close(descriptor)

    def _lock(self, digest: str, kind: int) -> int:
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self._root / (digest + _LOCK), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, kind)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def _check_room(folder: Path, size_bytes: int) -> None:
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < size_bytes:
        raise OSError(errno.ENOSPC, f"{free_bytes >> 20} MiB are free")


def _digest_of(folder: Path) -> str:
    """Digest of a model's folder, or of the rest of a fetch that was cut off."""
    return folder.name.removeprefix(".").removesuffix(".partial")


def _is_whole(folder: Path, manifest: Manifest) -> bool:
    """Whether all files have their sizes: contents were compared when it came."""
    try:
        return all(
            (folder / file.name).stat().st_size == file.size_bytes for file in manifest.files
        )
    except OSError:
        return False


def _size_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
