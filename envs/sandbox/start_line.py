"""The line in which sandboxes wait to be started: more at a time would only wait for each other.

So that the last of hundreds that start at once has as long for its start as the first.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

from clawrl_gym.core.errors import SandboxError

_WAIT_S = 900.0


class StartLine:
    """Start line of all threads of a process; a forked child has one of its own."""

    def __init__(self, most: int, wait_s: float = _WAIT_S) -> None:
        """`most` start at a time."""
        self._most, self._wait_s = most, wait_s
        self._free = threading.BoundedSemaphore(most)
        self._pid = os.getpid()

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Wait for a place and keep it meanwhile. Raises SandboxError when none gets free."""
        if self._pid != os.getpid():
            self._free, self._pid = threading.BoundedSemaphore(self._most), os.getpid()
        free = self._free
        if not free.acquire(timeout=self._wait_s):
            raise SandboxError(
                f"no sandbox was started: {self._most} others have been starting for "
                f"{self._wait_s:.0f} s now"
            )
        try:
            yield
        finally:
            free.release()
