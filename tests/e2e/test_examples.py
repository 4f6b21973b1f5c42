"""The examples in real runs, and seams that a package outside of this repository fills."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from clawrl_gym.run.export import export_run
from clawrl_gym.store import StoreReader
from tests.e2e import runs

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.sandbox,
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]

SMALL = ("rollout.groups=4", "rollout.group_size=4", "rollout.envs_per_worker=16", "eval.tasks=4")

OUTSIDE = {
    "__init__.py": "",
    "seams.py": '''
"""Seams of somebody else's package."""

import json
import time
from pathlib import Path

from pydantic import BaseModel

import clawrl_gym as cg
from clawrl_gym.agents.text import TextAgent


class Signed(cg.Algorithm):
    """+scale for what succeeded, -scale for what did not: one number a token."""

    class Options(BaseModel):
        scale: float = 1.0

    def __init__(self, options):
        super().__init__()
        self._scale = options.scale

    def weights(self, group, segments_G, verdicts_G, prompts_G):
        self.counts["used"] += 1
        return [
            {
                turn: cg.TurnWeights(
                    advantage=[self._scale if episode.success else -self._scale] * length
                )
                for segment in segments
                for turn, (_, length) in segment.spans.items()
            }
            for episode, segments in zip(group.episodes_G, segments_G)
        ]


class Tempering(BaseModel):
    power: float = 1.0


def tempered(tokens, options: Tempering):
    """PPO without a bound, whose ratio has a power; all tokens count as clipped, to be seen."""
    ratio_M = tokens.ratio_M ** options.power
    loss_M = -ratio_M * tokens.advantages_M * tokens.importance_M
    return cg.TokenLoss(loss_M, tokens.advantages_M != 0)


class Pessimist:
    """Every turn is bad."""

    kind = "rule"

    async def judge(self, case):
        return cg.Verdict(case.turn_id, "rule", -1, -1.0, {"why": "outside"}, time.time())


class Polite(TextAgent):
    """The text agent, whose system message says please."""

    def __init__(self):
        super().__init__("Please do as you are told.")


class Lines:
    """A line of JSON for each step."""

    def __init__(self, folder, config):
        self._file = (Path(folder) / "outside.jsonl").open("a")

    def log(self, step, values):
        self._file.write(json.dumps({"step": step, "n": len(values)}) + chr(10))
        self._file.flush()

    def close(self):
        self._file.close()
''',
    "learner.py": '''
"""A learner of somebody else's package: ours, and a note of every step."""

from pathlib import Path

from clawrl_gym.trainers.updates.learner import Learner


class Noting(Learner):
    def save_weights(self, folder):
        super().save_weights(folder)
        (Path(folder).parent / "noted").write_text(str(self.updates))
''',
}


async def test_a_loop_of_ones_own_learns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from examples import rl_loop

    monkeypatch.setattr(rl_loop, "GROUPS", 4)
    monkeypatch.setattr(rl_loop, "HELDOUT_TASKS", 24)
    success = await rl_loop.main(2, ["learner.threads=1"])
    printed = capsys.readouterr().out
    assert printed.count("swap 0.") == 2
    before = int(printed.partition("held-out before: ")[2].partition("%")[0]) / 100
    assert success > before - 0.05  # ten updates lift it


@pytest.fixture(scope="module")
def outside(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of an environment unchanged, every seam filled by a package outside of this one.

    It begins with what another run has learned, exported.
    """
    package = tmp_path_factory.mktemp("elsewhere") / "outside_pkg"
    package.mkdir()
    for name, text in OUTSIDE.items():
        (package / name).write_text(text)
    shutil.copy(Path(__file__).with_name("guess_env.py"), package / "env.py")
    exported = export_run(trained, tmp_path_factory.mktemp("exported") / "model", dtype="bfloat16")
    folder = tmp_path_factory.mktemp("outside") / "run"
    done = subprocess.run(
        runs.command(
            folder,
            *SMALL,
            "trainer.steps=2",
            f"policy.model={exported.folder}",
            "env.target=outside_pkg.env:SayEnv",
            "env.max_turns=1",
            "trainer.algorithm=outside_pkg.seams:Signed",
            "trainer.options.scale=0.5",
            "loss=outside_pkg.seams:tempered",
            "trainer.loss.options.power=0.5",
            "judge=outside_pkg.seams:Pessimist",
            "agent=outside_pkg.seams:Polite",
            "learner=outside_pkg.learner:Noting",
            "logger=outside_pkg.seams:Lines",
        ),
        cwd=runs.ROOT,
        env={**os.environ, "PYTHONPATH": f"{package.parent}{os.pathsep}{runs.ROOT}"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return folder


def test_every_seam_takes_a_class_of_an_outside_package(outside: Path) -> None:
    lines = (outside / "outside.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines]
    assert {0, 1, 2} <= set(steps)
    assert (outside / "serving/noted").read_text() == "2"
    store = StoreReader(outside)
    try:
        samples = store.samples_of_update(1)
        turns = [turn for row in store.sessions()[:8] for turn in store.turns_of(row.id)]
    finally:
        store.close()
    weights = {
        a
        for sample in samples
        for a, m in zip(sample.advantages_T, sample.mask_T, strict=True)
        if m
    }
    assert weights
    assert weights <= {0.5, -0.5}
    assert all(str(turn.messages[0]["content"]).startswith("Please") for turn in turns)
    rows = runs.metrics(outside)
    assert any(row.get("judge/mean") == -1.0 for row in rows)
    assert [row["learner/clip_share"] for row in rows if "learner/clip_share" in row] == [1.0, 1.0]


def test_an_environment_of_ones_own_trains_unchanged(outside: Path) -> None:
    rows = runs.metrics(outside)
    assert [row["step"] for row in rows if "swap/pause_s" in row] == [1, 2]
    assert sum(1 for row in rows if "heldout/success" in row) == 2


def test_an_exported_model_trains_as_it_is_served(outside: Path) -> None:
    gaps = [row["logprob_gap/mean"] for row in runs.metrics(outside) if "logprob_gap/mean" in row]
    assert gaps
    assert max(gaps) < 0.15  # what is served is rounded to the export's bfloat16


@pytest.mark.nightly  # by day the outside package's environment trains, and this one is played
def test_the_examples_environment_trains(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    runs.train(
        folder, *SMALL, "trainer.steps=1", "env.target=examples.own_environment:WordOrderEnv"
    )
    assert any("heldout/success" in row for row in runs.metrics(folder))
