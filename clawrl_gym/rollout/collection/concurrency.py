"""The number of episodes in flight: as many as keep the engine busy, found from its own metrics.

It works in rounds. A round is over when there were as many turns as there are episodes in flight:
each has met the engine about once since the last change. Then the first of these decides:

- requests queue in the engine, it preempts, or running requests hold too much of the key-value
  cache: those that are too many in the engine leave;
- nobody waits for a place: the number does not bind, and stays;
- half as many again in flight made no more work for the engine: environments are slow, and
  more of them would only wait for each other;
- the engine has room: more, up to four times as many in the time of an episode at first, twice as
  many later, and the fewer the fuller it gets.

Running requests may hold half of the cache, and more where episodes are in the engine most of the
time: what is left keeps the contexts of those that are with their environments, which would be
computed again at each turn otherwise. Where nearly all of an episode passes in its environment,
they do not fit whatever is done, and to compute them again costs little. `bench/concurrency.py`
compares with all fixed numbers. An episode that waits for its environment is no work for the
engine, so it makes room for others.

It is deterministic in its readings, and holds no clock, task or connection.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

_FIRST = 64
"""First number for each engine."""
_LEAST = 4
_FEWEST_READINGS = 3
_HELD = 0.55
"""Share of the key-value cache for running requests."""
_HELD_ALONE = 0.88
"""Share of the cache where no context waits outside the engine."""
_TOO_MUCH = 0.08
"""Excess over that share that is too much."""
_REMEMBERED = 0.98
"""A context's size that was seen counts so much a round later."""
_QUEUED = 0.2
"""Requests that wait for each that runs: more is a queue."""
_PREEMPTED = 0.05
"""Preemptions a turn."""
_DOUBLED, _FASTEST, _SLOWEST = 4.0, 2.0, 1.01
"""Growth while episodes are renewed once, at first and later; and the least in a round. Who came in
as many rounds ago as an episode has turns shows what the number does."""
_NEAR = 0.9
"""Share of the number at which the engine was full, from which growth is slow."""
_FORGOTTEN = 1.01
"""Growth of that factor in each round."""
_COMPARED = 1.5
"""Factor in flight that must make more work for the engine."""
_FEW = 4.0
"""Requests more in the engine: where fewer are expected, chance is as likely."""
_DOUBTS = 3
"""Rounds in a row in which environments seem slow: one may be chance."""
_FIRST_PAUSE, _LONGEST_PAUSE = 4, 32
"""Rounds until slow environments are tried again; twice as many each time that they are slow."""
_SHORT_OF_MEMORY, _OUT_OF_MEMORY = 0.15, 0.08
"""Share of the machine's memory that is free: no more, and fewer."""


class Why(StrEnum):
    """The reason for a change of the number."""

    START = "the start"
    FIXED = "set by rollout.in_flight"
    LEARNER = "the learner can use no more"
    YOUNG = "episode length not known yet"
    ROOM = "the engine has room"
    BUSY = "the engine is busy"
    QUEUE = "requests queue in the engine"
    PREEMPTIONS = "the engine preempts"
    CACHE = "the key-value cache is full"
    MOST = "no more environments may be open"
    STALE = "more would be stale when they are learned"
    ENVIRONMENTS = "environments are slow"
    MEMORY = "memory is short"
    ENGINES = "the number of engines that answer changed"


@dataclass(frozen=True, slots=True)
class Reading:
    """The metrics of one moment; turns, episodes and preemptions are since some start."""

    in_flight: int
    wanted: int
    """Episodes that wait for a place."""
    engines: int
    """Engines that answered; running, waiting, the cache and preemptions are sums over them."""
    running: float
    waiting: float
    kv_usage: float
    """Share of the key-value cache that running requests hold."""
    turns: float
    episodes: float
    """Episodes that ended."""
    preemptions: float
    contexts: float = 0.0
    """Contexts of full length that fit into the key-value cache; 0: not known."""
    memory_free: float = 1.0
    """Share of this machine's memory."""


