"""Default memory limit of one browser."""

from __future__ import annotations

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.envs.sandbox.cgroup import CgroupHome, find_cgroup_home
from clawrl_gym.envs.sandbox.memory import limit_bytes

_LEAST_MB = 64


def require_cgroups() -> None:
    """Raises ConfigError, saying the cure, where `memory_mb` cannot hold."""
    if find_cgroup_home() is None:
        raise ConfigError(
            "got browser.memory_mb, expected a host where cgroups can be written: leave it out,"
            " and pages can take all memory; or follow `python -m clawrl_gym.doctor`"
        )


def memory_home() -> CgroupHome | None:
    """Home without the processors' share: as one group a browser would get that of one process."""
    home = find_cgroup_home()
    if home is None:
        return None
    parents = {kind: folder for kind, folder in home.parents.items() if kind != "cpu"}
    return CgroupHome(home.version, parents)


def share_mb(home: CgroupHome) -> int:
    """Half of what this process may have: of the machine, or of the cgroups that it is in."""
    return max(_LEAST_MB, limit_bytes(home) // 2 >> 20)
