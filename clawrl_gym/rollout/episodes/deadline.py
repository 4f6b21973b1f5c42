"""The agent's deadline: its own wall-clock time, without what the machine held up.

It begins once the environment has started, which has a limit of its own. What does not count,
because it is not the agent's: seconds in which no policy could be reached or its weights were
swapped, seconds that replies took beyond what their tokens take on a machine that is not slow
(`core/slow_machine.py`), seconds that its actions waited for a thread or a CPU, and seconds in
which this process got no time at all. All else counts: its actions, what they take of the
environment, and its replies, however long.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from clawrl_gym.core.errors import PolicyError
from clawrl_gym.core.processes.slow_machine import SLOWEST_TOKENS_PER_S, ReplyTimes
from clawrl_gym.core.types import StopReason


@dataclass(frozen=True, slots=True)
class Waits:
    """Waiting times of an episode, in the last seconds, that are the policy's doing."""

    outages_s: float = 0.0
    """No policy could answer."""
    slow_s: float = 0.0
    """Replies came slower than tokens come on a machine that is not slow."""
    tokens_per_s: float = 0.0
    """Speed of these replies."""


WaitClock = Callable[[float], Awaitable[Waits]]
"""The waits of the last seconds. Raises PolicyError."""

_LOOK_EVERY_S = 10.0
_LATE_S = 1.0
"""A process that wakes up so much later than it asked for had no time meanwhile."""


async def no_waits(last_s: float) -> Waits:
    """For a policy whose outages nobody counts."""
    return Waits()


class ActionTimes:
    """The machine's part of the time of an episode's actions: waits for a thread of this process,
    and, as the environment reports it, its processes' waits for a CPU."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._slow_s = 0.0
        self._acted_s = 0.0
        self._asked_s: float | None = None
        self._begun_s: float | None = None

    @contextmanager
    def acting(self) -> Iterator[Callable[[], None]]:
        """An action is being carried out inside; call what is given once it has begun."""
        self._asked_s, self._begun_s = self._clock(), None
        try:
            yield self._begin
        finally:
            self._slow_s += self._pending_s
            self._acted_s += self._clock() - self._asked_s
            self._asked_s = None

    def waited(self, seconds: float) -> None:
        """Processes of an action waited for a CPU."""
        self._slow_s += seconds

    @property
    def slow_s(self) -> float:
        """Seconds of these that are the machine's, also of an action that waits to begin; none
        where it is no more than one, which says nothing."""
        slow_s = self._slow_s + self._pending_s
        return slow_s if slow_s > _LATE_S else 0.0

    def words(self) -> str:
        """A sentence about its slowness."""
        pending_s = 0.0 if self._asked_s is None else self._clock() - self._asked_s
        return (
            f"of the {self._acted_s + pending_s:.0f} s that its actions took, they could not run "
            f"for {self.slow_s:.0f} s"
        )

    def _begin(self) -> None:
        self._begun_s = self._clock()

    @property
    def _pending_s(self) -> float:
        if self._asked_s is None:
            return 0.0
        return (self._clock() if self._begun_s is None else self._begun_s) - self._asked_s


class Deadline:
    """Ends what takes more than `timeout_s` of the agent's own time."""

    def __init__(
        self,
        timeout_s: float,
        waits: WaitClock = no_waits,
        replies: ReplyTimes | None = None,
        actions: ActionTimes | None = None,
    ) -> None:
        self.timeout_s = timeout_s
        self._waits = waits
        self._replies = replies or ReplyTimes()
        self._actions = actions or ActionTimes()
        self._late_s = 0.0

    async def hold(self, play: Awaitable[StopReason]) -> StopReason:
        """The end of `play`. Raises TimeoutError when the agent's time is over first, and
        PolicyError when the machine held it up for as long again."""
        task = asyncio.ensure_future(play)
        try:
            started_s, left_s = time.monotonic(), self.timeout_s
            while left_s > 0:
                await self._wait(task, left_s)
                if task.done():
                    return task.result()
                held_up_s = await self._held_up_s(time.monotonic() - started_s)
                left_s = started_s + self.timeout_s + held_up_s - time.monotonic()
            raise TimeoutError
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})

    async def _wait(self, task: asyncio.Future[StopReason], timeout_s: float) -> None:
        """Wait for the task, and note what this process was late by."""
        until_s = time.monotonic() + timeout_s
        while not task.done() and (left_s := until_s - time.monotonic()) > 0:
            slice_s = min(left_s, _LOOK_EVERY_S)
            asked_s = time.monotonic()
            await asyncio.wait({task}, timeout=slice_s)
            late_s = time.monotonic() - asked_s - slice_s
            self._late_s += late_s if late_s > _LATE_S else 0.0

    async def _held_up_s(self, last_s: float) -> float:
        """Seconds that are not the agent's. Raises PolicyError when they are too many."""
        waits = await self._waits(last_s)
        replies_s = max(self._replies.slow_s, min(waits.slow_s, last_s))
        actions_s = self._actions.slow_s
        policy_s = max(waits.outages_s, replies_s)  # a slow reply may hold an outage
        held_up_s = policy_s + max(actions_s, self._late_s)  # an action that waits may be late
        if held_up_s <= self.timeout_s:
            return held_up_s
        if waits.outages_s > self.timeout_s:
            raise PolicyError(f"no policy answered for {waits.outages_s:.0f} s")
        speed = self._replies.tokens_per_s or waits.tokens_per_s
        reasons = {
            f"the policy sampled {speed:.1f} tokens/s for this episode, less than "
            f"{SLOWEST_TOKENS_PER_S:g}": replies_s,
            self._actions.words(): actions_s,
            "this process got no time": self._late_s,
        }
        why = max(reasons, key=lambda reason: reasons[reason])
        raise PolicyError(
            f"the machine is too slow: it held the episode up for {held_up_s:.0f} s ({why}). "
            "Let fewer episodes run at once (rollout.in_flight), or give them more time "
            "(rollout.episode_timeout_s)"
        )
