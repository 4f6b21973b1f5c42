"""A folder's state as plain data: what a task begins with, and what should be left of it.

Skills change it as their commands would. What a command could not do raises `Refused`, and then
nothing has changed.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field, replace

DEFAULT_MODE = 0o644


class Refused(Exception):
    """Message of a command that could not do its work."""


@dataclass(frozen=True, slots=True)
class FileState:
    """A file's content and permissions."""

    content: bytes
    mode: int | None = DEFAULT_MODE
    """None: whatever they are."""


@dataclass(slots=True)
class World:
    """Files and folders by path relative to the work folder."""

    files: dict[str, FileState] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    free: set[str] = field(default_factory=set)
    """Files that may be left as they are here, or not be there."""
    env: dict[str, str] = field(default_factory=dict)

    def copy(self) -> World:
        return World(dict(self.files), set(self.folders), set(self.free), dict(self.env))

    def add(self, path: str, content: bytes, mode: int | None = DEFAULT_MODE) -> None:
        """A file with all folders above it, whatever was there."""
        above = posixpath.dirname(path)
        while above:
            self.folders.add(above)
            above = posixpath.dirname(above)
        self.files[path] = FileState(content, mode)

    def read(self, path: str) -> bytes:
        if path not in self.files:
            raise Refused(f"{path}: No such file or directory")
        return self.files[path].content

    def lines(self, path: str) -> list[str]:
        return self.read(path).decode().splitlines()

    def write(self, path: str, content: bytes) -> None:
        """Write as `>` does: the folder must be there, and an existing file must be writable."""
        self._require_folder(posixpath.dirname(path))
        if path in self.folders:
            raise Refused(f"{path}: Is a directory")
        before = self.files.get(path, FileState(b""))
        if before.mode is not None and not before.mode & 0o200:
            raise Refused(f"{path}: Permission denied")
        self.files[path] = replace(before, content=content)

    def remove(self, path: str) -> None:
        self.read(path)
        del self.files[path]

    def move(self, path: str, target: str) -> None:
        """A file to a new path in a folder that is there."""
        self.read(path)
        self._require_folder(posixpath.dirname(target))
        if target in self.folders:
            raise Refused(f"{target}: Is a directory")
        self.files[target] = self.files.pop(path)

    def add_folder(self, path: str) -> None:
        """Make a folder as `mkdir` does."""
        if path in self.folders or path in self.files:
            raise Refused(f"cannot create directory '{path}': File exists")
        self._require_folder(posixpath.dirname(path))
        self.folders.add(path)

    def set_mode(self, path: str, mode: int | None) -> None:
        self.read(path)
        self.files[path] = replace(self.files[path], mode=mode)

    def names(self, folder: str) -> list[str]:
        """Names of the files in a folder, not below it, in order; hidden ones are left out."""
        self._require_folder(folder)
        start = f"{folder}/"
        below = (path[len(start) :] for path in self.files if path.startswith(start))
        return sorted(name for name in below if "/" not in name and not name.startswith("."))

    def _require_folder(self, folder: str) -> None:
        if folder and folder not in self.folders:
            raise Refused(f"{folder}: No such file or directory")
