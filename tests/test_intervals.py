"""95 % intervals, against numbers that were computed elsewhere."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest

from clawrl_gym.core.intervals import (
    difference_of_means,
    difference_of_shares,
    mean_of,
    share_of,
)


def test_a_share_has_wilsons_interval() -> None:
    # statsmodels.stats.proportion.proportion_confint(7, 20, method="wilson")
    estimate = share_of([True] * 7 + [False] * 13)
    assert (estimate.value, estimate.n) == (0.35, 20)
    assert (estimate.low, estimate.high) == (pytest.approx(0.18119, abs=1e-4),
                                             pytest.approx(0.56715, abs=1e-4))  # fmt: skip


def test_a_mean_has_about_the_interval_of_the_normal_distribution() -> None:
    values = [0.0, 0.25, 0.5, 0.75, 1.0] * 40
    estimate = mean_of(values)
    spread = NormalDist().inv_cdf(0.975) * math.sqrt(0.125 / 200)  # variance 0.125, 200 tasks
    assert estimate.value == 0.5
    assert estimate.low == pytest.approx(0.5 - spread, abs=0.003)
    assert estimate.high == pytest.approx(0.5 + spread, abs=0.003)
    assert mean_of(values) == estimate


@pytest.mark.parametrize(("value", "low", "high"), [(1.0, 0.7225, 1.0), (0.0, 0.0, 0.2775)])
def test_where_all_tasks_agree_the_interval_is_not_empty(
    value: float, low: float, high: float
) -> None:
    # Wilson of 10 of 10: 1 / (1 + z² / 10)
    estimate = mean_of([value] * 10)
    assert (estimate.low, estimate.high) == (pytest.approx(low, abs=1e-4),
                                             pytest.approx(high, abs=1e-4))  # fmt: skip


def test_a_difference_of_pairs_has_the_interval_of_agresti_and_min() -> None:
    # 100 tasks, 15 won, 3 lost: d = 12 / 102; sd = sqrt((19 - 144 / 102)) / 102 = 0.041117
    before = [False] * 15 + [True] * 3 + [True] * 40 + [False] * 42
    after = [True] * 15 + [False] * 3 + [True] * 40 + [False] * 42
    estimate = difference_of_shares(before, after)
    assert estimate.value == pytest.approx(0.12)
    assert estimate.low == pytest.approx(0.117647 - 1.959964 * 0.041117, abs=1e-4)
    assert estimate.high == pytest.approx(0.117647 + 1.959964 * 0.041117, abs=1e-4)
    assert estimate.is_clear


def test_no_change_on_few_tasks_is_no_proof_of_equality() -> None:
    same = [True, False] * 5
    estimate = difference_of_shares(same, same)
    assert estimate.value == 0.0
    assert estimate.low < -0.1
    assert estimate.high > 0.1
    assert not estimate.is_clear
    assert difference_of_means([0.5] * 10, [0.5] * 10) == estimate


def test_a_difference_of_means_is_over_each_tasks_own_difference() -> None:
    before = [0.1, 0.9] * 50
    after = [0.2, 1.0] * 49 + [0.3, 1.1]
    estimate = difference_of_means(before, after)
    assert estimate.value == pytest.approx(0.102)
    assert 0.09 < estimate.low <= estimate.value <= estimate.high < 0.12
    assert estimate.is_clear


def test_nothing_has_no_value_and_every_interval() -> None:
    for nothing in (share_of([]), mean_of([]), difference_of_shares([], [])):
        assert math.isnan(nothing.value)
        assert not nothing.is_clear
