"""Append-only files of JSON objects, one a line, that survive a crash in the middle of a line."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clawrl_gym.errors import StoreError


class JsonLines:
    """One append-only file of JSON objects; each line goes to the system at once. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab", buffering=0)
            if not _ends_whole(path):
                self._file.write(b"\n")
        except OSError as error:
            raise StoreError(f"cannot open {str(path)!r} for writing: {error}") from error

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one object. Raises StoreError, for example when the disk is full."""
        text = json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"
        line = text.encode(errors="backslashreplace")  # a lone surrogate: JSON's own escape
        try:
            with self._lock:
                while line:
                    line = line[self._file.write(line) :]
        except OSError as error:
            raise StoreError(
                f"cannot write to {str(self._path)!r}: {error}; make room and go on with resume="
            ) from error

    def close(self) -> None:
        """Idempotent."""
        self._file.close()


def _ends_whole(path: Path) -> bool:
    """False when a crash left half a line, which must be closed for the next to stand alone."""
    size = path.stat().st_size
    if size == 0:
        return True
    with path.open("rb") as file:
        file.seek(size - 1)
        return file.read(1) == b"\n"


def read_json_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file, without half lines; empty when the file does not exist."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows
