"""The workers as one pool: least busy first, bounded, and a dead worker is data, not a crash.

Workers may join and leave at any time; what ran on one that left is for its callers to run again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from clawrl_gym.core.types import Episode, StopReason
from clawrl_gym.rollout.episode import EpisodeSpec


class EpisodeRunner(Protocol):
    """A worker, wherever it runs. Any exception means that the worker failed."""

    async def run(self, spec: EpisodeSpec) -> Episode: ...


@dataclass(eq=False, slots=True)
class _Member:
    """One worker of the pool."""

    worker: EpisodeRunner
    slots: int
    """Episodes that it may run at a time."""
    busy: int = 0
    left: bool = False
    """It is in the pool no more."""


class WorkerPool:
    """Runs episodes on the least busy of its workers, at most `slots` on each.

    Measured episodes go before trained ones, so that an evaluation beside training is over soon.
    """

    def __init__(self, workers: Sequence[EpisodeRunner] = (), slots: int = 1) -> None:
        self._members: list[_Member] = []
        self._slots = _Slots()
        self._in_flight = 0
        for worker in workers:
            self.add(worker, slots)

    @property
    def in_flight(self) -> int:
        """Episodes running now."""
        return self._in_flight

    @property
    def capacity(self) -> int:
        """Episodes that may run at a time."""
        return sum(member.slots for member in self._members)

    def add(self, worker: EpisodeRunner, slots: int) -> None:
        """From now on it runs episodes, at most `slots` at a time."""
        self._members.append(_Member(worker, slots))
        self._slots.grow(slots)

    def remove(self, worker: EpisodeRunner) -> None:
        """It gets no more episodes; those that it still runs end as they end."""
        for member in [member for member in self._members if member.worker is worker]:
            self._members.remove(member)
            member.left = True
            self._slots.shrink(member.slots)
            self._slots.grow(member.busy)  # what it still runs takes no place of another worker

    async def run(self, spec: EpisodeSpec) -> Episode:
        """One episode; a worker that fails makes it an episode without a reward."""
        while True:
            async with self._slots.one(urgent=spec.group_id is None):
                if self._members:  # else the last one left together with the slot
                    least_busy = min(self._members, key=lambda member: member.busy / member.slots)
                    return await self._run_on(least_busy, spec)

    async def _run_on(self, member: _Member, spec: EpisodeSpec) -> Episode:
        member.busy += 1
        self._in_flight += 1
        try:
            async with asyncio.timeout(spec.longest_s):
                return await member.worker.run(spec)
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
            member.busy -= 1
            self._in_flight -= 1
            if member.left:
                self._slots.shrink(1)


class _Slots:
    """A semaphore with two queues, and a count that may change."""

    def __init__(self) -> None:
        self._free = 0
        """Below 0: so many were given to episodes that have not begun, and their worker left."""
        self._urgent: deque[asyncio.Future[None]] = deque()
        self._others: deque[asyncio.Future[None]] = deque()

    def grow(self, count: int) -> None:
        """So many more may be held."""
        self._free += count
        self._hand_on()

    def shrink(self, count: int) -> None:
        """So many fewer may be held; who holds one keeps it."""
        self._free -= count

    @asynccontextmanager
    async def one(self, *, urgent: bool) -> AsyncIterator[None]:
        """Hold a slot; who is urgent gets it before all who are not."""
        await self._acquire(self._urgent if urgent else self._others)
        try:
            yield
        finally:
            self.grow(1)

    async def _acquire(self, queue: deque[asyncio.Future[None]]) -> None:
        if self._free > 0:  # nobody waits then
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.grow(1)  # it came together with the slot
            raise

    def _hand_on(self) -> None:
        """Free slots go to who waits, in order."""
        for queue in (self._urgent, self._others):
            while queue and self._free > 0:
                turn = queue.popleft()
                if not turn.done():
                    self._free -= 1
                    turn.set_result(None)
