"""The agent's deadline: its own wall-clock time, without what the machine held up.

It begins once the environment has started, which has a limit of its own. What does not count,
because it is not the agent's: seconds in which no policy could be reached or its weights were
swapped, seconds that replies took beyond what their tokens take on a machine that is not slow
(`core/slow_machine.py`), and seconds in which this process got no time at all. All else counts: its
actions, what they take of the environment, and its replies, however long.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from clawrl_gym.core.errors import PolicyError
from clawrl_gym.core.slow_machine import SLOWEST_TOKENS_PER_S, own_seconds
from clawrl_gym.core.types import StopReason

OutageClock = Callable[[float], Awaitable[float]]
"""In how many of the last seconds no policy could answer. Raises PolicyError."""

_LOOK_EVERY_S = 10.0
_LATE_S = 1.0
"""A process that wakes up so much later than it asked for had no time meanwhile."""


async def no_outages(last_s: float) -> float:
    """Of a policy whose outages nobody counts."""
    return 0.0


class ReplyTimes:
    """How long an episode waited for its replies, and how many tokens it got for that."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waited_s = 0.0
        self._tokens = 0
        self._own_s = 0.0
        self._asked_s: float | None = None

    @contextmanager
    def asking(self) -> Iterator[None]:
        """A reply is being waited for inside."""
        self._asked_s = self._clock()
        try:
            yield
        finally:
            self._asked_s = None

    def got(self, tokens: int, duration_s: float) -> None:
        """A reply came; one whose tokens are not known (0) counts whole."""
        self._waited_s += duration_s
        self._tokens += tokens
        self._own_s += min(duration_s, own_seconds(tokens)) if tokens else duration_s

    @property
    def slow_s(self) -> float:
        """Seconds of these that are the machine's. A reply that is still being waited for counts
        like those before it; without any before it, it is the agent's."""
        if not self._waited_s:
            return 0.0
        pending_s = 0.0 if self._asked_s is None else self._clock() - self._asked_s
        return (self._waited_s + pending_s) * (1.0 - self._own_s / self._waited_s)

    def words(self) -> str:
        """How slow it was."""
        speed = self._tokens / self._waited_s if self._waited_s else 0.0
        return (
            f"the policy sampled {speed:.1f} tokens/s for this episode, "
            f"less than {SLOWEST_TOKENS_PER_S:g}"
        )


class Deadline:
    """Ends what takes more than `timeout_s` of the agent's own time."""

    def __init__(
        self,
        timeout_s: float,
        outages_s: OutageClock = no_outages,
        replies: ReplyTimes | None = None,
    ) -> None:
        self.timeout_s = timeout_s
        self._outages_s = outages_s
        self._replies = replies or ReplyTimes()
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
        outages_s, slow_s = await self._outages_s(last_s), self._replies.slow_s
        held_up_s = max(outages_s, slow_s) + self._late_s  # a slow reply may hold an outage
        if held_up_s <= self.timeout_s:
            return held_up_s
        if outages_s > self.timeout_s:
            raise PolicyError(f"no policy answered for {outages_s:.0f} s")
        why = self._replies.words() if slow_s > self._late_s else "this process got no time"
        raise PolicyError(
            f"the machine is too slow: it held the episode up for {held_up_s:.0f} s ({why}). "
            "Let fewer episodes run at once (rollout.in_flight), or give them more time "
            "(rollout.episode_timeout_s)"
        )
