"""What the soak calls growth; and, at night, three minutes of it."""

import asyncio
import math
import random
from collections.abc import Callable

import pytest

from bench.soak import Sample, growths, soak


def samples(memory_mb: Callable[[float], float], threads: float = 8.0) -> list[Sample]:
    return [Sample(at, memory_mb(at), 40.0 + at % 3, threads) for at in range(240)]


def verdicts(memory_mb: Callable[[float], float]) -> dict[str, bool]:
    return {growth.name: growth.is_flat for growth in growths(samples(memory_mb))}


def test_noise_and_what_fills_at_first_are_flat() -> None:
    draw = random.Random(0)
    noisy = verdicts(lambda at: 150 + draw.gauss(0, 5))
    assert all(noisy.values()), noisy
    filling = verdicts(lambda at: 150 - 60 * math.exp(-at / 15))
    assert all(filling.values()), filling


@pytest.mark.parametrize("mb_per_s", [0.1, 1.0])
def test_what_grows_is_noticed_whatever_the_noise(mb_per_s: float) -> None:
    draw = random.Random(0)
    assert verdicts(lambda at: 150 + mb_per_s * at + draw.gauss(0, 2))["memory, MB"] is False


def test_a_descriptor_that_is_left_now_and_then_is_noticed() -> None:
    leaking = [Sample(at, 150.0, 40 + at // 20, 8.0) for at in range(240)]
    assert [growth.is_flat for growth in growths(leaking)] == [True, False, True]


def test_too_few_samples_say_nothing() -> None:
    with pytest.raises(ValueError, match="expected at least 24"):
        growths(samples(lambda at: 1.0)[:20])


@pytest.mark.nightly
@pytest.mark.slow
def test_three_minutes_of_everything_leave_nothing_behind() -> None:
    measured, load = asyncio.run(soak(180))
    growing = [growth for growth in growths(measured) if not growth.is_flat]
    assert not growing
    assert sum(load.statuses.values()) > 1000
    assert not [status for status in load.statuses if status >= 500]
