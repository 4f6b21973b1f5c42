"""Complaints about new versions: whether people are less content than with the ones before.

Each turn counts once, by its last verdict, as a complaint (-1) or none; abstentions are none of
both. The share of complaints about versions after the last good one is compared with that of all up
to it (Newcombe's interval of a difference of shares). Worse is what is worse by more than a margin
at the low end of the interval, with all verdicts and also without those of any one bounded user:
nobody takes a version from others by complaining alone. On each side a user has at most the part
that `UserShare` allows: nobody hides others' complaints either. What has stood the test for enough
turns is the last good version from then on.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from clawrl_gym.core.metrics import wilson
from clawrl_gym.trainers.user_share import Candidate, UserShare

_FEWEST = 20
"""Turns on each side, before anything is compared."""
_FEWEST_BEFORE = 40
"""Turns of the first good versions before newer ones are on trial."""
_ENOUGH = 60
"""Turns of newer versions after which these are good unless they are worse."""
_REMEMBERED = 250
"""The newest turns of each user that are kept: one who talks much pushes nobody else's out."""
RESTORED = 20_000
"""The newest verdicts that are read again at a start."""


class Complaint(NamedTuple):
    """A turn that was judged."""

    user: str
    version: int
    is_complaint: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """Shares of complaints about older and newer versions."""

    before: float
    after: float
    low: float
    """Low end of the 95 % interval of the difference after - before."""
    high: float
    turns_before: int
    turns_after: int


class Complaints:
    """Complaints about one line of weights."""

    def __init__(
        self,
        margin: float | None,
        good: int = 0,
        share: UserShare | None = None,
    ) -> None:
        """`margin` None: nothing is ever worse. `good`: the version that serves now. `share`: the
        part of the verdicts that one user may have; None: any part."""
        self._margin = margin
        self.good = good
        """The newest version that is not on trial."""
        self._share = share
        self._of_turn: OrderedDict[int, Complaint] = OrderedDict()

    def add(self, turn_id: int, user: str, version: int, value: Literal[-1, 0, 1] | None) -> None:
        """Record a verdict on a turn; it replaces an earlier one."""
        if value is None:
            return
        self._of_turn.pop(turn_id, None)
        self._of_turn[turn_id] = Complaint(user, version, value < 0)
        own = [known for known, one in self._of_turn.items() if one.user == user]
        for oldest in own[:-_REMEMBERED]:
            del self._of_turn[oldest]

    def forget(self, user: str) -> None:
        """Drop the turns of a removed user."""
        gone = [turn_id for turn_id, one in self._of_turn.items() if one.user == user]
        for turn_id in gone:
            del self._of_turn[turn_id]

    def comparison(self) -> Comparison | None:
        """Comparison of all verdicts that count; None while there are too few turns."""
        return _compared(*self._sides())

    def is_worse(self) -> bool:
        """Whether newer versions get more complaints; ends their trial where it is over."""
        before, after = self._sides()
        if len(before) < _FEWEST_BEFORE:
            self._begin()
            before, after = self._sides()
        of_all = _compared(before, after)
        if self._margin is None or of_all is None:
            return False
        users = {one.user for one in [*before, *after]}
        bounded = [user for user in users if self._share and self._share.is_bounded(user)]
        without = [_compared(_without(user, before), _without(user, after)) for user in bounded]
        if all(one is not None and one.low > self._margin for one in [of_all, *without]):
            return True
        if of_all.turns_after >= _ENOUGH and of_all.low <= 0:
            self.good = max(one.version for one in self._of_turn.values())
        return False

    def _begin(self) -> None:
        """Take the first versions as good until there are enough turns to compare others with: a
        version may be replaced before that many of its turns are judged."""
        for version in sorted({one.version for one in self._of_turn.values()}):
            if version > self.good:
                self.good = version
                if len(self._sides()[0]) >= _FEWEST_BEFORE:
                    return

    def _sides(self) -> tuple[list[Complaint], list[Complaint]]:
        """Complaints that count about versions up to the last good one, and about newer ones."""
        judged = self._of_turn.values()
        return (
            self._fitting([one for one in judged if one.version <= self.good]),
            self._fitting([one for one in judged if one.version > self.good]),
        )

    def _fitting(self, complaints: list[Complaint]) -> list[Complaint]:
        """The newest of them in which nobody has too large a part."""
        if self._share is None:
            return complaints
        newest = complaints[::-1]
        candidates = [Candidate(one.user, 1, 1.0) for one in newest]
        return [newest[at] for at in self._share.fitting(candidates, None)]

    def returned(self, to: int, as_version: int) -> None:
        """The weights of `to` serve again as `as_version`; versions in between are no measure."""
        for turn_id, one in list(self._of_turn.items()):
            if to < one.version < as_version:
                del self._of_turn[turn_id]
        self.good = as_version


def shares(complaints: Iterable[Complaint]) -> tuple[int, int]:
    """Number of complaints, and number of turns."""
    flags = [one.is_complaint for one in complaints]
    return sum(flags), len(flags)


def _without(user: str, complaints: Iterable[Complaint]) -> list[Complaint]:
    return [one for one in complaints if one.user != user]


def _compared(before: Sequence[Complaint], after: Sequence[Complaint]) -> Comparison | None:
    """The comparison; None while there are too few turns on either side."""
    if min(len(before), len(after)) < _FEWEST:
        return None
    (old, n_old), (new, n_new) = shares(before), shares(after)
    p_old, p_new = old / n_old, new / n_new
    (low_old, high_old), (low_new, high_new) = wilson(old, n_old), wilson(new, n_new)
    difference = p_new - p_old
    low = difference - math.hypot(p_new - low_new, high_old - p_old)
    high = difference + math.hypot(high_new - p_new, p_old - low_old)
    return Comparison(p_old, p_new, low, high, n_old, n_new)
