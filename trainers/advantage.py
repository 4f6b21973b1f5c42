"""Group-relative advantages as plain arithmetic on rewards.

No tensors, no samples: `grpo.py` spreads the numbers over tokens.
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


def group_advantages(rewards_G: Sequence[float], normalize_std: bool) -> list[float]:
    """A_i = r_i - mean(r), divided by (std(r) + 1e-6) when `normalize_std` (GRPO; else Dr. GRPO).

    std is the unbiased one (divisor G - 1). A constant group, of one episode too, gets zeros.
    """
    if not all(math.isfinite(reward) for reward in rewards_G):
        raise ValueError(f"got rewards {list(rewards_G)!r}, expected finite numbers")
    if is_constant(rewards_G):
        return [0.0] * len(rewards_G)
    mean = math.fsum(rewards_G) / len(rewards_G)
    centred_G = [reward - mean for reward in rewards_G]
    if not normalize_std:
        return centred_G
    std = math.sqrt(math.fsum(c * c for c in centred_G) / (len(centred_G) - 1))
    return [centred / (std + EPSILON) for centred in centred_G]
