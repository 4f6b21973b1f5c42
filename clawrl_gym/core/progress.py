"""Progress of long work, reported now and then."""

from __future__ import annotations

import time
from collections.abc import Callable

_SAY_EVERY_S = 10.0


class NowAndThen:
    """Report the first text it is given, then nothing in the seconds after each report."""

    def __init__(
        self,
        say: Callable[[str], None],
        every_s: float = _SAY_EVERY_S,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say = say
        self._every_s = every_s
        self._clock_s = clock_s
        self._started_s = clock_s()
        self._said_s: float | None = None

    def __call__(self, line: str) -> None:
        now_s = self._clock_s()
        if self._said_s is None or now_s - self._said_s >= self._every_s:
            self._said_s = now_s
            self._say(line)

    def left(self, done: int, count: int) -> str:
        """`, left 1:05`, if the rest takes as long per item as before; else empty."""
        if not done:
            return ""
        left_s = int((self._clock_s() - self._started_s) / done * max(0, count - done))
        return f", left {left_s // 60}:{left_s % 60:02d}"
