"""Advantages as plain arithmetic on rewards: within a group, or against a running baseline.

No tensors, no samples: the algorithms spread the numbers over tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

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
    others = len(rewards_G) - 1
    mean = math.fsum(rewards_G) / len(rewards_G)
    centred_G = [reward - mean for reward in rewards_G]
    std = math.sqrt(math.fsum(c * c for c in centred_G) / others)
    scale = len(rewards_G) / others if leave_one_out else 1.0
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
