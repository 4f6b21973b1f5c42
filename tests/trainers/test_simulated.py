"""The simulated learner keeps time and its place, and touches no model."""

from __future__ import annotations

from pathlib import Path

import pytest

from clawrl_gym.config import LearnerConfig, TrainerConfig
from clawrl_gym.core.errors import TrainerError
from clawrl_gym.trainers.simulated import SimulatedLearner
from tests.reference.tiny_model import make_samples


def make_learner(model_dir: str) -> SimulatedLearner:
    config = LearnerConfig(simulated_step_s=0.05)
    return SimulatedLearner(TrainerConfig(), config, model_dir, 0, "cpu")


def test_a_step_takes_its_time_and_reports_staleness(tmp_path: Path) -> None:
    stats = make_learner(str(tmp_path)).step(make_samples([10, 12], version=1), 3)
    assert stats.duration_s >= 0.05
    assert stats.tokens == 22
    assert stats.metrics["staleness/max"] == 2.0
    assert stats.metrics["learner/lr"] > 0


def test_it_publishes_the_first_weights_where_there_are_any(tmp_path: Path) -> None:
    learner = make_learner(str(tmp_path))
    learner.save_weights(str(tmp_path / "none"))
    assert list((tmp_path / "none").iterdir()) == []
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    learner.save_weights(str(tmp_path / "some"))
    assert (tmp_path / "some" / "model.safetensors").read_bytes() == b"weights"


def test_it_resumes_where_it_stopped(tmp_path: Path) -> None:
    first = make_learner(str(tmp_path))
    first.step([], 0)
    first.save_checkpoint(str(tmp_path / "last"))
    second = make_learner(str(tmp_path))
    second.load_checkpoint(str(tmp_path / "last"))
    assert second.updates == 1
    with pytest.raises(TrainerError, match="no updates file"):
        second.load_checkpoint(str(tmp_path / "other"))
