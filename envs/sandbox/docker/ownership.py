"""Owners of containers: the labels that name them, and whether that process still lives."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from clawrl_gym.envs.sandbox.processes import alive, identity

OWNER_LABEL = "clawrl.owner"
EXPIRES_LABEL = "clawrl.expires"


def labels(ttl_s: float) -> dict[str, str]:
    return {OWNER_LABEL: own_name(), EXPIRES_LABEL: str(int(time.time() + ttl_s))}


def own_name() -> str:
    """Boot, process namespace, number and start time: this process and no other, ever."""
    return f"{_namespace()}:{identity(os.getpid())}"


def is_left_over(container_labels: Mapping[str, str]) -> bool:
    """Whether a container with these labels is ours to remove: expired, or its owner is dead.

    Owners on other machines, before a restart of this one, or in other process namespaces cannot
    be seen from here: theirs only expire.
    """
    expires = container_labels.get(EXPIRES_LABEL, "")
    if expires.isdigit() and time.time() > int(expires):
        return True
    namespace, _, name = container_labels.get(OWNER_LABEL, "").partition(":")
    boot = identity(os.getpid()).partition("-")[0]
    if namespace != _namespace() or not name.startswith(f"{boot}-"):
        return False
    return not alive(name)


def _namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink()).strip("pid:[]")
