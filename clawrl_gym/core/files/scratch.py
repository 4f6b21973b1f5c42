"""Temporary folders that are removed with the process that made them, however it ends.

Each is held by a lock, which the system frees when its process dies: the next process that makes
such a folder removes those of killed ones, and none that is in use. Needs only the standard
library.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType

_PREFIX = "clawrl-"
_LOCK = ".lock"
_LONGEST_PARENT = 20
"""Most characters; sockets lie deep in such folders, and no path of one is longer than 107."""


class Scratch:
    """A folder of this user alone: `PARENT/clawrl-NAME-XXXXXXXX`."""

    def __init__(self, name: str, parent: Path | None = None) -> None:
        """Without `parent` it is the system's temporary folder. Raises OSError."""
        parent = parent or _temporary()
        sweep(parent)
        self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{name}-", dir=parent))
        self._owner = os.getpid()
        self._lock: int | None = _lock_new(self.path)
        if not _living:
            atexit.register(remove_all)
        _living.add(self)

    def remove(self) -> None:
        """Remove the folder; idempotent, and without effect in a forked process."""
        if self._lock is None or self._owner != os.getpid():
            return
        lock, self._lock = self._lock, None
        _living.discard(self)
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(lock)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.remove()


_living: set[Scratch] = set()


def remove_all() -> None:
    """Remove all folders of this process."""
    for scratch in tuple(_living):
        scratch.remove()


def sweep(parent: Path) -> None:
    """Remove folders that this user's killed processes left."""
    for lock_file in parent.glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(OSError):
            if lock_file.stat().st_uid == os.geteuid():
                _remove_unless_held(lock_file)


def _remove_unless_held(lock_file: Path) -> None:
    lock = os.open(lock_file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(lock_file.parent, ignore_errors=True)
    finally:
        os.close(lock)


def _lock_new(folder: Path) -> int:
    """Lock a new folder before others can see it: no sweep takes it for an old one."""
    unseen = folder / f"{_LOCK}.new"
    lock = os.open(unseen, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    unseen.rename(folder / _LOCK)
    return lock


def _temporary() -> Path:
    own = tempfile.gettempdir()
    return Path(own if len(own) <= _LONGEST_PARENT else "/tmp")
