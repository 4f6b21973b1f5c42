"""The main job with a small budget: real vLLM, real sandboxes, real gradients, real swaps."""

import os
import random
import shutil
import signal
import subprocess
import sys
from math import inf
from pathlib import Path

import pytest

from clawrl_gym.config import RunConfig
from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.core.processes.descendants import command_of, descendants
from clawrl_gym.run_folder.folder import RunFolder
from clawrl_gym.store import StoreReader
from tests.chaos.assault import Assault
from tests.chaos.targets import target_of
from tests.e2e import runs

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.sandbox,
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
]

STEPS = runs.TRAINED_STEPS
QUICK = ("rollout.groups=4", "rollout.group_size=4", "eval.tasks=8", "rollout.envs_per_worker=16")


MIXED = (
    "env=[terminal,toolcall,conversation]", "mixture={terminal:2}", "curriculum=pass_rate",
    "trainer=hybrid", "judge=rule",
)  # fmt: skip


def test_held_out_success_rises(trained: Path) -> None:
    held_out = [row for row in runs.metrics(trained) if "heldout/success" in row]
    assert held_out[0]["step"] == 0
    assert held_out[-1]["step"] == STEPS
    assert held_out[0]["heldout/n"] == held_out[-1]["heldout/n"] == 44
    assert held_out[-1]["heldout/success"] >= held_out[0]["heldout/success"] + 0.05


