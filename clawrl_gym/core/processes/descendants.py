"""Find and end all descendants of a process, through /proc.

Needs only the standard library: it is there from a command's first import on.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_GRACE_S = 0.5
"""Seconds for processes that end by themselves after their owner, such as sandboxes' launchers."""
_ROUNDS = 20
_PAUSE_S = 0.02


def die_with_parent() -> None:
    """Have the kernel kill this process as soon as its parent has died, however it died.

    The parent is the thread that started it.
    """
    _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


def forks_die_with_parent() -> None:
    """Have every later fork of this process killed as soon as this process has died."""
    forking = os.getpid()

    def note() -> None:
        nonlocal forking
        forking = os.getpid()

    def follow() -> None:
        die_with_parent()
        if os.getppid() != forking:  # it died before the kernel was asked
            os.kill(os.getpid(), signal.SIGKILL)

    os.register_at_fork(before=note, after_in_child=follow)


def adopt_orphans() -> None:
    """Adopt processes below this one that lose their parent, so that `descendants` finds them."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def descendants(pid: int) -> set[int]:
    """All living processes below `pid`."""
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (place := _state_and_parent(entry.name)) is not None:
            state, parent = place
            if state not in "ZX":
                children.setdefault(parent, []).append(int(entry.name))
    below: set[int] = set()
    waiting = [pid]
    while waiting:
        of_one = children.get(waiting.pop(), [])
        below.update(of_one)
        waiting += of_one
    return below


def end_descendants() -> None:
    """Kill everything that this process has started, orphans too; for a process that ends now.

    First its own children: most of the rest dies with them. What then still lives is killed.
    """
    adopt_orphans()
    own = os.getpid()
    _kill(pid for pid in descendants(own) if _parent(pid) == own)
    deadline_s = time.monotonic() + _GRACE_S
    while (left := descendants(own)) and time.monotonic() < deadline_s:
        time.sleep(_PAUSE_S)
    for _ in range(_ROUNDS):
        if not left:
            return
        _kill(left)
        time.sleep(_PAUSE_S)
        left = descendants(own)


def command_of(pid: int) -> str:
    """The name of a process's program; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _state_and_parent(pid: str) -> tuple[str, int] | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name before it may hold anything
    return fields[0], int(fields[1])


def _parent(pid: int) -> int:
    place = _state_and_parent(str(pid))
    return 0 if place is None else place[1]


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
