"""The workers as one pool: least busy first, bounded, and a dead worker is data, not a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from clawrl_gym.core.types import Episode, StopReason
from clawrl_gym.rollout.episode import EpisodeSpec


class EpisodeRunner(Protocol):
    """A worker, wherever it runs. Any exception means that the worker failed."""

    async def run(self, spec: EpisodeSpec) -> Episode: ...


class WorkerPool:
    """Runs episodes on the least busy of its workers, at most `slots` on each."""

    def __init__(self, workers: Sequence[EpisodeRunner], slots: int) -> None:
        self._workers = list(workers)
        self._busy = [0] * len(self._workers)
        self._free = asyncio.Semaphore(slots * len(self._workers))

    @property
    def in_flight(self) -> int:
        """Episodes running now."""
        return sum(self._busy)

    async def run(self, spec: EpisodeSpec) -> Episode:
        """One episode; a worker that fails makes it an episode without a reward."""
        async with self._free:
            least_busy = min(range(len(self._workers)), key=self._busy.__getitem__)
            self._busy[least_busy] += 1
            try:
                async with asyncio.timeout(spec.longest_s):
                    return await self._workers[least_busy].run(spec)
            except Exception as error:  # noqa: BLE001 - the border: whatever a worker dies of is recorded
                return Episode(
                    session_id=spec.session_id,
                    group_id=spec.group_id,
                    task=spec.task,
                    stop_reason=StopReason.ENV_ERROR,
                    reward=None,
                    turns=0,
                    error=f"worker failed: {type(error).__name__}: {error}",
                )
            finally:
                self._busy[least_busy] -= 1
