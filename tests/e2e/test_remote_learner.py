"""Runs whose learner is another process, spoken to over HTTP (`tests/support/http_learner.py`)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import clawrl_gym as cg
from clawrl_gym.inference.weights.checkpoints import list_checkpoints
from tests.e2e import runs
from tests.run.test_whole_training import SETTINGS
from tests.support.numpy_engine import make_model, make_package

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(1800)]
LEARNER = "learner.backend=tests.support.http_learner:HttpLearner"


@pytest.fixture
def url() -> Iterator[str]:
    """Address of a host in a process of its own."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.http_learner"],
        cwd=runs.ROOT,
        env=os.environ | {"PYTHONPATH": str(runs.ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    ) as host:
        assert host.stdout is not None
        try:
            yield host.stdout.readline().strip()
        finally:
            host.terminate()


def check(folder: Path, updates: int) -> None:
    """It learned, engines serve what it has, and its checkpoints are the run's."""
    rows = runs.metrics(folder)
    learned = [row for row in rows if "learner/loss" in row]
    assert [row["step"] for row in learned] == list(range(1, updates + 1))
    assert all(row["learner/grad_norm"] > 0 for row in learned)
    assert all(row["learner/probe_gap"] < 0.05 for row in learned), "it was verified"
    assert max(list_checkpoints(folder / "checkpoints")) == updates
    assert any("language/reference_logprob" in row for row in rows), "it reads replies"


async def test_a_whole_training_with_a_stand_in_for_vllm_and_on_from_its_checkpoint(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{make_package(tmp_path / 'stand-in')}:{runs.ROOT}")
    folder, model = tmp_path / "run", make_model(tmp_path / "model")
    settings = [
        *SETTINGS, f"run.dir={folder}", f"policy.model={model}", "trainer.steps=2",
        LEARNER, f"learner.options.url={url}", "learner.publish=if_not_worse",
    ]  # fmt: skip
    await cg.run_training_async(settings)
    check(folder, 2)
    await cg.run_training_async([f"resume={folder}", "ui=line", "trainer.steps=3"])
    check(folder, 3)


@pytest.mark.vllm
@pytest.mark.sandbox
def test_the_shipped_policy_is_trained_by_it_behind_a_real_vllm(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(runs.ROOT))
    folder = tmp_path / "run"
    runs.train(
        folder, "env=terminal", "trainer.steps=2", "rollout.groups=4", "rollout.group_size=4",
        "eval.tasks=8", "rollout.envs_per_worker=16", LEARNER, f"learner.options.url={url}",
        timeout_s=1700,
    )  # fmt: skip
    check(folder, 2)
