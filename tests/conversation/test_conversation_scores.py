"""What conversations are measured by, in the run's metrics."""

import pytest

from clawrl_gym.core.metrics import mean_scores
from clawrl_gym.core.types import Episode, StopReason, TaskRef
from clawrl_gym.rollout.evaluation import Evaluation


def episode(reward: float, **scores: float) -> Episode:
    task = TaskRef("student-ask-heldout-000001", 1, "heldout")
    return Episode(
        "s", None, task, StopReason.TERMINATED, reward, turns=1, family="ask", scores=scores
    )


def test_s20_an_evaluation_reports_style_and_correctness_beside_success() -> None:
    result = Evaluation(
        [
            episode(1.0, personalization=1.0, correct=1.0),
            episode(0.0, personalization=0.2, correct=1.0),
            episode(0.0, personalization=0.0, correct=0.0),
        ]
    )
    metrics = result.metrics()
    assert metrics["heldout/success"] == pytest.approx(1 / 3)
    assert metrics["heldout/personalization"] == pytest.approx(0.4)
    assert metrics["heldout/correct"] == pytest.approx(2 / 3)


def test_environments_without_scores_report_none() -> None:
    metrics = Evaluation([episode(1.0)]).metrics()
    assert set(metrics) == {
        "heldout/success", "heldout/reward", "heldout/n", "heldout/lost", "heldout/low",
        "heldout/high", "heldout/success/ask",
    }  # fmt: skip


def test_a_score_is_averaged_over_the_episodes_that_have_it() -> None:
    assert mean_scores([{"a": 1.0}, {}, {"a": 0.0, "b": 3.0}], "train") == {
        "train/a": 0.5,
        "train/b": 3.0,
    }
    assert mean_scores([], "train") == {}
