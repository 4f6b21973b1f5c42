"""Files that travel to other machines: packed once, named by their content, unpacked once on each.

An archive is a file or a folder as bytes. Unpacked it lies in its user's own cache, whole or not at
all; archives unused for long are removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import stat
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.files.files import cache_root

MAX_BYTES = 1 << 30
_UNUSED_S = 14 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Archive:
    """A file or a folder, packed."""

    name: str
    """Name of the file or folder itself."""
    digest: str
    """Digest of names, contents, permissions and links; not of times."""
    packed: bytes


def pack(path: Path) -> Archive:
    """Pack a file or folder. Raises ConfigError when it is too large or cannot be read."""
    path = path.resolve()
    digest, packed, size = hashlib.sha256(), io.BytesIO(), 0
    try:
        with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as tar:
            for file in _below(path):
                size += file.lstat().st_size
                if size > MAX_BYTES:
                    raise ConfigError(
                        f"got {path} with more than {MAX_BYTES >> 20} MiB, expected less of what "
                        "travels to other machines: put it at the same path on each of them"
                    )
                name = str(Path(path.name, file.relative_to(path)))
                member = tar.gettarinfo(file, name)
                member.uid = member.gid = 0
                member.uname = member.gname = ""
                if member.islnk():  # a second name of a file: travels as a file
                    member.type, member.size = tarfile.REGTYPE, file.stat().st_size
                digest.update(f"{name}\0{member.mode & 0o111:o}\0{member.linkname}\0".encode())
                if member.isreg():
                    content = file.read_bytes()
                    member.size = len(content)
                    digest.update(hashlib.sha256(content).digest())
                    tar.addfile(member, io.BytesIO(content))
                else:
                    tar.addfile(member)
    except OSError as error:
        raise ConfigError(f"cannot read {error.filename or path}: {error.strerror}") from error
    return Archive(path.name, digest.hexdigest(), packed.getvalue())


def unpack(archive: Archive, cache: Path) -> Path:
    """Unpack the archive; returns where its file or folder lies here. Raises OSError."""
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    place = cache / archive.digest
    if not place.is_dir():
        _sweep(cache)
        scratch = Path(tempfile.mkdtemp(prefix=".new-", dir=cache))
        try:
            with tarfile.open(fileobj=io.BytesIO(archive.packed), mode="r:gz") as tar:
                tar.extractall(scratch, filter="tar")
            with contextlib.suppress(OSError):  # another process was sooner
                scratch.rename(place)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    os.utime(place)
    return place / archive.name


def cache_folder(kind: str) -> Path:
    """The folder where archives of a kind are unpacked for this user."""
    return cache_root() / kind


def _below(path: Path) -> Iterator[Path]:
    """The file itself, or the folder and its contents, in order; devices and sockets left out."""
    mode = path.lstat().st_mode
    if stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode):
        yield path
    if stat.S_ISDIR(mode):
        for entry in sorted(path.iterdir()):
            yield from _below(entry)


def _sweep(cache: Path) -> None:
    """Remove archives unused for long."""
    for place in cache.iterdir():
        try:
            unused_s = time.time() - place.stat().st_mtime
        except OSError:
            continue
        if unused_s > _UNUSED_S:
            shutil.rmtree(place, ignore_errors=True)
