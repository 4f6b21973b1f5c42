"""Files on their way to another machine: in chunks, and named by what they contain.

    transfer = send(manifest_of({"model.safetensors": path}), put)     # here
    receive(transfer, folder, get)                                     # there

`put` and `get` are those of whatever carries chunks between machines: Ray's object store, or a
dictionary in a test. A receiver's folder gets its name once every file in it is the one that was
described; what comes otherwise leaves nothing behind.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, TypeAlias

from clawrl_gym.core.errors import TransferError

Handle: TypeAlias = object
"""The value that `put` returns for a chunk; opaque."""
Put = Callable[[bytes], Handle]
Get = Callable[[Handle], bytes | memoryview]

_CHUNK_BYTES = 64 << 20
_ROOM_LEFT_BYTES = 64 << 20
"""Free bytes to leave on the receiver's disk, beside the files."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file, by its place below the folder."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of a folder, wherever it lies."""

    files: tuple[FileEntry, ...]
    sources: Mapping[str, str]
    """Paths of the files on the machine that described them."""

    @property
    def digest(self) -> str:
        """Equal for equal files under equal names."""
        lines = sorted(f"{file.sha256} {file.name}\n" for file in self.files)
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Transfer:
    """Files that can be received as long as their chunks are kept."""

    manifest: Manifest
    chunks: Mapping[str, tuple[Handle, ...]]
    """Chunks in order, by the file's name."""


def manifest_of(files: Mapping[str, Path]) -> Manifest:
    """Describe files by their new names; reads all of them."""
    entries = []
    for name, path in sorted(files.items()):
        check_name(name)
        entries.append(FileEntry(name, *_described(path)))
    return Manifest(tuple(entries), {name: str(path) for name, path in files.items()})


def send(manifest: Manifest, put: Put, *, chunk_bytes: int = _CHUNK_BYTES) -> Transfer:
    """Put the files' bytes where others can fetch them."""
    chunks = {}
    for file in manifest.files:
        with Path(manifest.sources[file.name]).open("rb") as source:
            chunks[file.name] = tuple(put(chunk) for chunk in _chunks_of(source, chunk_bytes))
    return Transfer(manifest, chunks)


def receive(transfer: Transfer, folder: Path, get: Get) -> None:
    """Make `folder`, which is not there yet, hold the files. Raises TransferError."""
    manifest = transfer.manifest
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True, mode=0o700)
        check_room(partial, manifest.size_bytes)
        for file in manifest.files:
            check_name(file.name)
            path = partial / file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(file, transfer.chunks[file.name], path, get)
        partial.rename(folder)
    except OSError as error:
        raise TransferError(
            f"{manifest.size_bytes / 2**20:,.0f} MiB cannot be put into {folder}: {error.strerror}"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write(file: FileEntry, chunks: tuple[Handle, ...], path: Path, get: Get) -> None:
    digest, size_bytes = hashlib.sha256(), 0
    with path.open("wb") as target:
        for handle in chunks:
            chunk = get(handle)
            digest.update(chunk)
            size_bytes += target.write(chunk)
    if (size_bytes, digest.hexdigest()) != (file.size_bytes, file.sha256):
        raise TransferError(
            f"{file.name} is not what was sent: got {size_bytes} bytes with the digest "
            f"{digest.hexdigest()[:12]}, expected {file.size_bytes} with {file.sha256[:12]}: it "
            "was changed while it was sent, or broke on its way"
        )


def check_arrived(file: FileEntry, path: Path) -> None:
    """Raise TransferError for a file that is not the one that was described."""
    size_bytes, got = _described(path)
    if (size_bytes, got) != (file.size_bytes, file.sha256):
        raise TransferError(
            f"{file.name} is not what was sent: got {size_bytes} bytes with the digest {got[:12]}, "
            f"expected {file.size_bytes} with {file.sha256[:12]}: it was changed, or broke on its "
            "way"
        )


def check_room(folder: Path, size_bytes: int) -> None:
    """Raise TransferError when so much does not fit beside `folder`."""
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < size_bytes + _ROOM_LEFT_BYTES:
        raise TransferError(
            f"{size_bytes / 2**20:,.0f} MiB do not fit into {folder.parent}: "
            f"{free_bytes / 2**20:,.0f} MiB are free; make room there"
        )


def check_name(name: str) -> None:
    """Raise TransferError for a name that would lie outside of the folder."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts:
        raise TransferError(f"got a file called {name!r}, expected a place below the folder")


def _described(path: Path) -> tuple[int, str]:
    """Size and digest of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return os.fstat(file.fileno()).st_size, digest


def _chunks_of(file: BinaryIO, chunk_bytes: int) -> Iterator[bytes]:
    while chunk := file.read(chunk_bytes):
        yield chunk
