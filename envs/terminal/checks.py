"""Conditions on what the agent left, read from outside the sandbox.

Nothing that the agent could have replaced (a shell, `cat`, `test`) takes part in the answer.
"""

from __future__ import annotations

import io
import posixpath
import tarfile
import zlib
from dataclasses import dataclass

from clawrl_gym.envs.tasks import Leftovers


@dataclass(frozen=True, slots=True)
class FileIs:
    """A file with this content; white space at both ends does not count unless `exact`."""

    path: str
    content: bytes
    exact: bool = False

    def passed(self, left: Leftovers) -> bool:
        found = left.read(self.path)
        if found is None:
            return False
        return found == self.content or (not self.exact and found.strip() == self.content.strip())


@dataclass(frozen=True, slots=True)
class Absent:
    """No file at this path."""

    path: str

    def passed(self, left: Leftovers) -> bool:
        return left.mode(self.path) is None


@dataclass(frozen=True, slots=True)
class ModeIs:
    """A file whose permission bits under `mask` are these."""

    path: str
    mode: int
    mask: int = 0o777

    def passed(self, left: Leftovers) -> bool:
        found = left.mode(self.path)
        return found is not None and found & self.mask == self.mode


@dataclass(frozen=True, slots=True)
class NamesPath:
    """A file that holds one path, absolute or relative to `start`, however it is spelled."""

    path: str
    target: str
    start: str = "/root"

    def passed(self, left: Leftovers) -> bool:
        found = left.read(self.path)
        if found is None:
            return False
        named = posixpath.join(self.start, found.decode(errors="replace").strip())
        return posixpath.normpath(named) == posixpath.join(self.start, self.target)


@dataclass(frozen=True, slots=True)
class TarHolds:
    """An archive, compressed or not, that holds exactly these files."""

    path: str
    files: tuple[tuple[str, bytes], ...]

    def passed(self, left: Leftovers) -> bool:
        found = left.read(self.path)
        return found is not None and _tar_files(found) == dict(self.files)


@dataclass(frozen=True, slots=True)
class CommitHolds:
    """The tip of a branch of the repository at `path` has this message and this file."""

    path: str
    branch: str
    message: str
    file: str
    blob: str
    """The file's git object id."""

    def passed(self, left: Leftovers) -> bool:
        ref = left.read(f"{self.path}/.git/refs/heads/{self.branch}")
        commit = self._object(left, (ref or b"").decode(errors="replace").strip())
        if not commit.startswith(b"commit "):
            return False
        header, _, message = commit.partition(b"\0")[2].partition(b"\n\n")
        tree = self._object(left, header.partition(b"\n")[0].removeprefix(b"tree ").decode())
        entry = f"100644 {self.file}\0".encode() + bytes.fromhex(self.blob)
        return message.decode(errors="replace").strip() == self.message and entry in tree

    def _object(self, left: Leftovers, object_id: str) -> bytes:
        """A loose object with its header; empty when it is missing or broken."""
        if len(object_id) != 40 or not object_id.isalnum():
            return b""
        packed = left.read(f"{self.path}/.git/objects/{object_id[:2]}/{object_id[2:]}")
        if packed is None:
            return b""
        try:
            return zlib.decompressobj().decompress(packed, MAX_UNPACKED_BYTES)
        except zlib.error:
            return b""


MAX_UNPACKED_BYTES = 1 << 20
"""What a compressed file may hold; more counts as wrong content."""


def _tar_files(data: bytes) -> dict[str, bytes] | None:
    """The regular files of an archive by normal path; None when it is no archive or a bomb."""
    if data[:2] == b"\x1f\x8b":
        try:
            data = zlib.decompressobj(31).decompress(data, MAX_UNPACKED_BYTES)
        except zlib.error:
            return None
    files: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isreg() else None
                if content is not None:
                    files[posixpath.normpath(member.name)] = content.read(MAX_UNPACKED_BYTES)
    except (tarfile.TarError, EOFError, ValueError):
        return None
    return files
