"""Which judge `serve` takes when none is chosen."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import clawrl_gym as cg
from clawrl_gym.inference.models.resolve import is_shipped
from clawrl_gym.inference.models.shipped import shipped_dir
from clawrl_gym.preflight.judge import judge_in_words
from tests.support.tiny_models import make_random_model


@pytest.mark.parametrize(
    ("overrides", "chosen"),
    [
        ([], "rule"),
        (["policy.model=tiny_skills"], "rule"),
        (["policy=qwen3_0_6b"], "chain"),
        (["policy.model=some/model"], "chain"),
        (["policy=qwen3_0_6b", "judge=rule"], "rule"),
        (["policy=qwen3_0_6b", "judge.type=none"], "none"),
        (["judge=model"], "model"),
    ],
)
def test_a_real_model_judges_what_rules_cannot_unless_a_judge_is_chosen(
    overrides: list[str], chosen: str
) -> None:
    assert cg.load_config(overrides, "serve").judge.type == chosen


def test_keys_of_the_judge_stay_with_the_judge_that_is_taken() -> None:
    judge = cg.load_config(["policy=qwen3_0_6b", "judge.votes=5"], "serve").judge
    assert (judge.chain, judge.votes) == (("rule", "model"), 5)
    assert judge_in_words(judge) == (
        "judge: rules, then 5 votes of the policy itself (judge=chain); feedback always wins"
    )


def test_training_takes_no_judge_by_itself() -> None:
    assert cg.load_config(["policy=qwen3_0_6b"]).judge.type == "none"


def test_a_checkpoint_of_a_shipped_model_is_one_and_another_model_is_not(tmp_path: Path) -> None:
    shutil.copytree(shipped_dir(), tmp_path / "checkpoint")
    make_random_model(tmp_path / "other")
    assert is_shipped(str(tmp_path / "checkpoint"))
    assert not is_shipped(str(tmp_path / "other"))
    assert not is_shipped(str(tmp_path / "nothing"))