@dataclass(frozen=True, slots=True)
class _Round:
    """The means of some readings."""

    in_flight: float
    wanted: float
    running: float
    waiting: float
    held: float
    """Share of the key-value cache."""
    preempted: float
    """Preemptions a turn."""
    turns: float
    """Turns in this round."""
    episodes: float
    """Episodes since the start."""
    memory_free: float

    @classmethod
    def of(cls, readings: Sequence[Reading]) -> _Round:
        first, last = readings[0], readings[-1]
        return cls(
            fmean(reading.in_flight for reading in readings),
            fmean(reading.wanted for reading in readings),
            fmean(reading.running for reading in readings),
            fmean(reading.waiting for reading in readings),
            fmean(reading.kv_usage for reading in readings),
            (last.preemptions - first.preemptions) / max(1.0, last.turns - first.turns),
            last.turns - first.turns,
            last.episodes,
            last.memory_free,
        )

    @property
    def load(self) -> float:
        """Requests in the engine."""
        return self.running + self.waiting

    @property
    def may_hold(self) -> float:
        """Share of the cache for running requests: the others' contexts have the rest."""
        return max(_HELD, _HELD_ALONE * self.load / max(1.0, self.in_flight))


class Concurrency:
    """The number of episodes that may be in flight, and why it is what it is."""

    def __init__(self, most: int) -> None:
        """`most`: what environments allow; it may change."""
        self.most = most
        self._limit = float(_LEAST)
        self.reason = Why.START
        self._engines = 0
        self._first = 0.0
        """The number to begin with; while fewer episodes have ended, nobody knows how long their
        contexts become."""
        self._context = 0.0
        """Share of the cache that a request's context takes, of those seen the largest."""
        self._readings: list[Reading] = []
        self._turns = 0.0
        """Turns in all rounds."""
        self._environments = _Environments()
        self._doubles = True
        """Whether it still doubles: until something is full for the first time."""
        self._full_at = float("inf")
        """Number in flight at which the engine was last full."""
        self._is_full = False
        self._forgotten = 1.0
        """Factor by which that number grows in a round, more and more."""

    @property
    def limit(self) -> int:
        return min(int(self._limit), self.most)

    def read(self, reading: Reading) -> int:
        """Take a reading; the number from now on."""
        if reading.engines and reading.engines != self._engines:
            self._take_engines(reading)
            return self.limit
        began_again = self._readings and reading.turns < self._readings[0].turns
        if began_again or reading.in_flight > 1.05 * self.limit + 1:
            self._readings = []  # those that are too many leave first
        self._readings.append(reading)
        turns = reading.turns - self._readings[0].turns
        if len(self._readings) >= _FEWEST_READINGS and turns >= max(1, reading.in_flight):
            self._decide(_Round.of(self._readings))
        return self.limit

    def _take_engines(self, reading: Reading) -> None:
        """Begin, or continue with another number of engines."""
        before, self._engines = self._engines, reading.engines
        self._environments.begin_again()
        if before:
            return self._set(self._limit * reading.engines / before, Why.ENGINES)
        self._first = float(_FIRST * reading.engines)
        if reading.contexts:
            self._first = min(self._first, reading.contexts)
        self._set(self._first, Why.START)

    def _decide(self, now: _Round) -> None:
        self._forgotten *= _FORGOTTEN
        self._full_at *= self._forgotten
        self._turns += now.turns
        self._context = max(self._context * _REMEMBERED, now.held / max(1.0, now.running))
        full = _full(now)
        if full is not None:
            return self._shrink(now, full)
        self._is_full = False
        if now.wanted < 1:
            self._set(self._limit, Why.LEARNER)
        elif self._environments.are_slow(now):
            self._doubles &= math.isinf(self._environments.enough)
            self._set(min(self._limit, self._environments.enough), Why.ENVIRONMENTS)
        elif self._becomes(now) >= now.may_hold or now.waiting > 1 + _QUEUED / 2 * now.running:
            self._set(self._limit, Why.BUSY)
        elif now.memory_free < _SHORT_OF_MEMORY:
            self._set(self._limit, Why.MEMORY)
        elif now.episodes < self._first:
            self._set(self._limit, Why.YOUNG)
        else:
            self._grow(now)

    def _shrink(self, now: _Round, full: Why) -> None:
        """Reduce by those that are too many in the engine, wherever the others are."""
        first = self._full_at if self._is_full else now.in_flight
        self._full_at = (first + now.in_flight) / 2
        self._is_full = True
        self._forgotten = 1.0
        self._doubles = False
        self._environments.begin_again()
        runs = now.running * min(1.0, now.may_hold / max(1e-9, now.held))
        too_many = now.in_flight / 10 if full is Why.MEMORY else max(1.0, now.load - runs)
        self._set(now.in_flight - too_many, full)

    def _grow(self, now: _Round) -> None:
        if self._limit >= self.most:
            return self._set(self._limit, Why.MOST)
        grown = self._limit * self._growth(now)
        if grown > _NEAR * self._full_at:
            grown = min(grown, max(self._limit * _SLOWEST, _NEAR * self._full_at))
        self._set(grown, Why.ROOM)

    def _growth(self, now: _Round) -> float:
        becomes = max(1e-9, self._becomes(now))
        turns = max(1.0, self._turns / max(1.0, now.episodes))  # of an episode
        if self._doubles and becomes * 1.25 < now.may_hold:
            return min(math.pow(_DOUBLED, 1 / turns), 2.0, now.may_hold / becomes)
        self._doubles = False
        room = (now.may_hold - becomes) / now.may_hold
        return max(_SLOWEST, min(math.pow(_FASTEST, 1 / turns), 1 + room / 2))

    def _becomes(self, now: _Round) -> float:
        """Share of the cache that is held once contexts are as long as some were."""
        return self._context * now.running

    def _set(self, limit: float, reason: Why) -> None:
        self._limit = max(float(_LEAST * self._engines), limit)
        self.reason = reason
        self._readings = []


