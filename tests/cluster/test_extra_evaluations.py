from __future__ import annotations

import pytest

from clawrl_gym.cluster.extra_evaluations import extra_evaluations, extra_metrics
from clawrl_gym.config import RunConfig
from clawrl_gym.config.compose import compose
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.types import Episode, StopReason, TaskRef
from clawrl_gym.rollout.evaluation import Evaluation


def configured(*overrides: str) -> RunConfig:
    return compose("train", [*overrides, "eval.tasks=4"], RunConfig)


def test_other_environments_are_measured_on_their_own_held_out_tasks() -> None:
    (other,) = extra_evaluations(configured("env=conversation", "eval.also=[terminal]"))
    assert other.name == other.config.type == "terminal"
    assert [task.split for task in other.tasks] == ["heldout"] * 4
    (again,) = extra_evaluations(configured("env=conversation", "eval.also=[terminal]", "seed=9"))
    assert again.tasks == other.tasks


def test_the_runs_own_environment_is_not_measured_twice() -> None:
    assert extra_evaluations(configured("env=terminal", "eval.also=[terminal]")) == []
    teacher = configured("env=conversation", "env.persona=teacher", "eval.also=[conversation]")
    assert [other.name for other in extra_evaluations(teacher)] == ["conversation"]  # its student


def test_without_held_out_tasks_nothing_else_is_measured() -> None:
    config = compose("train", ["eval.tasks=0", "eval.also=[conversation]"], RunConfig)
    assert extra_evaluations(config) == []


def test_an_environment_that_is_not_there_is_found_before_the_run() -> None:
    with pytest.raises(ConfigError, match="moon"):
        extra_evaluations(configured("eval.also=[moon]"))


def test_measures_of_another_environment_carry_its_name() -> None:
    task = TaskRef("ask-1", 0, "heldout")
    episode = Episode(
        session_id="heldout-1",
        group_id=None,
        task=task,
        stop_reason=StopReason.TERMINATED,
        reward=1.0,
        turns=1,
        family="ask",
        scores={"personalization": 0.5},
    )
    assert extra_metrics("conversation", Evaluation([episode])) == {
        "also/conversation/success": 1.0,
        "also/conversation/reward": 1.0,
        "also/conversation/n": 1,
        "also/conversation/lost": 0,
        "also/conversation/low": pytest.approx(0.2065, abs=1e-3),
        "also/conversation/high": 1.0,
        "also/conversation/personalization": 0.5,
    }