@pytest.mark.nightly
def test_the_run_without_arguments_learns_to_do_two_things(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    runs.train(folder)
    held_out = [row for row in runs.metrics(folder) if "heldout/success" in row]
    assert held_out[-1]["heldout/success/two"] >= held_out[0]["heldout/success/two"] + 0.1
    assert held_out[-1]["heldout/success/one"] >= 0.9


@pytest.mark.nightly
def test_a_run_of_single_commands_solves_nearly_all_held_out_tasks(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    runs.train(folder, "env=terminal")
    held_out = [row for row in runs.metrics(folder) if "heldout/success" in row]
    assert held_out[-1]["heldout/success"] >= 0.85


def test_what_is_elsewhere_is_what_the_run_kept(trained: Path) -> None:
    there = trained.parent / "there" / trained.name
    for place in (trained, there):
        kept = sorted(path.name for path in (place / "checkpoints").iterdir())
        assert kept[-1] == f"{STEPS:06d}"
        assert len(kept) >= 2
    for own in (trained / "checkpoints").rglob("*"):
        if own.is_file():
            copy = there / own.relative_to(trained)
            assert copy.read_bytes() == own.read_bytes(), own
    held_out = [row for row in runs.metrics(there) if "heldout/success" in row]
    assert held_out[-1]["step"] == STEPS, "measured after the last checkpoint"


def test_every_update_reports_what_people_look_at(trained: Path) -> None:
    updates = [row for row in runs.metrics(trained) if "swap/pause_s" in row]
    assert [row["policy/version"] for row in updates] == list(range(1, STEPS + 1))
    for name in ("train/reward", "rollout/tokens_per_s"):
        assert any(name in row for row in updates)
    for name in ("learner/tokens_per_s", "staleness/mean"):
        assert all(name in row for row in updates)
    gaps = [row["logprob_gap/mean"] for row in updates if "logprob_gap/mean" in row]
    assert gaps
    assert max(gaps) < 0.1


def test_every_sampled_token_knows_its_version_and_turns_merge(trained: Path) -> None:
    store = StoreReader(trained)
    try:
        sessions = store.sessions()
        turns = [turn for row in sessions[:200] for turn in store.turns_of(row.id)]
        batch = store.samples_of_update(3)
    finally:
        store.close()
    assert all(len(t.versions_T) == len(t.sampled_ids_T) == len(t.logprobs_T) for t in turns)
    assert all(version >= 0 for turn in turns for version in turn.versions_T)
    assert all(0 <= sample.oldest_version <= 2 for sample in batch)


def test_every_episode_has_an_outcome_and_none_failed(trained: Path) -> None:
    outcomes = read_json_lines(trained / "evaluations.jsonl")
    ended = [row for row in outcomes if row["type"] == "session_end"]
    assert len(ended) > STEPS * 16
    assert all(row["reward"] is not None for row in ended if row["stop_reason"] == "terminated")


def test_the_report_is_written(trained: Path) -> None:
    page = (trained / "report.html").read_text()
    assert "held-out" in page
    assert "http://" not in page.replace("http://www.w3.org", "").replace("http://127.0.0.1", "")


def test_nothing_is_left_after_a_run(trained: Path) -> None:
    assert runs.left_behind(trained) == []


def test_a_second_run_on_the_same_folder_is_refused(trained: Path) -> None:
    done = runs.start(trained)
    output, _ = done.communicate(timeout=120)
    assert done.returncode == 2
    assert "holds a run already" in output
    assert len(runs.metrics(trained)) > STEPS


def test_a_complete_run_says_so_and_starts_nothing(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from clawrl_gym.train import main

    before = runs.metrics(trained)
    assert main([f"resume={trained}", "ui=line"]) == 0
    output = capsys.readouterr().out
    assert f"is complete: {STEPS} of {STEPS} updates" in output
    assert f"report: {trained / 'report.html'}" in output
    assert "vLLM" not in output
    assert runs.metrics(trained) == before


def test_a_killed_run_goes_on_where_it_stopped(trained: Path, tmp_path: Path) -> None:
    """It began with another run's checkpoint, which is gone when it is resumed.

    It is one of several environments, with a curriculum, and learns from outcomes and hints.
    """
    folder, other = tmp_path / "run", tmp_path / "other"
    shutil.copytree(trained / "checkpoints", other / "checkpoints")
    first = runs.start(folder, *QUICK, *MIXED, "trainer.steps=4", f"policy.model={other}")
    runs.wait_for_line(first, "step 2/4")
    below = descendants(first.pid)
    first.kill()
    first.communicate(timeout=60)
    shutil.rmtree(other)
    store = StoreReader(folder)
    before = store.updates()[-1].version
    store.close()

    from clawrl_gym.train import main

    assert main([f"resume={folder}", "dry_run=true"]) == 0
    done = subprocess.run(
        [sys.executable, "-m", "clawrl_gym.train", f"resume={folder}", "ui=line"],
        cwd=runs.ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"resumed at version {before}" in done.stdout
    store = StoreReader(folder)
    versions = [update.version for update in store.updates()]
    outcomes = store.group_outcomes()
    store.close()
    assert versions == list(range(1, 5))
    check_mixture(folder, outcomes)
    check_distilled_turns(folder)
    assert max(row.get("logprob_gap/mean", 0.0) for row in runs.metrics(folder)) < 0.01
    # Ray's agents notice the death of their node only after half a minute.
    assert runs.still_alive(below, within_s=90) == set()


def check_mixture(folder: Path, outcomes: list[tuple[int, str | None, int, int]]) -> None:
    """Each group is of the environment whose turn its number was, in one process and the next."""
    config = RunFolder(folder).read_config(RunConfig)
    ids = {name: domain.env.task_ids("train") or () for name, domain in config.domains.items()}
    order = ["terminal", "toolcall", "conversation", "terminal"] * len(outcomes)
    assert all(task_id in ids[order[number]] for number, task_id, _, _ in outcomes)
    assert {order[number] for number, *_ in outcomes} == set(ids)
    rows = runs.metrics(folder)
    for name in ids:
        assert any(f"env/{name}/train/success" in row for row in rows)
        assert rows[-1][f"env/{name}/heldout/n"] == 8
        assert any(f"env/{name}/curriculum/between" in row for row in rows)


def check_distilled_turns(folder: Path) -> None:
    """In both processes tokens were rewarded, and others taught by what a failed check said."""
    store = StoreReader(folder)
    hints = {
        hint
        for row in store.sessions()
        for verdicts in store.verdicts_of(row.id).values()
        for verdict in verdicts
        for hint in verdict.hints
    }
    store.close()
    assert any(hint.startswith("The checks failed: ") for hint in hints)
    updates = [row for row in runs.metrics(folder) if "learner/loss" in row]
    assert len(updates) == 4
    assert any(row["objective/policy_gradient"] > 0 for row in updates)
    for half in (updates[:2], updates[2:]):
        assert any(row["objective/distillation_topk"] > 0 for row in half)


@pytest.mark.nightly
def test_a_run_goes_on_after_all_its_parts_were_killed_one_after_the_other(tmp_path: Path) -> None:
    """The short form of `make chaos`."""
    draw = random.Random(1)
    target = target_of(tmp_path / "chaos", "terminal", 1, 40)
    assault = Assault(target)
    try:
        assault.begin()
        for name in ("kill worker", "kill learner", "kill engine", "kill raylet", "kill driver"):
            assert assault.fault(name, draw, recovery_s=inf).violations == [], name
        assert assault.finish(within_s=300) == []
    finally:
        target.close()
        target.remove_disk()


@pytest.mark.parametrize(
    ("until", "number"),
    [
        ("Ray: starting", signal.SIGTERM),
        pytest.param("vLLM: loading weights", signal.SIGTERM, marks=pytest.mark.nightly),
        # By day with a stand-in for vLLM, in tests/run/test_whole_training.py.
        pytest.param("step 1/", signal.SIGINT, marks=pytest.mark.nightly),
    ],
)
def test_a_signal_ends_everything_and_names_how_to_go_on(
    until: str, number: signal.Signals, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    run = runs.start(folder, *QUICK, "trainer.steps=50")
    runs.wait_for_line(run, until)
    below = descendants(run.pid)
    output = runs.interrupt(run, number)
    assert run.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[number]
    assert output.endswith(f"resume with: python -m clawrl_gym.train resume={folder}\n")
    assert "Traceback" not in output
    assert runs.still_alive(below) == set()


def test_a_run_that_loses_ray_says_so_and_how_to_go_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run = runs.start(folder, *QUICK, "trainer.steps=50")
    runs.wait_for_line(run, "workers: ready")
    below = descendants(run.pid)
    raylets = [pid for pid in below if command_of(pid) == "raylet"]
    assert len(raylets) == 1
    os.kill(raylets[0], signal.SIGKILL)
    output, _ = run.communicate(timeout=60)
    assert run.returncode == 3
    lines = output.splitlines()  # Ray's own may stand between and below
    error = next(at for at, line in enumerate(lines) if line.startswith("error: "))
    assert lines[error].startswith("error: ClusterError: Ray's raylet ended")
    assert f"resume with: python -m clawrl_gym.train resume={folder}" in lines[error:]
    assert runs.still_alive(below) == set()
