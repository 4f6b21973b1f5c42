"""Which limits hold on this host: cgroups, else rlimits, else none that count for one sandbox."""

from __future__ import annotations

import os

from clawrl_gym.envs.sandbox.cgroup import CgroupHome, Cgroups, find_cgroup_home

_NAMESPACE_COUNTS_PROCESSES = (5, 14)
"""The kernel from which a user namespace has a count of its own for RLIMIT_NPROC."""


def open_cgroups(home: CgroupHome | None = None) -> Cgroups | None:
    """This launcher's cgroups, proven to work and swept of dead launchers' remains, or None.

    `home`: where, if not everywhere that is found.
    """
    home = home or find_cgroup_home()
    if home is None:
        return None
    cgroups = Cgroups(home)
    try:
        cgroups.open()
    except OSError:
        return None
    cgroups.sweep()
    return cgroups


def limits_kind(cgroups: Cgroups | None, *, alone: bool) -> str:
    """`alone`: each sandbox has a host user of its own, whose processes can be counted."""
    if cgroups is not None:
        return f"cgroup{cgroups.version}"
    release = tuple(int(part) for part in os.uname().release.split(".")[:2])
    return "rlimit" if alone or release >= _NAMESPACE_COUNTS_PROCESSES else "none"
