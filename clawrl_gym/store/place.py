"""The folder that a run's store holds while it is open, and the room on its disk."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

from clawrl_gym.core.errors import StoreError

LOCK_FILE = "run.lock"
MIN_FREE_MB = 64
"""Room that the disk must have before a run starts."""


def lock_folder(folder: Path) -> int:
    """Hold the run's folder; returns the open file that holds it (the system frees it on death).

    Raises StoreError when a living process has it, or when the folder cannot be used.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StoreError(
            f"cannot use the run folder {str(folder)!r}: {error.strerror}; give another run.dir"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        owner = os.read(lock, 32).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        raise StoreError(
            f"got the folder {str(folder)!r} of a run that is still going (process {owner}), "
            "expected a free one; give another run.name or end that run first"
        ) from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    return lock


def check_disk(folder: Path) -> None:
    """Raises StoreError when the disk has too little room to begin."""
    free_mb = shutil.disk_usage(folder).free / 2**20
    if free_mb < MIN_FREE_MB:
        raise StoreError(
            f"got {free_mb:.0f} MB of free disk at {str(folder)!r}, expected at least "
            f"{MIN_FREE_MB} MB; make room or give another run.dir"
        )
