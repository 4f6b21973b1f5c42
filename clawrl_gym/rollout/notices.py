"""Warnings of a worker's process, which people would look for in vain: its log goes with Ray's.

Each is told once by a process, with an episode that ends.
"""

from __future__ import annotations

import logging
from collections import deque

from clawrl_gym.core.redact import clean

_OURS = "clawrl_gym"


class Notices(logging.Handler):
    """Keeps this package's warnings until somebody asks."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._seen: set[str] = set()
        self._waiting: deque[str] = deque()

    def listen(self) -> None:
        """Start listening."""
        logging.getLogger(_OURS).addHandler(self)

    def close(self) -> None:
        """No more."""
        logging.getLogger(_OURS).removeHandler(self)
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record of any thread."""
        kind = f"{record.name} {record.msg}"  # before its numbers are put in
        if kind not in self._seen:
            self._seen.add(kind)
            self._waiting.append(clean(record.getMessage()))

    def next(self) -> str | None:
        """The oldest that nobody has asked for."""
        return self._waiting.popleft() if self._waiting else None
