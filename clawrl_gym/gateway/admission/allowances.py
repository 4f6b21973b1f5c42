"""Limits on one user's actions that move shared weights or cost everybody: feedback, new sessions,
deletions. The owner has no such limit.

Counts are kept in a file of their own, every few seconds and at the end: neither a restart nor
deleted sessions reset an allowance.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from clawrl_gym.config import GatewayConfig
from clawrl_gym.core.ownership import OWNER
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.store.allowance_file import Taken, read_taken, write_taken

Limit = Literal[
    "feedback_per_minute", "feedback_per_day", "new_sessions_per_day", "deletions_per_minute"
]
_DAY_S = 86_400.0
_SAVED_EVERY_S = 5.0
_WORDS: dict[Limit, str] = {
    "feedback_per_minute": "posts of feedback a minute",
    "feedback_per_day": "posts of feedback a day",
    "new_sessions_per_day": "new sessions a day",
    "deletions_per_minute": "deletions a minute",
}


class Allowances:
    """The rest of each user's allowances."""

    def __init__(
        self,
        config: GatewayConfig,
        limited: Counter[str] | None = None,
        clock_s: Callable[[], float] = time.time,
        folder: Path | None = None,
    ) -> None:
        """`limited` counts refusals by limit. `folder` has the file of counts; None: they are in
        memory alone."""
        self._config = config
        self._limited = Counter[str]() if limited is None else limited
        self._clock_s = clock_s
        self._folder = folder
        self._taken = Taken() if folder is None else read_taken(folder)
        self._is_saved = True

    def check(self, user: str, *limits: Limit) -> None:
        """Take one of each. Raises Refusal (429) naming the limit, and takes nothing then."""
        if user == OWNER:
            return
        for limit in limits:
            self._check(user, limit)
        for limit in limits:
            window, taken = self._window(user, limit)
            self._taken.windows[limit, user] = window, taken + 1
            self._is_saved = False

    def forget(self, user: str) -> None:
        """The user was removed."""
        self._taken.forget(user)
        self._is_saved = False

    async def run(self) -> None:
        """Keep the file up to date, until cancelled."""
        while True:
            await asyncio.sleep(_SAVED_EVERY_S)
            await self.save()

    async def save(self) -> None:
        """Write what was taken since the last time, if anything was."""
        if self._folder is None or self._is_saved:
            return
        self._is_saved = True
        taken = Taken(dict(self._taken.windows), self._taken.refused.copy())
        await asyncio.to_thread(write_taken, self._folder, taken)

    def _check(self, user: str, limit: Limit) -> None:
        most = getattr(self._config, limit)
        window, taken = self._window(user, limit)
        if most is None or taken < most:
            return
        self._limited[limit] += 1
        self._taken.refused[limit, user] += 1
        self._is_saved = False
        wait_s = (window + 1) * _length_s(limit) - self._clock_s()
        raise Refusal(
            429,
            f"got more than {most} {_WORDS[limit]}, expected at most that many from one user "
            f"(gateway.{limit}): the next one is taken in {max(1.0, wait_s):.0f} s",
            "rate_limit_exceeded",
            None,
            wait_s,
        )

    def _window(self, user: str, limit: Limit) -> tuple[int, int]:
        """The window of now, and what was taken in it."""
        now = int(self._clock_s() // _length_s(limit))
        window, taken = self._taken.windows.get((limit, user), (now, 0))
        return (window, taken) if window == now else (now, 0)


def _length_s(limit: Limit) -> float:
    return _DAY_S if limit.endswith("day") else 60.0
