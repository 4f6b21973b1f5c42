"""One writer of a folder: a lock on a file in it, which dies with its process."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from clawrl_gym.core.errors import StoreError

LOCK_FILE = "run.lock"
"""Lock file in a run's folder."""


def lock_folder(folder: Path, name: str = LOCK_FILE) -> int:
    """Lock a folder; returns the open file that holds the lock (the system frees it on death).

    Raises StoreError when a living process has it, or when the folder cannot be used.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StoreError(
            f"cannot use the run folder {str(folder)!r}: {error.strerror}; give another run.dir"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        owner = os.read(lock, 32).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        raise StoreError(in_use(folder, owner)) from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    return lock


def holder_of(folder: Path, name: str = LOCK_FILE) -> str | None:
    """The process that writes to a run's folder now; None when there is none. Leaves no trace."""
    try:
        lock = os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return os.read(lock, 32).decode(errors="replace").strip() or "unknown"
    else:
        return None
    finally:
        os.close(lock)


def in_use(folder: Path, owner: str) -> str:
    """The error message for a folder that another process writes to."""
    return (
        f"got the folder {str(folder)!r} of a run that is still going (process {owner}), "
        "expected a free one: give another run.dir=PATH, or end that run first"
    )
