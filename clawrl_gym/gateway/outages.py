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
    def during(self) -> Iterator[None]:
        """No policy can answer inside."""
        if not self._under_way:
            self._began_s = self._clock()
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._spans.append((self._began_s, self._clock()))

    def seconds_of(self, last_s: float) -> float:
        """How many of the last seconds were outages."""
        now_s = self._clock()
        open_spans = [(self._began_s, now_s)] if self._under_way else []
        since_s = now_s - last_s
        return sum(
            max(0.0, end_s - max(since_s, start_s))
            for start_s, end_s in [*self._spans, *open_spans]
        )
