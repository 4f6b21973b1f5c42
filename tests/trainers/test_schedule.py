"""The learning rate is a function of the update's number."""

from __future__ import annotations

import pytest

from clawrl_gym.config import LearnerConfig
from clawrl_gym.trainers.schedule import learning_rate


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [1 / 3, 2 / 3, 1.0, 1.0, 1.0, 1.0]),
        ("linear", [1 / 3, 2 / 3, 1.0, 0.55, 0.1, 0.1]),
        ("cosine", [1 / 3, 2 / 3, 1.0, 0.55, 0.1, 0.1]),
    ],
)
def test_the_rate_warms_up_and_decays_to_the_last_update(
    schedule: str, expected: list[float]
) -> None:
    config = LearnerConfig.model_validate({"lr": 1.0, "warmup_steps": 2, "schedule": schedule})
    rates = [learning_rate(update, 5, config) for update in range(6)]
    assert rates == pytest.approx(expected)


def test_without_a_last_update_the_rate_halves_and_halves_again_and_never_ends() -> None:
    config = LearnerConfig.model_validate(
        {"lr": 1.0, "warmup_steps": 1, "schedule": "inverse", "halves_after": 8}
    )
    rates = [learning_rate(update, 5, config) for update in (0, 1, 9, 25, 73, 10_000)]
    assert rates == pytest.approx([1 / 2, 1, 1 / 2, 1 / 4, 1 / 10, 1 / 10])
