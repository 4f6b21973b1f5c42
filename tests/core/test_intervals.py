"""95 % intervals, against numbers that were computed elsewhere."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest

from clawrl_gym.core.intervals import Difference, mean_difference, mean_of, share_of


def test_a_share_has_wilsons_interval() -> None:
    # statsmodels.stats.proportion.proportion_confint(7, 20, method="wilson")
    estimate = share_of([True] * 7 + [False] * 13)
    assert (estimate.value, estimate.n) == (0.35, 20)
    assert estimate.low == pytest.approx(0.18119, abs=1e-4)
    assert estimate.high == pytest.approx(0.56715, abs=1e-4)


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
    assert estimate.low == pytest.approx(low, abs=1e-4)
    assert estimate.high == pytest.approx(high, abs=1e-4)


def test_a_difference_of_pairs_is_nearly_that_of_agresti_and_min() -> None:
    # 100 tasks, 15 won, 3 lost: squares 18 - 100 * 0.12²; t of 100 degrees 1.98397;
    # half = 1.98397 * sqrt((16.56 + 1) / 101 / 100) = 0.082725 (Agresti and Min: 0.0806)
    difference = mean_difference([[1.0] * 15 + [-1.0] * 3 + [0.0] * 82])
    assert difference is not None
    assert difference.mean == pytest.approx(0.12)
    assert difference.low == pytest.approx(0.12 - 0.082725, abs=1e-4)
    assert difference.high == pytest.approx(0.12 + 0.082725, abs=1e-4)
    assert difference.is_clear


def test_no_change_on_few_tasks_is_no_proof_of_equality() -> None:
    difference = mean_difference([[0.0] * 10])
    assert difference is not None
    assert difference.mean == 0.0
    assert difference.low < -0.1
    assert difference.high > 0.1
    assert not difference.is_clear


def test_nothing_has_no_value() -> None:
    assert math.isnan(share_of([]).value)
    assert math.isnan(mean_of([]).value)
    assert mean_difference([]) is None


@pytest.mark.parametrize(
    ("table", "mean", "half"),  # numpy's mean squares, and Student's t from a table
    [
        # seeds vary by 0.180556, the rest by 0.247222: tasks alone, sqrt(2.4469² * 0.849206 / 18)
        ([[1, 0, 1, 1, 0, 0.5], [0, 0, 1, 0, 0, 0.5], [1, 1, 1, 0, -1, 0]], 0.388889, 0.531480),
        # and by 0.583333, 0.138889: sqrt((2.7764² * 0.733333 + 4.3027² * 0.444444) / 12)
        ([[1, 0, 1, 1], [0, 0, 1, 0], [1, 1, 1, 1]], 0.666667, 1.075520),
    ],
)
def test_seeds_count_as_far_as_they_vary_more_than_the_rest(
    table: list[list[float]], mean: float, half: float
) -> None:
    difference = mean_difference(table)
    assert difference is not None
    assert difference.mean == pytest.approx(mean, abs=1e-6)
    assert difference.high - difference.mean == pytest.approx(half, abs=1e-4)
    assert difference.mean - difference.low == pytest.approx(half, abs=1e-4)


def test_a_difference_is_clear_on_either_side_of_nothing_alone() -> None:
    def is_clear(low: float, high: float) -> bool:
        return Difference((low + high) / 2, low, high, 2, 9).is_clear

    assert is_clear(0.1, 0.3)
    assert is_clear(-0.3, -0.1)
    assert not is_clear(-0.1, 0.3)
    assert not is_clear(0.0, 0.3)
    assert not is_clear(-0.3, 0.0)
