"""The main job on a GPU: vLLM and the learner share it, and a checkpoint goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e import runs

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.vllm,
    pytest.mark.sandbox,
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
]
QUICK = ("policy.device=cuda", "rollout.groups=4", "rollout.group_size=4", "eval.tasks=8")


def test_two_updates_are_trained_served_and_gone_on_from(tmp_path: Path) -> None:
    first = tmp_path / "first"
    runs.train(first, *QUICK, "trainer.steps=2")
    updates = [row for row in runs.metrics(first) if "swap/pause_s" in row]
    assert [row["policy/version"] for row in updates] == [1, 2]
    gaps = [row["logprob_gap/mean"] for row in updates if "logprob_gap/mean" in row]
    assert all(gap < 1e-3 for gap in gaps), gaps  # both in float32, as the model's files are
    runs.train(tmp_path / "second", *QUICK, "trainer.steps=1", f"policy.model={first}")
    assert runs.left_behind(tmp_path) == []
