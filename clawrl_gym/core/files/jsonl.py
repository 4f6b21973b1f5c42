"""Append-only files of JSON objects, one a line, that survive a crash in the middle of a line."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from clawrl_gym.core.errors import StoreError
from clawrl_gym.core.files.log_files import FULL_BYTES, files_of_log, full_files, next_full_file
from clawrl_gym.core.types import Json


class JsonLines:
    """One append-only file of JSON objects; each line goes to the system at once. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._line_is_cut = False
        """True after a full disk cut the last line, which must be closed before the next."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._copy.unlink(missing_ok=True)
            self._file = path.open("ab", buffering=0)
            if not _ends_whole(path):
                self._file.write(b"\n")
        except OSError as error:
            raise StoreError(f"cannot open {str(path)!r} for writing: {error}") from error

    @property
    def _copy(self) -> Path:
        """The file that a rewrite makes; the next opening removes what a kill leaves."""
        return self._path.with_name(self._path.name + ".new")

    def append(self, row: Json) -> None:
        """Write one object. Raises StoreError, for example when the disk is full."""
        text = json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"
        line = text.encode(errors="backslashreplace")  # a lone surrogate: JSON's own escape
        try:
            with self._lock:
                line, self._line_is_cut = b"\n" * self._line_is_cut + line, True
                while line:
                    line = line[self._file.write(line) :]
                self._line_is_cut = False
        except OSError as error:
            raise StoreError(
                f"cannot write to {str(self._path)!r}: {error}; make room and resume (resume=, or "
                "the same command)"
            ) from error

    def rewrite(self, keep: Callable[[bytes], bool]) -> int:
        """Remove the lines that `keep` refuses; returns how many.

        A new file replaces the old one in one step. Appends continue meanwhile and wait only for
        what was appended during the copy. Raises StoreError; the file is then unchanged.
        """
        try:
            with self._path.open("rb") as old:
                start = _first_left_out(old, keep)
                if start is None:
                    return 0
                with self._copy.open("wb") as new:
                    shutil.copymode(self._path, self._copy)
                    old.seek(0)
                    _copy_bytes(old, new, start)
                    left_out = _copy_lines(old, new, keep)
                    _to_disk(new)
                    with self._lock:
                        left_out += _copy_lines(old, new, keep)
                        _to_disk(new)
                        self._replace()
                return left_out
        except OSError as error:
            with suppress(OSError):
                self._copy.unlink()
            raise StoreError(f"cannot rewrite {str(self._path)!r}: {error}") from error

    def _replace(self) -> None:
        self._copy.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        self._file.close()
        self._file = self._path.open("ab", buffering=0)

    def close(self) -> None:
        """Close the file; idempotent."""
        self._file.close()


def _first_left_out(file: BinaryIO, keep: Callable[[bytes], bool]) -> int | None:
    """Offset of the first line that is not kept; None when all are."""
    start = 0
    for line in file:
        if line.endswith(b"\n") and not keep(line):
            return start
        start += len(line)
    return None


def _copy_bytes(old: BinaryIO, new: BinaryIO, count: int) -> None:
    while count > 0:
        part = old.read(min(count, 2**20))
        count -= new.write(part)


def _copy_lines(old: BinaryIO, new: BinaryIO, keep: Callable[[bytes], bool]) -> int:
    """Copy the lines that are kept, up to the end; returns how many were not."""
    left_out = 0
    while line := old.readline():
        if not line.endswith(b"\n"):  # it is being written: the next call copies it whole
            old.seek(-len(line), os.SEEK_CUR)
            break
        if keep(line):
            new.write(line)
        else:
            left_out += 1
    return left_out


def _to_disk(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _ends_whole(path: Path) -> bool:
    """False when a crash left half a line, which must be closed for the next to stand alone."""
    size = path.stat().st_size
    if size == 0:
        return True
    with path.open("rb") as file:
        file.seek(size - 1)
        return file.read(1) == b"\n"


def each_json_line(path: Path) -> Iterator[dict[str, object]]:
    """The objects of a log one by one, from all of its files, without half lines; none when there
    is no file."""
    for part in files_of_log(path):
        with part.open(encoding="utf-8", errors="replace", newline="\n") as file:
            for line in file:
                try:
                    row = json.loads(line)
                except json.JSONDecodeError:
                    continue
                if isinstance(row, dict):
                    yield row


def read_json_lines(path: Path) -> list[dict[str, object]]:
    """All objects of a log, from all of its files, without half lines; empty when there is none."""
    return list(each_json_line(path))


class RotatedLines(JsonLines):
    """A log of several files, as `log_files` names them."""

    def __init__(self, path: Path, full_bytes: int = FULL_BYTES) -> None:
        """`full_bytes`: the size from which a file is full."""
        super().__init__(path)
        self._full_bytes = full_bytes
        self._is_rewritten = False
        """True while a full file is rewritten: it keeps its name meanwhile."""

    def append(self, row: Json) -> None:
        with self._lock:
            if not self._is_rewritten and self._file.tell() >= self._full_bytes:
                self._rotate()
        super().append(row)

    def rewrite(self, keep: Callable[[bytes], bool]) -> int:
        with self._lock:
            self._is_rewritten = True
        try:
            left_out = sum(_rewrite_full(path, keep) for path in full_files(self._path))
            return left_out + super().rewrite(keep)
        finally:
            with self._lock:
                self._is_rewritten = False

    def _rotate(self) -> None:
        try:
            self._path.rename(next_full_file(self._path))
            file = self._path.open("ab", buffering=0)
        except OSError as error:
            raise StoreError(f"cannot begin another {str(self._path)!r}: {error}") from error
        self._file.close()
        self._file = file


def _rewrite_full(path: Path, keep: Callable[[bytes], bool]) -> int:
    """Remove lines from a file that is no longer written; an empty file is removed."""
    file = JsonLines(path)
    try:
        left_out = file.rewrite(keep)
    finally:
        file.close()
    if path.stat().st_size == 0:
        path.unlink()
    return left_out
