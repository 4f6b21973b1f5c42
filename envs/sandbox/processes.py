"""Looking at processes through /proc, from outside a sandbox."""

from __future__ import annotations

import contextlib
from pathlib import Path


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
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (entry / "ns/pid").readlink() == namespace:
                found.append(int(entry.name))
    return found


def inner_pid(pid: int) -> int:
    """The number that a process has inside its own namespace; 0 when it is gone."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    except OSError:
        pass
    return 0
