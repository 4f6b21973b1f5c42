"""Files of a user's task folder, read within bounds.

Every path must resolve inside the folder it was asked of; symbolic links may point inside it only.
Text and the scripts that grade or solve are read with the line ends of Linux and without a byte
order mark, whatever wrote them; files that an agent works on stay as they are.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.sandbox.interface import FileData

ModelT = TypeVar("ModelT", bound=BaseModel)

MAX_TOTAL_BYTES = 64 << 20
MAX_FILES = 10_000
MAX_DEPTH = 32
_BOM = b"\xef\xbb\xbf"


@dataclass(slots=True)
class TaskFolder:
    """A folder, and how much of it has been read so far."""

    root: Path
    bytes_read: int = 0
    files_read: int = 0
    repaired: list[str] = field(default_factory=list, init=False)
    """Scripts that had Windows line ends or a byte order mark."""

    def __str__(self) -> str:
        """Name of the folder in errors."""
        return f"task folder {str(self.root)!r}"

    def path(self, relative: str) -> Path:
        """An existing file or folder. Raises TaskError for what is missing or leads outside."""
        path = self.root / relative.lstrip("/")
        try:
            resolved = path.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise TaskError(f"{self} has no usable {relative!r}: {error}") from error
        if not resolved.is_relative_to(self.root.resolve()):
            raise TaskError(f"{self}: {relative!r} leads outside, to {str(resolved)!r}")
        return resolved

    def has(self, relative: str) -> bool:
        """Whether something of this name is there, be it usable or not."""
        path = self.root / relative
        return path.is_symlink() or path.exists()

    def file(self, relative: str) -> FileData:
        """One regular file. Raises TaskError for anything else, or beyond the bounds."""
        path = self.path(relative)
        state = path.stat()
        if not stat.S_ISREG(state.st_mode):
            raise TaskError(f"{self}: {relative!r} is no regular file")
        self.files_read += 1
        self.bytes_read += state.st_size
        if self.bytes_read > MAX_TOTAL_BYTES or self.files_read > MAX_FILES:
            raise TaskError(
                f"{self} holds too much at {relative!r}, expected at most "
                f"{MAX_TOTAL_BYTES >> 20} MiB and {MAX_FILES} files"
            )
        return FileData(path.read_bytes(), 0o755 if state.st_mode & 0o100 else 0o644)

    def text(self, relative: str) -> str:
        """One file as text. Raises TaskError when it is not UTF-8."""
        try:
            return self.file(relative).data.decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            raise TaskError(f"{self}: {relative!r} is not UTF-8: {error}") from error

    def script(self, relative: str) -> FileData:
        """One file that bash or another interpreter reads; anything else as it is."""
        file = self.file(relative)
        repaired = _as_linux_has_it(file.data) if _is_script(relative, file.data) else file.data
        if repaired != file.data:
            self.repaired.append(relative)
        return replace(file, data=repaired)

    def scripts(self, relative: str) -> dict[str, FileData]:
        """Files like `tree`, the scripts among them as `script` has them."""
        return {
            path: self.script(f"{relative}/{path}") if _is_script(path, file.data) else file
            for path, file in self.tree(relative).items()
        }

    def validated(self, name: str, model: type[ModelT], document: object) -> ModelT:
        """A file's content as a model. Raises TaskError naming the file and the key."""
        where = f"{self}: {name!r}"
        try:
            return model.model_validate(document)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            key = ".".join(str(part) for part in first["loc"])
            raise TaskError(
                f"{where}: {key}: {first['msg']}, got {first['input']!r:.200}"
            ) from error
        except (RecursionError, OverflowError) as error:
            raise TaskError(f"{where}: {error}") from error

    def tree(self, relative: str, depth: int = 0) -> dict[str, FileData]:
        """All files of a folder by path below it; a file alone has the path ''."""
        path = self.path(relative)
        if not path.is_dir():
            return {"": self.file(relative)}
        if depth > MAX_DEPTH:
            raise TaskError(f"{self}: {relative!r} is more than {MAX_DEPTH} deep")
        files: dict[str, FileData] = {}
        for child in sorted(path.iterdir()):
            inner = self.tree(f"{relative}/{child.name}", depth + 1)
            files |= {f"{child.name}/{key}".rstrip("/"): file for key, file in inner.items()}
        return files

    def matches(self, pattern: str) -> list[str]:
        """The relative paths that a COPY source names, globs included."""
        relative = pattern.lstrip("/")
        if not any(sign in relative for sign in "*?["):
            return [relative]
        try:
            paths = sorted(path.relative_to(self.root) for path in self.root.glob(relative))
        except (ValueError, NotImplementedError) as error:
            raise TaskError(f"got the pattern {pattern!r}: {error}") from error
        if not paths:
            raise TaskError(f"{self}: nothing matches {pattern!r}")
        return [str(path) for path in paths]


def _is_script(path: str, data: bytes) -> bool:
    is_text = b"\0" not in data
    return is_text and (path.endswith((".sh", ".bash")) or data.lstrip(_BOM).startswith(b"#!"))


def _as_linux_has_it(data: bytes) -> bytes:
    return data.removeprefix(_BOM).replace(b"\r\n", b"\n")
