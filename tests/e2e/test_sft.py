"""The recipe of docs/recipes.md in small: SFT on demonstrations, RL, and SFT on what RL played."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.inference.models.renderer import ChatRenderer
from clawrl_gym.inference.models.resolve import resolve_model
from clawrl_gym.inference.weights.checkpoints import last_checkpoint
from clawrl_gym.run_folder.folder import RunFolder
from clawrl_gym.store import StoreReader
from tests.support.pages import ROOT, Page

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.sandbox,
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(900),
]
SHORT = {
    "sft": ("demonstrations=12", "epochs=2", "batch=4", "heldout=0.2"),
    "train": (
        "ui=line", "rollout.groups=2", "rollout.group_size=2", "rollout.envs_per_worker=8",
        "trainer.steps=1", "eval.tasks=2",
    ),
}  # fmt: skip


def recipe() -> list[list[str]]:
    """The two commands of the page."""
    commands = Page(ROOT / "docs/recipes.md").commands
    of_sft = [words for words in commands if any("runs/sft" in word for word in words)]
    assert [words[2] for words in of_sft] == ["clawrl_gym.sft", "clawrl_gym.train"]
    return of_sft


@pytest.mark.parametrize("learner", ["adamw", "lora"])
def test_rl_goes_on_from_supervision_and_its_episodes_are_data_again(
    tmp_path: Path, learner: str
) -> None:
    for words in recipe():
        arguments = [word.replace("=MODEL", "=tiny_skills") for word in words[3:]]
        short = SHORT[words[2].rpartition(".")[2]]
        call(tmp_path, words[2], *arguments, *short, f"learner={learner}")
    begun = RunFolder(tmp_path / "runs/rl").read_values()["policy"]
    assert begun["model"] == "runs/sft/checkpoints/" + last_checkpoint(tmp_path / "runs/sft").name  # type: ignore[index]
    _check_renderings(tmp_path)
    rl = ("runs/rl", "policy.model=tiny_skills", "episodes.min_reward=0", "run.dir=runs/again")
    call(tmp_path, "clawrl_gym.sft", *rl, "steps=2", "heldout=0")
    assert len(list(read_json_lines(tmp_path / "runs/again/metrics.jsonl"))) == 2


def _check_renderings(folder: Path) -> None:
    """What this process renders of a request is what vLLM had read."""
    renderer = ChatRenderer(resolve_model("tiny_skills"))
    reader = StoreReader(folder / "runs/rl")
    turns = [turn for session in reader.sessions() for turn in reader.turns_of(session.id)]
    reader.close()
    assert turns
    firsts = [turn for turn in turns if turn.index == 0]
    for turn in firsts:
        assert renderer.prompt_ids(turn.messages, turn.tools) == turn.prompt_ids_T


def call(folder: Path, module: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=folder, capture_output=True, text=True, timeout=600,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout
