"""Room for the sandboxes of one process; a caller waits while there is none.

Memory is asked of the machine each time, so that all of its processes together keep some free: a
sandbox too many would have the kernel kill in the others. The count has an end of its own: uid
ranges, descriptors, processes.
"""

from __future__ import annotations

import logging
import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox.cgroup import find_cgroup_home
from clawrl_gym.envs.sandbox.memory import free_mb

_LEAST_FREE_MB = 256
"""MiB that stay free, for sandboxed programs and for others that need some at once."""
_WAIT_S = 60.0
_LOOK_S = 0.5
_PROCESSES_EACH = 4
"""bubblewrap, the init process, the shell and a command."""
_DESCRIPTORS_EACH = 2
_SPARE_DESCRIPTORS = 256
_log = logging.getLogger(__name__)


def most_sandboxes(uid_ranges: int | None) -> tuple[int, str]:
    """The most that one process may have alive, and what ends there. `uid_ranges`: None for any."""
    ends = {
        "processes (kernel.pid_max)": _number("/proc/sys/kernel/pid_max") // _PROCESSES_EACH,
        "processes (kernel.threads-max)": _number("/proc/sys/kernel/threads-max")
        // _PROCESSES_EACH,
        "descriptors (`ulimit -n`)": _descriptors(),
    }
    if uid_ranges is not None:
        ends["uid ranges (/proc/self/uid_map, /etc/subuid)"] = uid_ranges
    what = min(ends, key=lambda name: ends[name])
    return max(1, ends[what]), what


def _number(path: str) -> int:
    return int(Path(path).read_text())


def _descriptors() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    soft = 1 << 30 if soft == resource.RLIM_INFINITY else soft
    return max(1, soft - _SPARE_DESCRIPTORS) // _DESCRIPTORS_EACH


class Room:
    """Counts what is alive; for all threads of a process."""

    def __init__(
        self,
        most: int,
        what: str,
        free_memory_mb: Callable[[], int] | None = None,
        wait_s: float = _WAIT_S,
    ) -> None:
        """`what` there are only `most` of."""
        self._most, self._what = most, what
        home = find_cgroup_home()
        self._free_memory_mb = free_memory_mb or (lambda: free_mb(home))
        self._wait_s = wait_s
        self._alive = 0
        self._left = threading.Condition()
        self._is_warned = False

    def enter(self) -> None:
        """Count one more, when there is room. Raises SandboxError when there was none for long."""
        deadline_s = time.monotonic() + self._wait_s
        with self._left:
            while (missing := self._missing()) is not None:
                if time.monotonic() >= deadline_s:
                    raise SandboxError(
                        f"there is no room for another sandbox: {missing}; {self._alive:,} of this "
                        "process are alive: run fewer environments (rollout.envs_per_worker)"
                    )
                self._warn(missing)
                self._left.wait(min(_LOOK_S, self._wait_s))
            self._alive += 1

    def leave(self) -> None:
        """Count one less."""
        with self._left:
            self._alive -= 1
            self._left.notify()

    def _missing(self) -> str | None:
        if self._alive >= self._most:
            return f"no more {self._what}"
        free = self._free_memory_mb()
        if free < _LEAST_FREE_MB:
            return f"{free} MB of memory are free, and {_LEAST_FREE_MB} stay so"
        return None

    def _warn(self, missing: str) -> None:
        if not self._is_warned:
            self._is_warned = True
            _log.warning(
                "environments wait for room, at %s sandboxes of this process: %s",
                f"{self._alive:,}", missing,
            )  # fmt: skip
