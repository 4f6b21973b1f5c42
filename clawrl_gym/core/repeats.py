"""Repeated log lines: the first of a kind is shown, the others are counted.

Lines are of one kind when they differ only in numbers and in names with digits. At intervals the
counts are shown and reset.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable

_NUMBER = re.compile(r"[\w./:-]*\d[\w./:-]*")
_BEGINNING = 120
"""Characters at a line's beginning that identify its kind."""


class Repeats:
    """Shows each kind of line once in `every_s` seconds, and how many more there were."""

    def __init__(
        self,
        say: Callable[[str], None],
        every_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say = say
        self._every_s = every_s
        self._clock = clock
        self._since_s = clock()
        self._first: dict[str, str] = {}
        """The line that was shown, by kind."""
        self._more: Counter[str] = Counter()

    def add(self, line: str) -> None:
        """Show the line, or count it."""
        self.flush_if_due()
        kind = _NUMBER.sub("#", line)
        if kind in self._first:
            self._more[kind] += 1
            return
        self._first[kind] = line
        self._say(line)

    def flush_if_due(self) -> None:
        """Show the counts, when it is time."""
        now_s = self._clock()
        if now_s - self._since_s < self._every_s:
            return
        for kind, count in self._more.items():
            line = self._first[kind]
            beginning = line if len(line) <= _BEGINNING else f"{line[:_BEGINNING]}..."
            self._say(f"{count} more like this in {now_s - self._since_s:.0f} s: {beginning}")
        self._since_s = now_s
        self._first.clear()
        self._more.clear()