class _Environments:
    """Whether more of them make more work for the engine, or only wait for each other."""

    def __init__(self) -> None:
        self.enough = math.inf
        """Number in flight, once environments were found to be slow."""
        self._compared: _Round | None = None
        """Round in which more in flight last made more work."""
        self._doubts = 0
        """Rounds in a row in which they seemed slow."""
        self._pause = _FIRST_PAUSE
        self._held_back = 0
        """Rounds that are left until more of them are tried again."""

    def begin_again(self) -> None:
        """Something else has changed."""
        self._compared = None

    def are_slow(self, now: _Round) -> bool:
        """Whether there should be no more of them in the next round."""
        if self._held_back:
            self._held_back -= 1
            return True
        self.enough = math.inf
        if self._compared is None or now.in_flight < self._compared.in_flight:
            self._compared = now
        growth = now.in_flight / max(1.0, self._compared.in_flight)
        expected = self._compared.load * (growth - 1)
        if growth < _COMPARED or expected < _FEW:
            return False
        if now.load >= self._compared.load + expected / 2:
            self._doubts = 0
            self._pause = _FIRST_PAUSE
            self._compared = now
            return False
        self._doubts += 1
        if self._doubts == _DOUBTS:
            self._hold_back(self._compared)
        return True

    def _hold_back(self, compared: _Round) -> None:
        self.enough = compared.in_flight * 1.1
        self._compared = None
        self._doubts = 0
        self._held_back = self._pause
        self._pause = min(_LONGEST_PAUSE, 2 * self._pause)


def _full(now: _Round) -> Why | None:
    """The resource that is short for all that are in flight; None when nothing is."""
    if now.memory_free < _OUT_OF_MEMORY:
        return Why.MEMORY
    if now.preempted > _PREEMPTED:
        return Why.PREEMPTIONS
    if now.waiting > 2 + _QUEUED * now.running:
        return Why.QUEUE
    return Why.CACHE if now.held > now.may_hold + _TOO_MUCH else None
