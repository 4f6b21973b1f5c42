"""Rotated log files: `NAME.log` is written, full ones beside it have a number.

`NAME.000001.log` is the oldest. A reader reads all of them, in the order of `files_of_log`.
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

FULL_BYTES = 64 * 2**20
"""Size from which a log continues in another file."""
PROGRAM_FULL_BYTES = 16 * 2**20
"""The same size for logs that another program writes for people to read."""
_PROGRAM_KEPT = 3


def files_of_log(path: Path) -> list[Path]:
    """The existing files of the log called `path`, oldest first."""
    return [*full_files(path), *([path] if path.exists() else [])]


def full_files(path: Path) -> list[Path]:
    """The numbered files of the log, oldest first."""
    return sorted(path.parent.glob(f"{path.stem}.[0-9][0-9][0-9][0-9][0-9][0-9]{path.suffix}"))


def is_full_file(name: str, log: str) -> bool:
    """Whether a file of this name is a full one of the log called `log`."""
    stem, dot, suffix = log.rpartition(".")
    return re.fullmatch(rf"{re.escape(stem)}\.\d{{6}}{re.escape(dot + suffix)}", name) is not None


def next_full_file(path: Path) -> Path:
    """The name that the current file gets once it is full."""
    full = full_files(path)
    number = 1 + (int(full[-1].suffixes[-2][1:]) if full else 0)
    return path.with_suffix(f".{number:06}{path.suffix}")


def rotate_program_log(
    path: Path, full_bytes: int = PROGRAM_FULL_BYTES, kept: int = _PROGRAM_KEPT
) -> None:
    """Empty a full log that another program holds open for appending; the newest `kept` full files
    stay. Blocks.

    It is copied and truncated, because the program continues in the same file: lines written
    between the two, which is microseconds, are lost. Raises OSError; the log is then unchanged.
    """
    if not path.exists() or path.stat().st_size < full_bytes:
        return
    copy = path.with_name(path.name + ".new")
    try:
        with path.open("rb") as log, copy.open("wb") as file:
            shutil.copyfileobj(log, file, 2**20)
            shutil.copymode(path, copy)
            file.flush()
            os.truncate(path, 0)
    except OSError:
        with suppress(OSError):
            copy.unlink()
        raise
    copy.rename(next_full_file(path))  # whole, so that nobody reads half of it
    for old in full_files(path)[:-kept]:
        old.unlink(missing_ok=True)
