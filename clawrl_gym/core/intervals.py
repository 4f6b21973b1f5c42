"""95 % intervals of measurements: shares and means over tasks, and paired differences.

A share of solved tasks has Wilson's interval (`wilson` in `metrics.py`). The mean of other numbers,
such as pass@k, is resampled: tasks are drawn with replacement, 10,000 times, from a fixed seed, so
that the same numbers give the same interval.

A paired difference varies over seeds and over tasks. The mean over S seeds and T tasks varies
because other tasks might have been drawn, and because training with other seeds ends elsewhere.
With MS the mean squares of a two-way table (seeds, tasks, and the rest),

    half width² = t_T² MS_tasks / (S T)  +  t_{S-1}² max(0, MS_seeds - MS_rest) / (S T)

the first term the spread between tasks, the second what seeds vary beyond that; t are Student's
quantiles, which are wide for few seeds. Two imagined tasks, half of one better and half of one
worse, enter the spread between tasks (Agresti and Min 2005): where no task changed, the interval is
still as wide as so few tasks allow. One seed says nothing of others: the interval is over tasks
alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

from clawrl_gym.core.metrics import wilson

_Z = NormalDist().inv_cdf(0.975)
_T_975 = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
)  # fmt: skip
"""Student's t at 0.975 for 1, 2, ... degrees of freedom. Neither numpy nor the standard library has
its quantiles, and scipy's 100 MB for one function would be a dependency of its own."""
_DRAWS = 10_000
_CHUNK = 2_000_000
"""Numbers drawn at a time, to bound memory."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its 95 % interval."""

    value: float
    low: float
    high: float
    n: int
    """Number of tasks."""


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


def reward_of(rewards: Sequence[float]) -> Estimate:
    """The mean reward over tasks, with the percentiles of resampled tasks. Rewards that are all the
    same, on a scale that nobody knows, show no spread: their interval is not a number."""
    if len(set(rewards)) > 1:
        return Estimate(fmean(rewards), *_resampled(rewards), len(rewards))
    return Estimate(rewards[0] if rewards else math.nan, math.nan, math.nan, len(rewards))


def interval_values(name: str, estimate: Estimate) -> dict[str, float]:
    """An estimate as metrics: `name`, `name_low`, `name_high`; unknown values are left out."""
    values = {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    return {key: value for key, value in values.items() if math.isfinite(value)}


@dataclass(frozen=True, slots=True)
class Difference:
    """A paired difference on the same tasks: the first less the second."""

    mean: float
    low: float
    high: float
    seeds: int
    tasks: int

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


def reward_difference(before: Mapping[str, float], after: Mapping[str, float]) -> Difference | None:
    """The paired difference of mean rewards over the tasks that both have; None without one. The
    scale of the rewards is how far apart they are."""
    both = [task for task in before if task in after]
    rewards = [own[task] for own in (before, after) for task in both]
    scale = (max(rewards) - min(rewards) if rewards else 0.0) or 1.0
    scaled = mean_difference([[(after[task] - before[task]) / scale for task in both]])
    if scaled is None:
        return None
    mean, low, high = (scale * value for value in (scaled.mean, scaled.low, scaled.high))
    return Difference(mean, low, high, scaled.seeds, scaled.tasks)


def mean_difference(differences_ST: Sequence[Sequence[float]]) -> Difference | None:
    """The mean difference of a table of differences between -1 and 1, a row a seed and a column a
    task; None for an empty one."""
    rows = [list(row) for row in differences_ST if row]
    if not rows:
        return None
    seeds, tasks = len(rows), len(rows[0])
    by_seed = [fmean(row) for row in rows]
    by_task = [fmean(column) for column in zip(*rows, strict=True)]
    mean = fmean(by_seed)
    task_squares = seeds * (_squares(by_task, mean) + 1) / (tasks + 1)
    variance = student_t(tasks) ** 2 * task_squares / (seeds * tasks)
    if seeds > 1:
        rest = [
            [value - of_seed - of_task + mean for value, of_task in zip(row, by_task, strict=True)]
            for row, of_seed in zip(rows, by_seed, strict=True)
        ]
        degrees = max(1, (seeds - 1) * (tasks - 1))
        rest_squares = sum(_squares(row, 0.0) for row in rest) / degrees
        seed_squares = tasks * _squares(by_seed, mean) / (seeds - 1)
        beyond = max(0.0, seed_squares - rest_squares)
        variance += student_t(seeds - 1) ** 2 * beyond / (seeds * tasks)
    half = math.sqrt(variance)
    return Difference(mean, mean - half, mean + half, seeds, tasks)


def student_t(degrees: int) -> float:
    """Student's t at 0.975."""
    if degrees <= len(_T_975):
        return _T_975[degrees - 1]
    second = (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / (96 * degrees**2)
    return _Z + (_Z**3 + _Z) / (4 * degrees) + second


def _squares(values: Sequence[float], mean: float) -> float:
    return sum((value - mean) ** 2 for value in values)


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
