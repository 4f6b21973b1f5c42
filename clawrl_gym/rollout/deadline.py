"""The agent's deadline: its own wall-clock time, without what infrastructure held up.

It begins once the environment has started, which has a limit of its own. Seconds in which no policy
could be reached, or its weights were swapped, do not count: they are provably not the agent's. All
else is: its actions, what they take of the environment, and its replies, however long.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from clawrl_gym.core.errors import PolicyError
from clawrl_gym.core.types import StopReason

OutageClock = Callable[[float], Awaitable[float]]
"""In how many of the last seconds no policy could answer. Raises PolicyError."""


async def no_outages(last_s: float) -> float:
    """Of a policy whose outages nobody counts."""
    return 0.0


class Deadline:
    """Ends what takes more than `timeout_s` of the agent's own time."""

    def __init__(self, timeout_s: float, outages_s: OutageClock = no_outages) -> None:
        self.timeout_s = timeout_s
        self._outages_s = outages_s

    async def hold(self, play: Awaitable[StopReason]) -> StopReason:
        """The end of `play`. Raises TimeoutError when the agent's time is over first, and
        PolicyError when outages took as much again."""
        task = asyncio.ensure_future(play)
        try:
            started_s, left_s = time.monotonic(), self.timeout_s
            while left_s > 0:
                await asyncio.wait({task}, timeout=left_s)
                if task.done():
                    return task.result()
                outages_s = await self._outages_s(time.monotonic() - started_s)
                if outages_s > self.timeout_s:
                    raise PolicyError(f"no policy answered for {outages_s:.0f} s")
                left_s = started_s + self.timeout_s + outages_s - time.monotonic()
            raise TimeoutError
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
