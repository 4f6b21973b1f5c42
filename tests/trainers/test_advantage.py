"""Advantages are group-relative, and a group that cannot tell its episodes apart gives none."""

from __future__ import annotations

import math
import random

import pytest

from clawrl_gym.trainers.algorithms.advantage import group_advantages, is_constant

REWARDS = [1.0, 0.0, 0.0, 1.0, 1.0]


def test_without_std_the_mean_is_subtracted() -> None:
    assert group_advantages(REWARDS, normalize_std=False) == pytest.approx(
        [0.4, -0.6, -0.6, 0.4, 0.4], abs=1e-12
    )


def test_with_std_the_unbiased_deviation_divides() -> None:
    high, low = 0.73029541, -1.09544312
    assert group_advantages(REWARDS, normalize_std=True) == pytest.approx(
        [high, low, low, high, high], abs=1e-8
    )


def test_left_out_of_its_own_mean_an_episode_is_compared_with_the_others() -> None:
    advantages = group_advantages(REWARDS, normalize_std=False, leave_one_out=True)
    assert advantages == pytest.approx([0.5, -0.75, -0.75, 0.5, 0.5], abs=1e-8)
    for index, reward in enumerate(REWARDS):
        others = REWARDS[:index] + REWARDS[index + 1 :]
        assert advantages[index] == pytest.approx(reward - sum(others) / len(others))


def test_left_out_of_its_own_mean_an_episode_is_still_measured_in_deviations() -> None:
    plain = group_advantages(REWARDS, normalize_std=True)
    left_out = group_advantages(REWARDS, normalize_std=True, leave_one_out=True)
    assert left_out == pytest.approx([advantage * 5 / 4 for advantage in plain])


@pytest.mark.parametrize("leave_one_out", [True, False])
def test_a_group_of_one_or_none_has_nothing_to_be_compared_with(leave_one_out: bool) -> None:
    """Others give it its own reward as advantage, or divide by a deviation of nothing."""
    for normalize_std in (True, False):
        assert group_advantages([7.0], normalize_std, leave_one_out) == [0.0]
        assert group_advantages([], normalize_std, leave_one_out) == []


@pytest.mark.parametrize("rewards", [[0.0] * 4, [1.0] * 8, [0.3], [0.1 + 0.2, 0.3, 0.3]])
@pytest.mark.parametrize("normalize", [True, False])
def test_a_constant_group_gets_exact_zeros(rewards: list[float], normalize: bool) -> None:
    assert is_constant(rewards)
    assert group_advantages(rewards, normalize) == [0.0] * len(rewards)


@pytest.mark.parametrize("normalize", [True, False])
def test_advantages_sum_to_zero_and_follow_a_permutation(normalize: bool) -> None:
    draw = random.Random(3)
    for _ in range(50):
        rewards = [draw.choice([0.0, 0.25, 1.0]) for _ in range(8)] + [0.5]
        advantages = group_advantages(rewards, normalize)
        assert sum(advantages) == pytest.approx(0.0, abs=1e-9)
        order = draw.sample(range(9), 9)
        shuffled = group_advantages([rewards[i] for i in order], normalize)
        assert shuffled == pytest.approx([advantages[i] for i in order], abs=1e-12)


def test_weights_of_1_change_no_bit() -> None:
    draw = random.Random(4)
    for _ in range(50):
        rewards = [draw.choice([0.0, 0.3, 1.0]) for _ in range(7)]
        for form in ((True, False), (False, True), (True, True)):
            plain = group_advantages(rewards, *form)
            assert group_advantages(rewards, *form, weights_G=[1.0] * 7) == plain


@pytest.mark.parametrize("normalize", [True, False])
def test_weighted_advantages_sum_to_zero_and_equal_weights_are_a_factor(normalize: bool) -> None:
    weighted = group_advantages(REWARDS, normalize, weights_G=[1.0, 0.1, 0.5, 1.0, 0.1])
    assert sum(weighted) == pytest.approx(0.0, abs=1e-9)
    weak = group_advantages(REWARDS, normalize, weights_G=[0.1] * 5)
    assert weak == pytest.approx([0.1 * a for a in group_advantages(REWARDS, normalize)])


def test_weighted_mean_and_deviation_are_those_computed_by_hand() -> None:
    """r = (1, -1), w = (1, 0.5): mean 1/3, squares 4/9 + 16/18, divisor 1.5 - 1.25 / 1.5."""
    std = math.sqrt((4 / 9 + 0.5 * 16 / 9) / (1.5 - 1.25 / 1.5))
    expected = [(2 / 3) / std, 0.5 * (-4 / 3) / std]
    assert group_advantages([1.0, -1.0], True, weights_G=[1.0, 0.5]) == pytest.approx(
        expected, abs=1e-5
    )


def test_a_weight_may_vanish_beside_another() -> None:
    advantages = group_advantages([1.0, -1.0], True, weights_G=[1.0, 1e-300])
    assert advantages == pytest.approx([0.0, 0.0], abs=1e-9)


def test_with_std_the_scale_of_rewards_does_not_matter() -> None:
    tenfold = group_advantages([10 * reward for reward in REWARDS], normalize_std=True)
    assert tenfold == pytest.approx(group_advantages(REWARDS, normalize_std=True), abs=1e-5)


def test_a_reward_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="expected finite numbers"):
        group_advantages([1.0, float("nan")], normalize_std=True)
