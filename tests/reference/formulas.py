"""The losses and advantages again, as numpy sums over padded rows: slow, plain, in float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]

LP: Rows = np.array([[-0.5, -1.2, -0.1, -2.0], [-0.9, -0.3, -1.6, -0.7]])
OLD: Rows = np.array([[-0.7, -1.0, -0.12, -1.1], [-1.0, -0.3, -2.6, -0.75]])
MU: Rows = np.array([[-0.65, -1.1, -0.1, -1.9], [-1.1, -0.28, -2.5, -0.7]])
REF: Rows = np.array([[-0.6, -1.3, -0.15, -1.5], [-0.8, -0.5, -1.4, -0.9]])
MASK: NDArray[np.bool_] = np.array([[1, 1, 1, 1], [1, 1, 1, 0]], dtype=bool)
ADVANTAGES: Rows = np.array([[1.0] * 4, [-1.0] * 4])
"""One fixed case: two rows of four tokens, the last token of the second row masked."""


def mean_loss(
    clip_low: float,
    clip_high: float,
    cap: float,
    kl_coef: float = 0.0,
    rows: Sequence[int] = (0, 1),
) -> float:
    """The whole loss on the fixed case, token by token; rows that are left out still count."""
    total, count = 0.0, 0
    for row, column in zip(*np.nonzero(MASK), strict=True):
        at = (row, column)
        if row not in rows:
            count += 1
            continue
        ratio = np.exp(LP[at] - OLD[at])
        bounded = min(max(ratio, 1 - clip_low), 1 + clip_high)
        surrogate = -min(ratio * ADVANTAGES[at], bounded * ADVANTAGES[at])
        weight = min(np.exp(OLD[at] - MU[at]), cap)
        away = REF[at] - LP[at]
        total += surrogate * weight + kl_coef * (np.exp(away) - 1 - away)
        count += 1
    return float(total / count)


def corrected_kl(cap: float) -> float:
    """The KL term alone, each token weighed by the ratio of the learner to the behaviour policy."""
    total = 0.0
    for at in zip(*np.nonzero(MASK), strict=True):
        away = REF[at] - LP[at]
        weight = np.exp(LP[at] - OLD[at]) * min(np.exp(OLD[at] - MU[at]), cap)
        total += weight * (np.exp(away) - 1 - away)
    return float(total / MASK.sum())
