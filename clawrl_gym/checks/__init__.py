"""Checks of this machine for everything that clawrl_gym needs; they change nothing.

A check says what it found and names the command that fixes it. Imports neither torch nor vllm nor
ray.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from clawrl_gym.checks import host, software
from clawrl_gym.checks.check import MachineCheck, Status
from clawrl_gym.core import provenance

__all__ = ["MachineCheck", "Status", "run_checks"]


def run_checks(folder: Path) -> list[MachineCheck]:
    """All checks, in the order in which they are shown; `folder` is where runs will be written."""
    steps: list[Callable[[], Iterable[MachineCheck]]] = [
        lambda: [software.check_python(sys.version_info[:3])],
        software.check_packages,
        lambda: [software.check_tiny_model(), software.check_numa()],
        lambda: [host.check_cpu(provenance.cpu_flags(), platform.machine())],
        lambda: [host.check_memory(provenance.memory_total_gb(), provenance.memory_available_gb())],
        lambda: [
            host.check_disk(folder),
            host.check_shm(Path("/dev/shm")),
            host.check_open_files(),
        ],
        lambda: [host.check_loopback()],
        host.check_isolation,
        lambda: [software.check_git()],
        lambda: [host.check_gpu(provenance.gpu_names()), software.check_docker()],
        lambda: [software.check_browser()],
    ]
    with ThreadPoolExecutor(len(steps)) as pool:
        pending = [pool.submit(step) for step in steps]
        return [check for future in pending for check in future.result()]
