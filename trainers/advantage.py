"""Advantages as plain arithmetic on rewards: within a group, or against a running baseline.

No tensors, no samples: the algorithms spread the numbers over tokens. What verdicts on single turns
add to the outcome of their episode:

    process_weight * (v - mean) / std      over the verdicts on the n-th turns of the group

The standardisation is the outcome's, so both are on one scale and a turn is compared with its
fellows at the same step. A verdict without fellows is compared with the running mean of all
verdicts; an abstention adds nothing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from clawrl_gym.trainers.algorithm import Verdicts

if TYPE_CHECKING:
    from clawrl_gym.dialogue.merging import Segment

EPSILON = 1e-6
"""Added to a group's standard deviation."""
SAME = 1e-8
"""Rewards of a group that differ by no more than this count as equal."""


def is_constant(rewards_G: Sequence[float]) -> bool:
    """True when the rewards do not tell the episodes apart, so that nothing can be learned."""
    return not rewards_G or max(rewards_G) - min(rewards_G) <= SAME


def group_advantages(
    rewards_G: Sequence[float], normalize_std: bool, leave_one_out: bool = False
) -> list[float]:
    """A_i = r_i - mean(r), divided by (std(r) + 1e-6) when `normalize_std` (GRPO; else Dr. GRPO).

    std is the unbiased one (divisor G - 1). With `leave_one_out` the mean is that of the others,
    which is n / (n - 1) times as far away (RLOO, without std). A constant group, of one episode
    too, gets zeros.
    """
    if not all(math.isfinite(reward) for reward in rewards_G):
        raise ValueError(f"got rewards {list(rewards_G)!r}, expected finite numbers")
    if is_constant(rewards_G):
        return [0.0] * len(rewards_G)
    peers = len(rewards_G) - 1
    mean = math.fsum(rewards_G) / len(rewards_G)
    centred_G = [reward - mean for reward in rewards_G]
    std = math.sqrt(math.fsum(c * c for c in centred_G) / peers)
    scale = len(rewards_G) / peers if leave_one_out else 1.0
    if normalize_std:
        scale /= std + EPSILON
    return [scale * centred for centred in centred_G]


MAX_BASELINE = 0.95
"""A baseline is never farther from 0, so that a verdict of +1 or -1 always has an advantage."""


class RunningBaseline:
    """What reward to expect of a turn that has no group: by source, b <- d b + (1 - d) r, b_0 = 0.

    A judge and a person who presses thumbs have baselines of their own: one is mostly content, the
    other mostly speaks up to complain.
    """

    def __init__(self, decay: float) -> None:
        self._decay = decay
        self._means: dict[str, float] = {}

    def of(self, source: str) -> float:
        """The baseline of a source as it is now."""
        mean = self._means.get(source, 0.0)
        return min(max(mean, -MAX_BASELINE), MAX_BASELINE)

    def add(self, source: str, reward: float) -> None:
        """A reward came, and has been compared already."""
        mean = self._means.get(source, 0.0)
        self._means[source] = self._decay * mean + (1 - self._decay) * reward


_SOURCE = "process"
Added = dict[int, float]
"""What is added to the advantage of an episode's turns, by `Turn.index`."""


class ProcessTerms:
    """Compares verdicts within groups."""

    def __init__(self, weight: float, normalize_std: bool, baseline_decay: float) -> None:
        self._weight = weight
        self._normalize_std = normalize_std
        self._baseline = RunningBaseline(baseline_decay)

    def of(self, segments_G: list[list[Segment]], verdicts_G: Sequence[Verdicts]) -> list[Added]:
        """The terms of each episode of a group; a step is a place among an episode's main turns."""
        terms_G: list[Added] = [{} for _ in segments_G]
        if not self._weight:
            return terms_G
        steps: dict[int, list[tuple[Added, int, float]]] = defaultdict(list)
        for terms, segments, verdicts in zip(terms_G, segments_G, verdicts_G, strict=True):
            turns = sorted(turn for segment in segments for turn in segment.turn_indices)
            for step, turn in enumerate(turns):
                verdict = verdicts.get(turn)
                if verdict is not None and verdict.reward is not None:
                    steps[step].append((terms, turn, verdict.reward))
        for _, fellows in sorted(steps.items()):
            compared = self._compare([value for _, _, value in fellows])
            for (terms, turn, _), term in zip(fellows, compared, strict=True):
                terms[turn] = self._weight * term
        return terms_G

    def _compare(self, values: list[float]) -> list[float]:
        if len(values) > 1:
            compared = group_advantages(values, self._normalize_std)
        else:
            compared = [values[0] - self._baseline.of(_SOURCE)]
        for value in values:
            self._baseline.add(_SOURCE, value)
        return compared
