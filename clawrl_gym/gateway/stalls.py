"""Stalls: policies that have requests and sample nothing, because a process of theirs is stopped,
or the machine has no time for it.

They count as outages, from the last token on: no agent loses its deadline by them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack

from clawrl_gym.core.errors import PolicyError
from clawrl_gym.gateway.outages import Outages
from clawrl_gym.inference.interface import Policies

_LOOK_EVERY_S = 4.0
_STALLED_S = 12.0
"""Seconds without a token: longer than the tiny policy reads a full context."""
_PROGRESS = ("prompt_tokens", "tokens")


class Stalls:
    """Looks at the policies' own counters while requests are under way."""

    def __init__(
        self,
        policies: Policies,
        outages: Outages,
        is_asked: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`is_asked`: whether requests are under way."""
        self._policies = policies
        self._outages = outages
        self._is_asked = is_asked
        self._clock = clock
        self._progress: tuple[float, ...] = ()
        self._most_engines = 0.0
        self._moved_s = clock()
        """Time at which something was last seen to be sampled, or nothing was to be."""
        self._stall = ExitStack()
        self._is_stalled = False

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            while True:
                await asyncio.sleep(_LOOK_EVERY_S)
                await self.look()
        finally:
            self._stall.close()

    async def look(self) -> None:
        """Begin or end an outage."""
        progress = await self._reading() if self._is_asked() else None
        if progress is None or progress != self._progress:
            self._progress = progress or ()
            self._moved_s = self._clock()
            self._is_stalled = False
            self._stall.close()
        elif not self._is_stalled and self._clock() - self._moved_s >= _STALLED_S:
            self._is_stalled = True
            self._stall.enter_context(self._outages.during(self._moved_s))

    async def _reading(self) -> tuple[float, ...] | None:
        """Amounts sampled so far; as before from an engine that says nothing, or when it may have
        the requests that no other has; None when there is nothing to do."""
        try:
            async with asyncio.timeout(_LOOK_EVERY_S):
                metrics = await self._policies.metrics()
        except (PolicyError, TimeoutError):
            return self._progress
        engines = metrics.get("engines", 1.0)
        self._most_engines = max(self._most_engines, engines)
        if not metrics.get("running", 0.0) + metrics.get("waiting", 0.0):
            return self._progress if engines < self._most_engines else None
        return tuple(metrics.get(name, 0.0) for name in _PROGRESS)
