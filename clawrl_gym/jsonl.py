"""Append-only files of JSON objects, one a line, that survive a crash in the middle of a line."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from clawrl_gym.errors import StoreError


class JsonLines:
    """One append-only file of JSON objects; each line is handed to the system at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: TextIO = path.open("a+", encoding="utf-8")
            self._end_last_line()
        except OSError as error:
            raise StoreError(f"cannot open {str(path)!r} for writing: {error}") from error

    def _end_last_line(self) -> None:
        """A crash may have left half a line: close it, so that the next one stands alone."""
        size = self._path.stat().st_size
        if size:
            with self._path.open("rb") as file:
                file.seek(size - 1)
                if file.read(1) != b"\n":
                    self._file.write("\n")

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one object. Raises StoreError, for example when the disk is full."""
        line = json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"
        try:
            with self._lock:
                self._file.write(line)
                self._file.flush()
        except OSError as error:
            raise StoreError(
                f"cannot write to {str(self._path)!r}: {error}; make room and go on with resume="
            ) from error

    def close(self) -> None:
        self._file.close()


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file, without half lines; empty when the file does not exist."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows
