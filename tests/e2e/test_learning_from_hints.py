"""Hints and verdicts through the whole loop: real vLLM as policy and as judge, real gradients."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.core.types import Sample, Verdict
from clawrl_gym.judge.signals.call_rule import RULE
from clawrl_gym.store import StoreReader
from tests.e2e import runs

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
]

QUICK = ("rollout.envs_per_worker=16", "eval.tasks=6", "eval.every=0", "trainer.steps=2")


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The policy judges itself, and learns from its own verdicts and hints."""
    folder = tmp_path_factory.mktemp("hybrid") / "run"
    runs.train(
        folder, "env=conversation", "env.wording=train", "trainer=hybrid", "judge=model",
        "rollout.groups=4", "rollout.group_size=4", *QUICK,
    )  # fmt: skip
    return folder


def test_a_model_judge_votes_and_writes_hints_in_the_policys_own_vllm(hybrid: Path) -> None:
    verdicts = verdicts_of(hybrid)
    judged = [verdict for verdict in verdicts if verdict.value is not None]
    assert len(judged) > 0.9 * len(verdicts)
    asked = [verdict for verdict in judged if verdict.detail.get("rule") != RULE]
    assert {verdict.kind for verdict in asked} == {"model"}
    assert {-1, 1} <= {verdict.value for verdict in judged}
    assert any(verdict.hints for verdict in judged)
    assert not any("[HINT" in hint for verdict in verdicts for hint in verdict.hints)


def test_the_model_judge_agrees_with_what_the_rules_know(hybrid: Path) -> None:
    told = Counter(
        verdict.value == verdict.detail["rule"]
        for verdict in verdicts_of(hybrid)
        if verdict.value and verdict.detail.get("rule")
    )
    assert told.total() > 10
    assert told[True] / told.total() > 0.8


def test_both_terms_ran_and_say_so(hybrid: Path) -> None:
    updates = [row for row in runs.metrics(hybrid) if "learner/loss" in row]
    assert updates
    for row in updates:
        assert row["objective/policy_gradient"] > 0
        assert row["teacher/gap_abs"] > 0
    assert any(row["objective/distillation_topk"] > 0 for row in updates)


def test_the_batches_of_past_updates_hold_their_lessons(hybrid: Path) -> None:
    targets = [target for sample in samples_of(hybrid) for target in sample.distill_targets]
    assert targets
    lines: list[dict[str, Any]] = read_json_lines(hybrid / "evaluations.jsonl")
    taught = [row for row in lines if is_taught(row)]
    assert taught
    assert all(len(row["ids"]) == len(row["gaps"]) for row in taught)


def test_the_report_shows_hints_and_what_the_teacher_thought(hybrid: Path) -> None:
    page = (hybrid / "report.html").read_text()
    assert "Judging and teaching" in page
    assert "What the teacher thought" in page


@pytest.mark.nightly  # by day a run of rewards and hints has both, in test_main_job.py
@pytest.mark.sandbox
def test_failed_checks_teach_a_terminal_agent_without_any_reward(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    runs.train(
        folder, "env=terminal", "trainer=opd", "judge=rule", "rollout.groups=6",
        "rollout.group_size=2", *QUICK,
    )  # fmt: skip
    hints = {hint for verdict in verdicts_of(folder) for hint in verdict.hints}
    assert hints
    assert all(hint.startswith(("The checks failed: ", "It failed")) for hint in hints)
    assert all(not any(sample.advantages_T) for sample in samples_of(folder))
    updates = [row for row in runs.metrics(folder) if "learner/loss" in row]
    assert all("objective/policy_gradient" not in row for row in updates)
    assert any(row["objective/distillation_topk"] == 1.0 for row in updates)


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["trainer=opd", "learner.backend=simulated"], "cannot run distillation_topk"),
        (["judge=model", "judge.quorum=4"], "judge.quorum=4"),
        (["judge=reward_model", "judge.base_url=null"], "judge.base_url"),
        (["judge.type=chain"], "judge.chain"),
    ],
)
def test_what_cannot_run_is_told_at_the_start(
    overrides: list[str], told: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The reference's LoRA scripts train something else than what was asked for, in silence."""
    from clawrl_gym.train import main

    code = main([f"run.dir={tmp_path / 'run'}", "ui=line", "trainer.steps=1", *overrides])
    assert code == 2
    assert told in capfd.readouterr().err


def verdicts_of(folder: Path) -> list[Verdict]:
    store = StoreReader(folder)
    try:
        by_turn = [store.verdicts_of(row.id) for row in store.sessions()]
    finally:
        store.close()
    return [verdict for turns in by_turn for said in turns.values() for verdict in said]


def samples_of(folder: Path) -> list[Sample]:
    store = StoreReader(folder)
    try:
        updates = store.updates()
        return [sample for row in updates for sample in store.samples_of_update(row.version)]
    finally:
        store.close()


def is_taught(row: dict[str, Any]) -> bool:
    return bool(row.get("type") == "taught")
