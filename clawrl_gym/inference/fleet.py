"""Fleet: several policies with the same weights. A session stays on one, which has its prefix.

A policy that failed is left out for a growing pause; its sessions go elsewhere and stay there.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from clawrl_gym.core.errors import PolicyError

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 15.0
_FORGIVEN_S = 60.0
"""After so long without a failure the next one is a first one."""
_READING_S = 1.0
"""After so long, policies that have not told their figures are not waited for where others have: a
stopped process would keep whoever asks."""
_REMEMBERED = 100_000


class HasMetrics(Protocol):
    """The part of a policy that a fleet needs."""

    async def metrics(self) -> dict[str, float]: ...


P = TypeVar("P", bound=HasMetrics)


class Fleet(Generic[P]):
    """Assigns sessions to policies."""

    def __init__(
        self,
        policies: Sequence[P],
        *,
        remembered: int = _REMEMBERED,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`remembered`: sessions whose policy is known; the one unused for longest is forgotten."""
        if not policies:
            raise ValueError("got no policies, expected at least one")
        self._policies = tuple(policies)
        self._remembered = remembered
        self._clock = clock
        self._homes: OrderedDict[str, int] = OrderedDict()
        self._sessions: Counter[int] = Counter()
        self._failures: Counter[int] = Counter()
        self._back_s = [0.0] * len(self._policies)

    def of(self, session_id: str) -> P:
        """The session's policy; another one while that is left out. Never none: when all are left
        out, it is the one that is tried again first."""
        home = self._homes.get(session_id)
        if home is None or (self._left_out(home) and self.alive > 0):
            home = self._settle(session_id, home)
        self._homes.move_to_end(session_id)
        return self._policies[home]

    def failed(self, policy: P) -> None:
        """Leave a policy out for a while. Failures during that while make it no longer."""
        at, now_s = self._position(policy), self._clock()
        if self._left_out(at):
            return
        if now_s - self._back_s[at] > _FORGIVEN_S:
            self._failures[at] = 0
        pause_s = min(_FIRST_PAUSE_S * 2.0 ** self._failures[at], _LONGEST_PAUSE_S)
        self._failures[at] += 1
        self._back_s[at] = now_s + pause_s

    def forget(self, session_id: str) -> None:
        """The session has ended."""
        home = self._homes.pop(session_id, None)
        if home is not None:
            self._sessions[home] -= 1

    @property
    def policies(self) -> tuple[P, ...]:
        return self._policies

    @property
    def alive(self) -> int:
        """Policies that are not left out."""
        return sum(not self._left_out(at) for at in range(len(self._policies)))

    async def metrics(self) -> dict[str, float]:
        """Sums over those that answer (PolicyError when none does); the mean of cache usage; and
        how many `engines` answered."""
        available = [p for at, p in enumerate(self._policies) if not self._left_out(at)]
        answers = await _readings(available or self._policies)
        measured = [answer for answer in answers if isinstance(answer, dict)]
        for answer in answers:
            if isinstance(answer, BaseException) and not (
                measured and isinstance(answer, PolicyError)
            ):
                raise answer
        total = {name: sum(answer[name] for answer in measured) for name in measured[0]}
        means = {k: v / len(measured) if k == "kv_usage" else v for k, v in total.items()}
        return means | {"engines": float(len(measured))}

    def _settle(self, session_id: str, old: int | None) -> int:
        """A home for the session: the policy with the fewest sessions."""
        at = range(len(self._policies))
        healthy = [i for i in at if not self._left_out(i)] or [
            min(at, key=self._back_s.__getitem__)
        ]
        home = min(healthy, key=self._sessions.__getitem__)
        if old is not None:
            self._sessions[old] -= 1
        self._homes[session_id] = home
        self._sessions[home] += 1
        if len(self._homes) > self._remembered:
            _, left = self._homes.popitem(last=False)
            self._sessions[left] -= 1
        return home

    def _left_out(self, at: int) -> bool:
        return self._clock() < self._back_s[at]

    def _position(self, policy: P) -> int:
        return next(at for at, member in enumerate(self._policies) if member is policy)


async def _readings(policies: Iterable[HasMetrics]) -> list[dict[str, float] | BaseException]:
    """Metrics of those that answer soon; when none has, of the first that does."""
    asking = [asyncio.ensure_future(policy.metrics()) for policy in policies]
    try:
        _, unresponsive = await asyncio.wait(asking, timeout=_READING_S)
        while unresponsive and not any(_has_answered(one) for one in asking):
            _, unresponsive = await asyncio.wait(unresponsive, return_when=asyncio.FIRST_COMPLETED)
        return [one.exception() or one.result() for one in asking if one.done()]
    finally:
        for one in asking:
            one.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


def _has_answered(asking: asyncio.Future[dict[str, float]]) -> bool:
    return asking.done() and asking.exception() is None
