"""Slow machines: the part of an episode's time that is not the agent's own.

The length of its replies is the agent's doing, the speed of sampling is not. So a reply counts at
the seconds that it takes at `SLOWEST_TOKENS_PER_S`, and at fewer where it was faster. The work of
an action is the agent's doing, its processes' wait for a CPU is not.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

SLOWEST_TOKENS_PER_S = 10.0
"""Tokens per second of one request, about as fast as people read."""
_LOOK_EVERY_S = 0.5
_CPUS = re.compile(r"^cpu\d", re.MULTILINE)
_RUNNING = re.compile(r"^procs_running (\d+)", re.MULTILINE)
_STEAL = 7
"""Field of the CPUs' line with the time that the machine's host gave to others."""


def own_seconds(tokens: int) -> float:
    """The most seconds that so many sampled tokens cost an agent."""
    return tokens / SLOWEST_TOKENS_PER_S


def is_slow(tokens: int | None, timeout_s: float) -> bool:
    """Whether a request of at most so many tokens (None: no bound is known) that has not ended in
    this time cannot be too long."""
    return tokens is not None and own_seconds(tokens) < timeout_s


class ReplyTimes:
    """An episode's waits for its replies, and the tokens it got in them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waited_s = 0.0
        self._tokens = 0
        self._own_s = 0.0
        self._asked_s: dict[int, float] = {}
        """Request times of the replies in flight; a program may ask for several."""
        self._asked = 0

    @contextmanager
    def asking(self) -> Iterator[Callable[[int], None]]:
        """Time a reply inside; call the yielded function with its token count once it came."""
        self._asked += 1
        number = self._asked
        asked_s = self._asked_s[number] = self._clock()
        try:
            yield lambda tokens: self._got(tokens, self._clock() - asked_s)
        finally:
            del self._asked_s[number]

    def _got(self, tokens: int, duration_s: float) -> None:
        """Record a reply; one of unknown tokens (0) counts whole."""
        self._waited_s += duration_s
        self._tokens += tokens
        self._own_s += min(duration_s, own_seconds(tokens)) if tokens else duration_s

    @property
    def slow_s(self) -> float:
        """Seconds of these that are the machine's. A reply in flight counts like those before it;
        without any before it, it is the agent's."""
        if not self._waited_s:
            return 0.0
        pending_s = sum(self._clock() - asked_s for asked_s in self._asked_s.values())
        return (self._waited_s + pending_s) * (1.0 - self._own_s / self._waited_s)

    @property
    def tokens_per_s(self) -> float:
        """Speed of the replies that came, in tokens per second."""
        return self._tokens / self._waited_s if self._waited_s else 0.0


def _proc_stat() -> str:
    return Path("/proc/stat").read_text()


class CpuWaits:
    """Average wait of this machine's runnable processes for a CPU.

    A thread looks twice a second, from the first question on: at how many processes want to run,
    and at what the machine's host took away. Where the kernel does not say, it is 0.
    """

    def __init__(
        self, read: Callable[[], str] = _proc_stat, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read = read
        self._clock = clock
        self._waited_s = 0.0
        self._share = 0.0
        self._looked_s = clock()
        self._ticks: tuple[float, float] | None = None
        """Stolen and total ticks at the last look."""
        self._looking: threading.Thread | None = None

    def seconds(self) -> float:
        """Seconds waited since the first question."""
        if self._looking is None or not self._looking.is_alive():
            self._looking = threading.Thread(target=self._keep_looking, name="cpu", daemon=True)
            self._looked_s = self._clock()
            self._looking.start()
        return self._waited_s + self._share * (self._clock() - self._looked_s)

    def look(self) -> None:
        """Count the time since the last look at the share that is found now."""
        try:
            self._share = self._waiting_share(self._read())
        except (OSError, ValueError, IndexError):
            self._share = 0.0
        now_s = self._clock()
        self._waited_s += self._share * (now_s - self._looked_s)
        self._looked_s = now_s

    def _keep_looking(self) -> None:
        while True:
            self.look()
            time.sleep(_LOOK_EVERY_S)

    def _waiting_share(self, stat: str) -> float:
        running = _RUNNING.search(stat)
        cpus = len(_CPUS.findall(stat))
        wanting = int(running[1]) - 1 if running is not None else 0  # without this thread
        runs = min(1.0, cpus / wanting) if wanting > 0 else 1.0
        return 1.0 - runs * (1.0 - self._stolen_share(stat))

    def _stolen_share(self, stat: str) -> float:
        ticks = [float(field) for field in stat.split("\n", 1)[0].split()[1:9]]
        now, before = (ticks[_STEAL], sum(ticks)), self._ticks
        self._ticks = now
        if before is None or now[1] <= before[1]:
            return 0.0
        return min(1.0, max(0.0, (now[0] - before[0]) / (now[1] - before[1])))


cpu_waits = CpuWaits()
"""The waits on this process's machine."""
