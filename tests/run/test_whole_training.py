"""A whole training in this process: Ray, workers, learner and store are real, vLLM is a stand-in
that computes the model by itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import clawrl_gym as cg
from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.core.metrics import METRICS_FILE, TIMELINE_FILE
from clawrl_gym.core.processes.descendants import descendants
from clawrl_gym.core.types import Sample
from clawrl_gym.run.train import TrainingRun
from clawrl_gym.store import StoreReader
from clawrl_gym.store.schema import DATABASE_FILE
from tests.e2e import runs
from tests.support.numpy_engine import STALLS, Model, make_model, make_package
from tests.support.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.slow]
SETTINGS = (
    "ui=line", "seed=3", "policy.device=cpu", "policy.max_model_len=256", "env=gym",
    "env.target=tests.support.guess_run:NumberEnv", "env.max_turns=3",
    "judge=tests.support.guess_run:HintJudge", "trainer=hybrid",
    "curriculum=pass_rate", "rollout=sync", "rollout.groups=3",
    "rollout.group_size=4", "rollout.in_flight=8", "trainer.steps=4", "eval.tasks=8",
    "eval.every=2", "eval.between_tasks=3", "eval.k=[1,2]", "eval.samples=4", "learner.lr=8e-4",
    "learner.warmup_steps=2", "learner.schedule=linear", "policy.sampling.max_tokens=96",
)  # fmt: skip
"""Batches of three groups, each of which the engine has solve two of its four episodes, one of them
in two turns; what is held out is solved where its number is even."""
TASKS = [683, 636, 874, 728, 234, 762, 850, 170, 461, 944, 862, 117]
"""What the groups of seed 3 are of."""


@dataclass(frozen=True)
class Whole:
    """A run that was interrupted in its third batch, gone on with, and asked for once more."""

    folder: Path
    there: Path
    """Where its checkpoints are copied to."""
    model: Path
    interrupted: BaseException | None
    open_at_end: list[tuple[int | None, str | None, str]]
    """Group, reason and error of the episodes that had not ended when it was interrupted."""
    outcomes: list[tuple[int, str | None, int, int]]
    """Groups when it was interrupted."""
    second: TrainingRun
    third: TrainingRun
    said: list[list[str]]
    """What people were told by each of the three, without times."""
    left: set[int]
    """Processes that were started and live."""

    def rows(self, name: str) -> list[dict[str, Any]]:
        return rows_of(self.folder, name)


def rows_of(folder: Path, name: str) -> list[dict[str, Any]]:
    return [row for row in read_json_lines(folder / METRICS_FILE) if name in row]


def is_stalled(folder: Path) -> bool:
    """The first process can do no more: all but one group of the third batch are there."""
    if not (folder / METRICS_FILE).exists() or len(rows_of(folder, "heldout/n")) < 2:
        return False
    reader = StoreReader(folder)
    try:
        return len(reader.untrained_groups()) == 2
    finally:
        reader.close()


def reopen_cancelled(folder: Path) -> None:
    """As a killed process leaves what it was playing."""
    with contextlib.closing(sqlite3.connect(folder / DATABASE_FILE)) as db, db:
        db.execute(
            "UPDATE sessions SET ended_s=NULL, stop_reason=NULL, error=NULL "
            "WHERE stop_reason='cancelled'"
        )


def told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    lines = capsys.readouterr().out.splitlines()
    return [line.partition(" (")[0] if line.endswith(" s)") else line for line in lines]


async def interrupted(settings: list[str], folder: Path) -> BaseException | None:
    """Train until the engine stalls; what the run ended with."""
    training = asyncio.create_task(cg.run_training_async(settings))
    await until(lambda: training.done() or is_stalled(folder))
    training.cancel()
    (ended,) = await asyncio.gather(training, return_exceptions=True)
    return ended if isinstance(ended, BaseException) else None


async def test_a_run_that_was_interrupted_goes_on_as_if_it_had_not_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = set(descendants(os.getpid()))
    monkeypatch.setenv("PYTHONPATH", str(make_package(tmp_path / "stand-in")))
    monkeypatch.setenv(STALLS, "8")
    folder, there, model = tmp_path / "run", tmp_path / "there", make_model(tmp_path / "model")
    settings = [
        *SETTINGS, f"run.dir={folder}", f"policy.model={model}",
        f"learner.remote_checkpoints={there}",
    ]  # fmt: skip
    error = await interrupted(settings, folder)
    said = [told(capsys)]
    reader = StoreReader(folder)
    outcomes = reader.group_outcomes()
    open_at_end = [
        (row.group_id, row.stop_reason, row.error) for row in reader.sessions() if row.error
    ]
    reopen_cancelled(folder)
    monkeypatch.delenv(STALLS)
    second = await cg.run_training_async([f"resume={folder}", "ui=line"])
    said.append(told(capsys))
    third = await cg.run_training_async([f"resume={folder}", "ui=line"])
    said.append(told(capsys))
    left = set(descendants(os.getpid())) - before
    reader.close()
    whole = Whole(folder, there, model, error, open_at_end, outcomes, second, third, said, left)
    check_interruption(whole)
    check_what_was_said(whole)
    check_metrics(whole)
    check_store(whole)
    check_checkpoints(whole)
    check_timeline(whole)
    check_end(whole)


def test_ctrl_c_ends_the_command_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(make_package(tmp_path / "stand-in")))
    folder = tmp_path / "run"
    model = f"policy.model={make_model(tmp_path / 'model')}"
    run = runs.start(
        folder, *SETTINGS, model, "trainer=grpo", "learner=simulated", "trainer.steps=50"
    )
    runs.wait_for_line(run, "step 1/")
    below = descendants(run.pid)
    output = runs.interrupt(run)
    assert run.returncode == 130
    assert output.endswith(f"resume with: python -m clawrl_gym.train resume={folder}\n")
    assert "Traceback" not in output
    assert runs.still_alive(below) == set()


def check_interruption(whole: Whole) -> None:
    assert isinstance(whole.interrupted, asyncio.CancelledError)
    assert sorted(whole.outcomes) == [(n, f"say-{TASKS[n]}", 4, 2) for n in range(8)]
    assert whole.open_at_end == [(8, "cancelled", "its run ended before it")] * 4


def check_what_was_said(whole: Whole) -> None:
    first, second, third = whole.said
    folder = str(whole.folder)
    for lines in (first, second):
        assert {line for line in lines if line.startswith(("workers: ", "learner: ", "Ray: "))} == {
            "Ray: starting", "Ray: ready", "learner: loading the model", "learner: ready",
            "workers: 1 with at most 128 environments each", "workers: ready",
        }  # fmt: skip
        assert lines[0] == folder
        assert "vLLM: ready" in lines
        assert "training: 4 updates" in lines
    assert [line for line in first if line.startswith("held-out: ")] == [
        "held-out: 8 tasks, after 0 updates", "held-out: ready",
        "held-out: 3 tasks, after 2 updates", "held-out: ready",
    ]  # fmt: skip
    success = "held-out after {} updates: {} % ({}, n = {})"
    ends = "14 to 69 %", 8
    assert [line.partition("  ")[0] for line in first if line.startswith("held-out after")] == [
        success.format(0, 38, *ends), success.format(2, 67, "21 to 94 %", 3),
    ]  # fmt: skip
    assert [line.partition("  ")[0] for line in second if line.startswith("held-out after")] == [
        success.format(4, 38, *ends)
    ]
    steps = [line for line in first + second if line.startswith("step ")]
    assert [line.split("  loss")[0] for line in steps] == [
        f"step {n}/4  reward 0.500  success 50 %" for n in (1, 2, 3, 4)
    ]
    assert first[1] == second[1] == third[1]
    assert first[1].startswith("settings: conf/size/0_1b.yaml, for a model of ")
    assert second[2] == "4 episodes were open when the run was killed: closed"
    assert "resumed at version 2, 2 groups waiting" in second
    assert second[-1] == f"report: {folder}/report.html"
    assert len(third) == 4
    assert third[2].startswith(f"{folder} is complete: 4 of 4 updates, and measured;")


def check_metrics(whole: Whole) -> None:
    measured = whole.rows("heldout/n")
    names = ("step", "policy/version", "heldout/last_version", "heldout/n", "heldout/success")
    assert [tuple(row[name] for name in names) for row in measured] == [
        (0, 0, 0, 8, 3 / 8), (2, 2, 2, 3, 2 / 3), (4, 4, 4, 8, 3 / 8),
    ]  # fmt: skip
    for row in (measured[0], measured[2]):
        assert (row["heldout/pass@1"], row["heldout/pass@2"]) == (0.5, pytest.approx(5 / 6))
        assert row["heldout/samples"] == 4
    assert "heldout/samples" not in measured[1]
    updates = whole.rows("batch/samples")
    assert [row["step"] for row in updates] == [row["policy/version"] for row in updates]
    assert [row["step"] for row in updates] == [1, 2, 3, 4]
    assert [row["groups/accepted"] for row in updates] == [3, 3, 1, 3]
    assert [row["verdicts/negative"] for row in updates] == [15, 30, 5, 20], "of each process"
    assert [row["hints/prompts"] for row in updates] == [15, 30, 5, 20]
    assert [row["learner/lr"] for row in updates] == pytest.approx(
        [8e-4 / 3, 16e-4 / 3, 8e-4, 8e-5]
    )
    for row in updates:
        assert (row["train/reward"], row["train/success"], row["train/turns"]) == (0.5, 0.5, 1.25)
        assert (row["batch/samples"], row["rollout/in_flight_limit"], row["staleness/max"]) == (
            12, 8, 0,
        )  # fmt: skip
        assert row["learner/sampled_tokens"] == row["teacher/tokens"] == 54
        assert row["logprob_gap/max"] < 1e-5, "the engine computes what the learner does"
        assert row["learner/probe_gap"] < 1e-5
        assert row["learner/probe_arrived"] == pytest.approx(1, abs=1e-2)
        assert (row["learner/refused"], row["merge/share"], row["curriculum/between"]) == (0, 1, 1)
        assert (row["judge/mean"], row["judge/hinted"]) == (-1, 1)
        assert row["swap/pause_s"] > 0
    assert ["memory/rss_gb" in row for row in updates] == [True, False, False, False]
    assert [row["time/left_s"] is None for row in updates[1::2]] == [False, False]


def check_store(whole: Whole) -> None:
    reader = StoreReader(whole.folder)
    outcomes = reader.group_outcomes()
    updates = reader.updates()
    batches = [reader.samples_of_update(update.version) for update in updates]
    sessions = reader.sessions()
    reader.close()
    assert sorted(outcomes) == [(n, f"say-{task}", 4, 2) for n, task in enumerate(TASKS)]
    assert [(row.version, row.groups, row.tokens) for row in updates] == [
        (n, 3, 423) for n in (1, 2, 3, 4)
    ]
    assert [Path(row.checkpoint or "").name for row in updates] == [
        "000001", "000002", "000003", "000004",
    ]  # fmt: skip
    for at, batch in enumerate(batches):
        assert Counter(sample.group_id for sample in batch) == dict.fromkeys(
            range(3 * at, 3 * at + 3), 4
        )
        assert {sample.oldest_version for sample in batch} == {at}
    check_samples(whole, batches[0])
    used = [row for row in sessions if row.group_id is None or row.group_id < len(TASKS)]
    assert Counter((row.split, row.reward, row.stop_reason) for row in used) == {
        ("heldout", 1.0, "terminated"): 3 + 2 + 3 + 2 * 16,
        ("heldout", 0.0, "terminated"): 5 + 1 + 5 + 2 * 16,
        ("train", 1.0, "terminated"): 24,
        ("train", 0.0, "terminated"): 24,
        ("train", None, "cancelled"): 4,
    }


def check_samples(whole: Whole, batch: list[Sample]) -> None:
    """What was sampled by the first weights is what these say of it."""
    model = Model(whole.model)
    for sample in batch:
        said = [0.0, *model.logprobs(sample.ids_T)]
        known = [x if sampled else 0.0 for x, sampled in zip(said, sample.mask_T, strict=True)]
        assert sample.logprobs_T == pytest.approx(known, abs=1e-5)
        assert [bool(weight) for weight in sample.distill_T] == sample.mask_T


def check_checkpoints(whole: Whole) -> None:
    """The two newest, and the best of those that were measured in between."""
    kept = ["000002", "000003", "000004"]
    elsewhere = whole.there / "run"
    for folder in (whole.folder, elsewhere):
        assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == kept
    for own in whole.folder.glob("checkpoints/*/*"):
        if own.is_file():
            copy = elsewhere / own.relative_to(whole.folder)
            assert copy.read_bytes() == own.read_bytes()
    weights = [
        (whole.folder / "checkpoints" / name / "model.safetensors").read_bytes() for name in kept
    ]
    assert len({*weights, (whole.model / "model.safetensors").read_bytes()}) == 4
    assert list(whole.folder.glob("serving/*/v*")) == [], "the checkpoint has what was served"
    assert list((whole.folder / "serving/next").iterdir()) == []


def check_timeline(whole: Whole) -> None:
    spans: list[dict[str, Any]] = read_json_lines(whole.folder / TIMELINE_FILE)
    assert all(span["start_s"] <= span["end_s"] for span in spans)
    counts = Counter((span["loop"], span["name"]) for span in spans)
    counts.pop(("serve", "generate"), None)  # of what is sampled in half a second there is none
    assert counts == {
        ("collect", "held-out"): 3, ("collect", "group"): 12, ("judge", "group"): 12,
        ("train", "wait"): 4, ("train", "step"): 4, ("train", "checkpoint"): 4,
        ("serve", "swap"): 4,
    }  # fmt: skip
    groups = [span for span in spans if (span["loop"], span["name"]) == ("collect", "group")]
    assert sorted((span["group"], span["version"]) for span in groups) == [
        (n, n // 3) for n in range(12)
    ]
    measured = [span["step"] for span in spans if span["name"] == "held-out"]
    assert measured == [0, 2, 4]
    lines = read_json_lines(whole.folder / "evaluations.jsonl")
    taught = Counter(line["version"] for line in lines if line["type"] == "taught")
    assert taught == {1: 4, 2: 4, 3: 4, 4: 4}, "some of each update"


def check_end(whole: Whole) -> None:
    assert whole.left == set()
    second, third = whole.second, whole.third
    assert (second.folder, second.report) == (whole.folder, whole.folder / "report.html")
    assert {step: (one.n, one.success) for step, one in second.evaluations.items()} == {
        4: (8, 3 / 8)
    }
    assert (third.folder, third.report, third.evaluations) == (second.folder, second.report, {})
    assert "Say it at once." in second.report.read_text()
    starts = json.loads((whole.folder / "run.json").read_text())["starts"]
    assert len(starts) == 2
    for path in (whole.folder / DATABASE_FILE, whole.folder / "config.yaml"):
        assert path.stat().st_mode & 0o077 == 0, "its owner's alone"
