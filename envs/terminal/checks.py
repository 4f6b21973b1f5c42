"""Conditions on what the agent left, read from outside the sandbox.

Nothing that the agent could have replaced (a shell, `cat`, `test`) takes part in the answer. What a
check says about a failure names the place and never the wanted content: it may become a hint.
"""

from __future__ import annotations

import io
import posixpath
import tarfile
import zlib
from abc import ABC, abstractmethod
from dataclasses import dataclass

from clawrl_gym.envs.terminal.task import FinalFiles

_USUAL_MODES = (0o644, 0o755, 0o600, 0o700, 0o444, 0o400, 0o640, 0o664, 0o775, 0o777)
"""Usual modes of files, as alternatives in a check on permissions."""


class Checked(ABC):
    """A condition that fails when there is something to say about it."""

    __slots__ = ()

    @abstractmethod
    def failure(self, files_left: FinalFiles) -> str | None:
        """What is wrong with the files that were left; None when nothing is."""

    def passed(self, files_left: FinalFiles) -> bool:
        return self.failure(files_left) is None


@dataclass(frozen=True, slots=True)
class FileIs(Checked):
    """A file with this content; white space at both ends does not count unless `exact`."""

    path: str
    content: bytes
    exact: bool = False

    def failure(self, files_left: FinalFiles) -> str | None:
        actual = files_left.read(self.path)
        if actual is None:
            return _unread(self.path, files_left)
        if actual == self.content or (not self.exact and actual.strip() == self.content.strip()):
            return None
        return _content_failures(self.path)[1]

    def possible_failures(self) -> tuple[str, ...]:
        return _content_failures(self.path)


@dataclass(frozen=True, slots=True)
class Absent(Checked):
    """No file at this path."""

    path: str

    def failure(self, files_left: FinalFiles) -> str | None:
        return None if files_left.mode(self.path) is None else f"{self.path} is still there"

    def possible_failures(self) -> tuple[str, ...]:
        return (f"{self.path} is still there",)


@dataclass(frozen=True, slots=True)
class ModeIs(Checked):
    """A file whose permission bits under `mask` are these."""

    path: str
    mode: int
    mask: int = 0o777

    def failure(self, files_left: FinalFiles) -> str | None:
        mode_bits = files_left.mode(self.path)
        return f"{self.path} is missing" if mode_bits is None else self._of(mode_bits)

    def possible_failures(self) -> tuple[str, ...]:
        messages = (self._of(mode) for mode in _USUAL_MODES)
        return (f"{self.path} is missing", *(words for words in messages if words))

    def _of(self, mode_bits: int) -> str | None:
        if mode_bits & self.mask == self.mode:
            return None
        return f"the permissions of {self.path} are {mode_bits & 0o7777:03o}, not as asked"


@dataclass(frozen=True, slots=True)
class NamesPath(Checked):
    """A file that holds one path, absolute or relative to `start`, however it is spelled."""

    path: str
    target: str
    start: str = "/root"

    def failure(self, files_left: FinalFiles) -> str | None:
        content = files_left.read(self.path)
        if content is None:
            return _unread(self.path, files_left)
        path_written = posixpath.join(self.start, content.decode(errors="replace").strip())
        if posixpath.normpath(path_written) == posixpath.join(self.start, self.target):
            return None
        return _content_failures(self.path)[1]

    def possible_failures(self) -> tuple[str, ...]:
        return _content_failures(self.path)


@dataclass(frozen=True, slots=True)
class TarHolds(Checked):
    """An archive, compressed or not, that holds exactly these files."""

    path: str
    files: tuple[tuple[str, bytes], ...]

    def failure(self, files_left: FinalFiles) -> str | None:
        archive = files_left.read(self.path)
        if archive is None:
            return _unread(self.path, files_left)
        files = tar_files(archive)
        if files is None:
            return f"{self.path} is no archive"
        matches = files == dict(self.files)
        return None if matches else f"{self.path} does not hold the files that were asked for"

    def possible_failures(self) -> tuple[str, ...]:
        return (
            f"{self.path} is missing",
            f"{self.path} is no archive",
            f"{self.path} does not hold the files that were asked for",
        )


@dataclass(frozen=True, slots=True)
class CommitHolds(Checked):
    """The tip of a branch of the repository at `path` has this message and this file."""

    path: str
    branch: str
    message: str
    file: str
    blob: str
    """The file's git object id."""

    def failure(self, files_left: FinalFiles) -> str | None:
        ref = files_left.read(f"{self.path}/.git/refs/heads/{self.branch}")
        commit = self._object(files_left, (ref or b"").decode(errors="replace").strip())
        if not commit.startswith(b"commit "):
            return f"{self.branch} has no commit"
        header, _, message = commit.partition(b"\0")[2].partition(b"\n\n")
        if message.decode(errors="replace").strip() != self.message:
            return f"the last commit of {self.branch} has another message"
        tree_id = header.partition(b"\n")[0].removeprefix(b"tree ").decode(errors="replace")
        entry = f"100644 {self.file}\0".encode() + bytes.fromhex(self.blob)
        if entry not in self._object(files_left, tree_id):
            return f"{self.file} is not in the last commit of {self.branch} as it should be"
        return None

    def possible_failures(self) -> tuple[str, ...]:
        return (
            f"{self.branch} has no commit",
            f"the last commit of {self.branch} has another message",
            f"{self.file} is not in the last commit of {self.branch} as it should be",
        )

    def _object(self, files_left: FinalFiles, object_id: str) -> bytes:
        """A loose object with its header; empty when it is missing or broken."""
        if len(object_id) != 40 or not object_id.isalnum():
            return b""
        packed = files_left.read(f"{self.path}/.git/objects/{object_id[:2]}/{object_id[2:]}")
        if packed is None:
            return b""
        try:
            return zlib.decompressobj().decompress(packed, MAX_UNPACKED_BYTES)
        except zlib.error:
            return b""


def _content_failures(path: str) -> tuple[str, str]:
    """Failures of a file that is missing, and of one with other content."""
    name = _display_name(path)
    return f"{name} is missing", f"{name} does not hold what was asked for"


def _unread(path: str, files_left: FinalFiles) -> str:
    """Failure of a file that could not be read."""
    there = files_left.mode(path) is not None
    return f"{_display_name(path)} {'cannot be read as a file' if there else 'is missing'}"


def _display_name(path: str) -> str:
    """The path, or what a person calls it."""
    for folder, name in (("tags", "tag"), ("heads", "branch")):
        if path.startswith(f".git/refs/{folder}/"):
            return f"the git {name} {path.removeprefix(f'.git/refs/{folder}/')}"
    return path


MAX_UNPACKED_BYTES = 1 << 20
"""Most bytes that a compressed file may hold; more counts as wrong content."""


def tar_files(data: bytes) -> dict[str, bytes] | None:
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
