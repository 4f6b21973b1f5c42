"""Memory that this process and its children may have, and how much of it is free."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from clawrl_gym.envs.sandbox.cgroup import CgroupHome

_FILES = {  # limit, use, and how the statistics name what can be had back
    "memory.max": ("memory.current", "inactive_file"),
    "memory.limit_in_bytes": ("memory.usage_in_bytes", "total_inactive_file"),
}


def limit_bytes(home: CgroupHome) -> int:
    """Memory limit of the machine, or of the cgroups that this process is in."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([machine, *(limit for _, _, limit in _limits(home))])


def free_mb(home: CgroupHome | None) -> int:
    """MiB that can be had without any process being killed for it."""
    free = [_available_bytes()]
    for folder, name, limit in _limits(home) if home is not None else ():
        use, reclaimable = _FILES[name]
        with contextlib.suppress(OSError, ValueError):  # it ended
            used = int((folder / use).read_text()) - _statistic(folder, reclaimable)
            free.append(limit - used)
    return max(0, min(free)) >> 20


def _limits(home: CgroupHome) -> list[tuple[Path, str, int]]:
    """Folder, name of the file, bytes: of each cgroup upwards that has a limit."""
    start = home.parents.get("") or home.parents["memory"]
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = []
    for folder in (start, *start.parents):
        for name in _FILES:
            with contextlib.suppress(OSError, ValueError):  # not there, or "max"
                limit = int((folder / name).read_text())
                if limit < machine:
                    limits.append((folder, name, limit))
    return limits


def _statistic(folder: Path, name: str) -> int:
    for line in (folder / "memory.stat").read_text().splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 1 << 62
