"""95 % intervals of what was measured over tasks, and of paired differences over the same tasks.

Shares of solved tasks have closed forms (`wilson` in `metrics.py`; Agresti and Min of pairs), which
hold where all or none were solved. Means of other numbers, such as pass@k, are resampled: tasks are
drawn with replacement, 10,000 times, from a fixed seed, so that the same numbers give the same
interval. Tasks count as independent; episodes of one task are not counted twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from clawrl_gym.core.metrics import wilson

_Z = 1.959964
_DRAWS = 10_000
_CHUNK = 2_000_000
"""Numbers that are drawn at a time, for memory."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its 95 % interval."""

    value: float
    low: float
    high: float
    n: int
    """Tasks."""

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out 0: for differences."""
        return not self.low <= 0.0 <= self.high


def share_of(solved: Sequence[bool]) -> Estimate:
    """The share of solved tasks, with Wilson's interval."""
    n, count = len(solved), sum(solved)
    low, high = wilson(count, n)
    return Estimate(count / n if n else math.nan, low, high, n)


def mean_of(values: Sequence[float]) -> Estimate:
    """The mean over tasks, with the percentiles of resampled tasks.

    Where all tasks have the value 0, or all 1, resampling sees no spread: then Wilson's.
    """
    n = len(values)
    if n and len(set(values)) == 1 and values[0] in (0.0, 1.0):
        return share_of([value == 1.0 for value in values])
    low, high = _resampled(values)
    return Estimate(sum(values) / n if n else math.nan, low, high, n)


def difference_of_shares(before: Sequence[bool], after: Sequence[bool]) -> Estimate:
    """By how much more of the same tasks were solved; the interval of Agresti and Min (2005).

    Half a task is added to each of the four ways in which a pair can end, which keeps the interval
    honest where few or no tasks changed.
    """
    pairs = list(zip(before, after, strict=True))
    n = len(pairs)
    if not n:
        return Estimate(math.nan, -1.0, 1.0, 0)
    won, lost = pairs.count((False, True)), pairs.count((True, False))
    whole, gain, changed = n + 2.0, won - lost, won + lost + 1.0
    middle = gain / whole
    spread = _Z * math.sqrt(changed - gain * gain / whole) / whole
    return Estimate(gain / n, max(-1.0, middle - spread), min(1.0, middle + spread), n)


def difference_of_means(before: Sequence[float], after: Sequence[float]) -> Estimate:
    """By how much the mean over the same tasks is higher: the mean of each task's own difference.

    Where no task differs resampling sees no spread; then as if one task had gained, and one lost,
    as much as a task can: `difference_of_shares` of no change.
    """
    differences = [b - a for a, b in zip(before, after, strict=True)]
    n = len(differences)
    if not any(differences):
        return difference_of_shares([False] * n, [False] * n)
    low, high = _resampled(differences)
    return Estimate(sum(differences) / n, low, high, n)


def _resampled(values: Sequence[float]) -> tuple[float, float]:
    """The 2.5th and the 97.5th percentile of the means of tasks drawn with replacement."""
    import numpy as np

    n = len(values)
    if not n:
        return -math.inf, math.inf
    random, numbers = np.random.default_rng(0), np.asarray(values, dtype=float)
    rows = max(1, _CHUNK // n)
    means = [
        numbers[random.integers(0, n, (min(rows, _DRAWS - first), n))].mean(axis=1)
        for first in range(0, _DRAWS, rows)
    ]
    low, high = np.percentile(np.concatenate(means), [2.5, 97.5])
    return float(low), float(high)
