"""A run whose loss is a function of somebody else's package. The command, Ray, the workers, the
learner and the store are real; vLLM is a stand-in that computes the model by itself."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from tests.e2e import runs
from tests.support.numpy_engine import make_model, make_package

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]
PACKAGE = '''
"""Weights that are geometric means: all tokens of a sequence share one, whose parts are cut."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

import clawrl_gym as cg


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")

    width: float = Field(0.4, gt=0)
    """A token's log-ratio is cut to plus and minus this before the mean."""
    calls: Path
    """A line is added to this file for each call."""


def geometric(tokens: cg.LossInputs, options: Options) -> cg.TokenLoss:
    gap_M = tokens.logprobs_M - tokens.behaviour_M
    cut_M = gap_M.clamp(-options.width, options.width)
    rows_M = tokens.rows_for("geometric")
    counts_S = rows_M.bincount()
    sums_S = cut_M.new_zeros(len(counts_S)).index_add(0, rows_M, cut_M)
    ratio_M = (sums_S / counts_S).exp()[rows_M]
    with options.calls.open("a") as file:
        file.write(f"{len(rows_M)} {len(counts_S)}\\n")
    return cg.TokenLoss(-ratio_M * tokens.advantages_M, cut_M != gap_M)
'''
SETTINGS = (
    "seed=3", "policy.device=cpu", "policy.max_model_len=256", "env=gym",
    "env.target=tests.support.guess_run:NumberEnv", "env.max_turns=3", "judge=none", "trainer=grpo",
    "rollout=sync", "rollout.groups=3", "rollout.group_size=4", "rollout.in_flight=8",
    "trainer.steps=2", "trainer.minibatches=2", "eval.tasks=4", "eval.every=0", "learner.lr=8e-4",
    "policy.sampling.max_tokens=96",
)  # fmt: skip


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Settings of a run with the package above, which lies outside of this repository."""
    package = tmp_path / "elsewhere" / "somebodys_losses"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(PACKAGE)
    places = (make_package(tmp_path / "stand-in"), package.parent, runs.ROOT)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, places)))
    return [
        *SETTINGS, f"policy.model={make_model(tmp_path / 'model')}",
        "loss=somebodys_losses:geometric", f"trainer.loss.options.calls={tmp_path / 'calls'}",
    ]  # fmt: skip


def test_a_run_learns_by_a_loss_of_another_package(tmp_path: Path, settings: list[str]) -> None:
    assert len(PACKAGE.splitlines()) <= 400
    folder = tmp_path / "run"
    runs.train(folder, *settings, "trainer.loss.options.width=0.5", timeout_s=850)
    updates = [row for row in runs.metrics(folder) if "learner/loss" in row]
    assert [row["step"] for row in updates] == [1, 2]
    for row in updates:
        assert math.isfinite(row["learner/loss"])
        assert row["learner/grad_norm"] > 0
    calls = [line.split() for line in (tmp_path / "calls").read_text().splitlines()]
    tokens = sum(int(count) for count, _ in calls)
    made_up = 3 * 16  # of the trial before the start
    assert tokens - made_up == sum(row["learner/sampled_tokens"] for row in updates)
    kept = (folder / "config.yaml").read_text()
    assert "type: somebodys_losses:geometric" in kept
    assert "width: 0.5" in kept


def test_a_run_with_a_wrong_option_starts_nothing(tmp_path: Path, settings: list[str]) -> None:
    run = runs.start(tmp_path / "run", *settings, "trainer.loss.options.width=0")
    said, _ = run.communicate(timeout=600)
    assert run.returncode == 2
    assert "trainer.loss.options.width: got 0: Input should be greater than 0" in said
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "calls").exists()
