"""Share of a batch that one user may have where all share one set of weights.

A batch obeys it in two measures at once: its samples, and their influence, the sum of the weights
that the loss puts on their tokens (so that one long reply is not many short ones). Every sample of
a user's sessions counts, whoever judged it: the judge reads the user's own words. What does not fit
waits for others' samples; nothing of anybody is scaled.

The bound is `share`, or an equal part where fewer people may use the service than that allows for.
The owner and whom the owner trusts are not bounded.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from clawrl_gym.config import LiveConfig
from clawrl_gym.core.ownership import OWNER
from clawrl_gym.core.types import Sample

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Candidate:
    """Samples that go into a batch together or not at all."""

    user: str
    samples: int
    influence: float


@dataclass(frozen=True, slots=True)
class UserShare:
    """The bound of one service."""

    share: float
    people: Callable[[], int]
    """Returns how many may use it, the owner included."""
    trusted: frozenset[str] = frozenset()
    """Users without a bound."""

    @classmethod
    def of(cls, config: LiveConfig, people: Callable[[], int]) -> UserShare | None:
        """The bound of a configuration; None: nobody is bounded."""
        if config.user_share is None:
            return None
        return cls(config.user_share, people, frozenset(config.trusted_users))

    @property
    def bound(self) -> float:
        """The largest part of a batch that one bounded user may have."""
        return max(self.share, 1 / max(1, self.people()))

    @property
    def smallest_batch(self) -> int:
        """Smallest number of samples of a batch in which everybody may have one."""
        return math.ceil(1 / self.bound - _ROUNDING)

    @property
    def has_others(self) -> bool:
        """Whether anybody but the owner may use it."""
        return self.people() > 1

    def is_bounded(self, user: str) -> bool:
        return user != OWNER and user not in self.trusted

    def fitting(self, candidates: Sequence[Candidate], wanted: int | None) -> list[int]:
        """Indices of the candidates, the first first, that make a batch of at least `wanted`
        samples; empty where they do not. `wanted` None: as many as fit."""
        left_out: set[int] = set()
        while True:
            picked = self._by_count(candidates, wanted, left_out)
            heaviest = self._too_heavy(candidates, picked)
            if heaviest is None:
                return picked
            left_out.add(heaviest)

    def _by_count(
        self, candidates: Sequence[Candidate], wanted: int | None, left_out: set[int]
    ) -> list[int]:
        if wanted is not None:
            picked = self._capped(candidates, self._most(wanted), wanted, left_out)
            total = sum(candidates[at].samples for at in picked)
            return picked if total >= wanted else []
        total = sum(one.samples for at, one in enumerate(candidates) if at not in left_out)
        while True:
            picked = self._capped(candidates, self._most(total), math.inf, left_out)
            fits = sum(candidates[at].samples for at in picked)
            if fits == total:
                return picked
            total = fits

    def _most(self, samples: int) -> int:
        """Most samples of one bounded user in a batch of this size."""
        return math.floor(self.bound * samples + _ROUNDING)

    def _capped(
        self, candidates: Sequence[Candidate], most: int, wanted: float, left_out: set[int]
    ) -> list[int]:
        """Candidates in order until there are enough, at most this many samples of a user."""
        picked: list[int] = []
        of_user: Counter[str] = Counter()
        total = 0
        for at, one in enumerate(candidates):
            if total >= wanted:
                break
            if at in left_out:
                continue
            if self.is_bounded(one.user) and of_user[one.user] + one.samples > most:
                continue
            of_user[one.user] += one.samples
            total += one.samples
            picked.append(at)
        return picked

    def _too_heavy(self, candidates: Sequence[Candidate], picked: Sequence[int]) -> int | None:
        """The most influential candidate of a user whose influence is above the bound."""
        total = sum(candidates[at].influence for at in picked)
        of_user: dict[str, float] = {}
        for at in picked:
            one = candidates[at]
            of_user[one.user] = of_user.get(one.user, 0.0) + one.influence
        most = self.bound * total * (1 + _ROUNDING)
        above = {u for u, influence in of_user.items() if self.is_bounded(u) and influence > most}
        return max(
            (at for at in picked if candidates[at].user in above),
            key=lambda at: (candidates[at].influence, at),
            default=None,
        )


def influence_of(sample: Sample) -> float:
    """Influence of a sample: the weight of its tokens in the loss, all terms together."""
    return sum(map(abs, sample.advantages_T)) + sum(map(abs, sample.distill_T))
