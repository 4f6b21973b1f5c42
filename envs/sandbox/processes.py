"""Processes through /proc: which are a sandbox's, killing them, and names that outlive them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

_ROUNDS = 50
_PAUSE_S = 0.001


def kill_all(list_pids: Callable[[], list[int]], spared: set[int], keep: int) -> int:
    """Kill what `list_pids` finds but `spared` and the process whose number inside is `keep`.

    Until none is left: what is forked meanwhile is found in the next round.
    """
    killed = 0
    spared = set(spared)
    for _ in range(_ROUNDS):
        pids = [pid for pid in list_pids() if pid not in spared]
        spared.update(pid for pid in pids if keep and inner_pid(pid) == keep)
        doomed = [pid for pid in pids if pid not in spared]
        if not doomed:
            break
        for pid in doomed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed += len(doomed)
        time.sleep(_PAUSE_S)
    return killed


def children(pid: int) -> list[int]:
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def namespace_members(first: int) -> list[int]:
    """Every process of the process namespace that `first` is in."""
    try:
        namespace = Path(f"/proc/{first}/ns/pid").readlink()
    except OSError:
        return []
    members = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (entry / "ns/pid").readlink() == namespace:
                members.append(int(entry.name))
    return members


def inner_pid(pid: int) -> int:
    """The number that a process has inside its own namespace; 0 when it is gone."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    except OSError:
        pass
    return 0


def identity(pid: int) -> str:
    """A process for ever: boot, number and start time, so a reused number is another process."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")[:12]
    return f"{boot}-{pid}-{_start_time(pid)}"


def alive(name: str) -> bool:
    """Whether the process that an `identity` names still runs; one that nobody has buried does
    not."""
    parts = name.split("-")
    if len(parts) != 3 or not parts[1].isdigit():
        return True  # not ours to judge
    pid = int(parts[1])
    try:
        return identity(pid) == name and _stat(pid)[0] not in ("Z", "X")
    except OSError:
        return False


def is_orphan(name: str) -> bool:
    """Whether a launcher that an `identity` names has lost its owner: the process that its last
    argument is the number of."""
    try:
        pid = int(name.split("-")[1])
        owner = int(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[-2])
        return owner != int(_stat(pid)[1])
    except (OSError, IndexError, ValueError):
        return False


def _start_time(pid: int) -> int:
    return int(_stat(pid)[19])


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; the name before it may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
