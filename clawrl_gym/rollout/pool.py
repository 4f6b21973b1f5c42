"""The workers as one pool: least busy first, bounded, and a dead worker is data, not a crash."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from clawrl_gym.core.types import Episode, StopReason
from clawrl_gym.rollout.episode import EpisodeSpec


class EpisodeRunner(Protocol):
    """A worker, wherever it runs. Any exception means that the worker failed."""

    async def run(self, spec: EpisodeSpec) -> Episode: ...


class WorkerPool:
    """Runs episodes on the least busy of its workers, at most `slots` on each.

    Measured episodes go before trained ones, so that an evaluation beside training is over soon.
    """

    def __init__(self, workers: Sequence[EpisodeRunner], slots: int) -> None:
        self._workers = list(workers)
        self._busy = [0] * len(self._workers)
        self._slots = _Slots(slots * len(self._workers))

    @property
    def in_flight(self) -> int:
        """Episodes running now."""
        return sum(self._busy)

    async def run(self, spec: EpisodeSpec) -> Episode:
        """One episode; a worker that fails makes it an episode without a reward."""
        async with self._slots.one(urgent=spec.group_id is None):
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


class _Slots:
    """A semaphore with two queues."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._urgent: deque[asyncio.Future[None]] = deque()
        self._others: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def one(self, *, urgent: bool) -> AsyncIterator[None]:
        """Hold a slot; who is urgent gets it before all who are not."""
        await self._acquire(self._urgent if urgent else self._others)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, queue: deque[asyncio.Future[None]]) -> None:
        if self._free:  # nobody waits then
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release()  # it came together with the slot
            raise

    def _release(self) -> None:
        for queue in (self._urgent, self._others):
            while queue:
                turn = queue.popleft()
                if not turn.done():
                    return turn.set_result(None)
        self._free += 1
