"""A process that waits for the end of another, and then ends what is left of it: `python reaper.py
FOLDER`, with a pipe from its owner as standard input.

All processes but the owner that write to files in FOLDER are killed, and the folder is removed. For
programs of others that do not end with who started them. Needs nothing but the standard library,
nor the package that it lies in.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

_ROUNDS = 50
_PAUSE_S = 0.1
_LONGEST_S = 10.0


class Reaper:
    """The process, seen from its owner."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def end_all(self) -> None:
        """Do what the end of this process would do; idempotent."""
        try:
            self._process.communicate(timeout=_LONGEST_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


def end_all_of(folder: str, but: int) -> None:
    """Kill the processes that work in the folder, except one, until none is left, and remove it."""
    for _ in range(_ROUNDS):
        pids = _pids_of(folder) - {but, os.getpid()}
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not pids:
            break
        time.sleep(_PAUSE_S)
    shutil.rmtree(folder, ignore_errors=True)


def _pids_of(folder: str) -> set[int]:
    return {
        int(entry.name)
        for entry in os.scandir("/proc")
        if entry.name.isdigit() and _writes_in(folder, Path(entry.path))
    }


def _writes_in(folder: str, process: Path) -> bool:
    try:
        descriptors = list((process / "fd").iterdir())
    except OSError:
        return False
    return any(_is_written(path, process, f"{folder}/") for path in descriptors)


def _is_written(descriptor: Path, process: Path, place: str) -> bool:
    try:
        if not str(descriptor.readlink()).startswith(place):
            return False
        fields = (process / "fdinfo" / descriptor.name).read_text().split()
    except OSError:
        return False
    return int(fields[fields.index("flags:") + 1], 8) & os.O_ACCMODE != os.O_RDONLY


if __name__ == "__main__":
    owner = os.getppid()
    sys.stdin.buffer.read()  # until the owner has closed it, or has ended
    end_all_of(sys.argv[1], owner)
