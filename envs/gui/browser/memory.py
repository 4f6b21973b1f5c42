"""How much memory one browser may take when nobody said it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.envs.sandbox.cgroup import CgroupHome, find_cgroup_home

_LIMITS = ("memory.max", "memory.limit_in_bytes")
_LEAST_MB = 64


def require_cgroups() -> None:
    """Raises ConfigError, saying the cure, where `memory_mb` cannot hold."""
    if find_cgroup_home() is None:
        raise ConfigError(
            "got browser.memory_mb, expected a host where cgroups can be written: leave it out,"
            " and pages can take all memory; or follow `python -m clawrl_gym.doctor`"
        )


def memory_home() -> CgroupHome | None:
    """Without the processors' share: as one group a browser would get that of one process."""
    home = find_cgroup_home()
    if home is None:
        return None
    parents = {kind: folder for kind, folder in home.parents.items() if kind != "cpu"}
    return CgroupHome(home.version, parents)


def share_mb(home: CgroupHome) -> int:
    """Half of what this process may have: of the machine, or of the cgroups that it is in."""
    folder = home.parents.get("") or home.parents["memory"]
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for each in (folder, *folder.parents):
        most = min([most, *_limits(each)])
    return max(_LEAST_MB, most // 2 >> 20)


def _limits(folder: Path) -> list[int]:
    limits = []
    for name in _LIMITS:
        with contextlib.suppress(OSError, ValueError):  # not there, or "max"
            limits.append(int((folder / name).read_text()))
    return limits
