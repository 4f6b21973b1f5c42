"""Whether environments leak: how much a worker's memory grows once all of them are warm.

Threads of one process have no memory of their own, so growth is the worker's and is said by
environment. It is cured in two steps: all environments are made anew; and where that frees nothing
(what leaks belongs to a module), the worker's process ends once it is empty, and starts again.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from enum import Enum
from pathlib import Path

_STATM = Path("/proc/self/statm")
_MIB = 1 << 20


class Cure(Enum):
    """The action that a worker has to take."""

    NONE = "none"
    RENEW = "renew"
    """Recreate every environment."""
    RETIRE = "retire"
    """End the process."""


def resident_bytes() -> int:
    """Resident memory of this process in bytes."""
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class MemoryWatch:
    """Follows one worker's memory, episode by episode."""

    def __init__(
        self,
        environments: int,
        growth_mb: int,
        read_bytes: Callable[[], int] = resident_bytes,
    ) -> None:
        """`growth_mb`: growth that is not a leak; 0 watches nothing."""
        self._environments = environments
        self._growth_mb = growth_mb
        self._read_bytes = read_bytes
        self._episodes = 0
        self._warm_bytes = 0
        self._renewed_at: int | None = None
        """Episodes when the environments began to be recreated."""

    def episode_ended(self) -> Cure:
        """Note the end of an episode; returns the action to take."""
        self._episodes += 1
        if not self._growth_mb:
            return Cure.NONE
        if self._episodes <= self._environments:
            self._warm_bytes = self._read_bytes()
        elif self._renewed_at is None:
            if self._grown_mb > self._growth_mb:
                self._renewed_at = self._episodes
                return Cure.RENEW
        elif self._episodes == self._renewed_at + 2 * self._environments:
            return self._after_renewal()
        return Cure.NONE

    @property
    def words(self) -> str:
        """Its growth, in words."""
        episodes = max(1, self._episodes - self._environments)
        return (
            f"a worker's memory grew by {self._grown_mb:.0f} MiB in {episodes} episodes, "
            f"{self._grown_mb / self._environments:.1f} MiB for each of {self._environments} "
            "environments (rollout.growth_mb)"
        )

    def _after_renewal(self) -> Cure:
        """Whether it helped, once every environment had its turn."""
        gc.collect()
        self._renewed_at = None
        return Cure.RETIRE if self._grown_mb > self._growth_mb else Cure.NONE

    @property
    def _grown_mb(self) -> float:
        return max(0.0, (self._read_bytes() - self._warm_bytes) / _MIB)
