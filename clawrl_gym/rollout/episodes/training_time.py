"""Times at which a served policy may learn: always, between certain hours, or while it is idle.

What is judged meanwhile waits in its queue. Nothing is taken out of it before it is time, so that
what a person deletes or corrects until then is not learned.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import datetime
from datetime import time as clock_time

from clawrl_gym.config import LiveConfig

_LOOK_EVERY_S = 1.0


class TrainingTime:
    """The times at which one run learns."""

    def __init__(
        self,
        config: LiveConfig,
        quiet_for_s: Callable[[float], float],
        on_wait: Callable[[str | None], None],
        *,
        now: Callable[[], datetime] = datetime.now,
        look_every_s: float = _LOOK_EVERY_S,
    ) -> None:
        """`quiet_for_s`: how long nobody has asked, at a time of the monotonic clock. `on_wait`
        is told what is waited for, and None when it has come."""
        self._config = config
        self._quiet_for_s = quiet_for_s
        self._on_wait = on_wait
        self._now = now
        self._look_every_s = look_every_s

    async def come(self) -> bool:
        """Wait until it is time; whether it was not at once."""
        awaited = self._awaited()
        if awaited is None:
            return False
        self._on_wait(awaited)
        try:
            while True:
                await asyncio.sleep(self._look_every_s)
                if self._awaited() is None:
                    return True
        finally:
            self._on_wait(None)

    def _awaited(self) -> str | None:
        """The condition that has to come first, in words; None when it is time."""
        when = self._config.train_when
        if when == "always":
            return None
        if when == "idle":
            quiet_s = self._config.train_idle_s
            if self._quiet_for_s(time.monotonic()) >= quiet_s:
                return None
            return f"waits for {quiet_s:g} s without a request"
        hours = self._config.hours
        if hours is None or _is_between(self._now().time(), *hours):
            return None
        return f"waits for {hours[0]:%H:%M}"


def _is_between(now: clock_time, start: clock_time, end: clock_time) -> bool:
    """An end that is earlier than the start is of the next day."""
    if start < end:
        return start <= now < end
    return now >= start or now < end
