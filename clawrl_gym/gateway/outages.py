"""Outages: when no policy could answer, because weights were swapped or none could be reached.

What waits meanwhile did not wait for itself: the agent's deadline is longer by as much.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_REMEMBERED = 1000


class Outages:
    """Spans that may overlap: each second counts once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._spans: deque[tuple[float, float]] = deque(maxlen=_REMEMBERED)
        self._under_way = 0
        self._began_s = 0.0

    @contextmanager
    def during(self, since_s: float | None = None) -> Iterator[None]:
        """No policy can answer inside, nor could it since a moment by the clock."""
        began_s = self._clock() if since_s is None else since_s
        self._began_s = min(self._began_s, began_s) if self._under_way else began_s
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._spans.append((self._began_s, self._clock()))

    def seconds_of(self, last_s: float) -> float:
        """Seconds among the last ones in which no policy could answer."""
        now_s = self._clock()
        open_spans = [(self._began_s, now_s)] if self._under_way else []
        counted_to_s, seconds = now_s - last_s, 0.0
        for start_s, end_s in sorted([*self._spans, *open_spans]):
            seconds += max(0.0, end_s - max(counted_to_s, start_s))
            counted_to_s = max(counted_to_s, end_s)
        return seconds
