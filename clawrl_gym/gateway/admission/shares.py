"""Each user's share of the policy: so many of their requests are with it at once, the others wait.

What waits, waits here, in the order in which it came; the engine never has more of a user than
their share, so that nobody's reply stands behind all that another one asks. The owner has no limit:
rollouts are theirs, and hold back by themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from clawrl_gym.core.ownership import OWNER


@dataclass(slots=True)
class _Share:
    """One user's."""

    slots: asyncio.Semaphore
    requests: int = 0
    """Requests that are with the policy, or wait."""


class Shares:
    """The shares of all users with a key of their own."""

    def __init__(self, most_running: int) -> None:
        self._most_running = most_running
        self._shares: dict[str, _Share] = {}

    @asynccontextmanager
    async def running(self, user: str) -> AsyncIterator[None]:
        """Around a request that asks the policy; entered when it is its turn."""
        if user == OWNER:
            yield
            return
        share = self._shares.get(user)
        if share is None:
            share = self._shares[user] = _Share(asyncio.Semaphore(self._most_running))
        share.requests += 1
        try:
            async with share.slots:
                yield
        finally:
            share.requests -= 1
            if not share.requests:
                del self._shares[user]
