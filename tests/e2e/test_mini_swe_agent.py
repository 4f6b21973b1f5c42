"""The real mini-swe-agent works on an instance through a session's base URL."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.core.types import Episode, Message, StopReason, TaskRef
from clawrl_gym.envs.showcase.swe.corpus import make_instance
from clawrl_gym.envs.swe.env import SweEnv
from clawrl_gym.envs.swe.rows.instance import SUBMIT_MARK
from clawrl_gym.rollout.episodes.chat import GatewayChat, PolicyAddress
from clawrl_gym.rollout.episodes.episode import EpisodeSpec
from clawrl_gym.rollout.episodes.harness import Harness, run_harness
from tests.e2e.runs import ROOT
from tests.support.gateway_rig import Bench

pytestmark = [pytest.mark.sandbox, pytest.mark.slow, pytest.mark.timeout(600)]

LOCK = ROOT / "agents/cli/locks/mini-swe-agent/requirements.txt"
CACHE = ROOT / ".mini-swe-agent"
TASK = TaskRef("swe-operator-train-000000", 0, "train")
SANDBOX = {"type": "bubblewrap", "memory_mb": 512, "disk_mb": 256, "pids": 64}
PLAIN = ("-c", "mini_textbased.yaml", "--model-class", "litellm_textbased")
UV = Path(sys.executable).parent / "uv"
INSTALL_S = 280


def installed() -> str:
    """Python of a virtual environment with the locked packages; made on first use."""
    name = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
    folder, python = CACHE / name, CACHE / name / "bin" / "python"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not (folder / "whole").exists():
            shutil.rmtree(folder, ignore_errors=True)
            for command in (
                ["venv", "--quiet", "--python", sys.executable, str(folder)],
                [
                    "pip",
                    "install",
                    "--quiet",
                    "--python",
                    str(python),
                    "--no-deps",
                    "-r",
                    str(LOCK),
                ],
            ):
                subprocess.run([UV, *command], check=True, timeout=INSTALL_S)
            (folder / "whole").touch()
    return str(python)


class Scripted:
    """Says its replies in order, whatever is asked."""

    def __init__(self, *replies: str) -> None:
        self._replies = list(replies)
        self.asked: list[list[Message]] = []

    def __call__(self, messages: list[Message]) -> str:
        self.asked.append(messages)
        return self._replies[len(self.asked) - 1]


def block(command: str) -> str:
    return f"THOUGHT: next.\n\n```mswea_bash_command\n{command}\n```"


def gold() -> str:
    return make_instance(str(TASK.id)).patch.rstrip("\n")


async def play(bench: Bench, *options: str) -> Episode:
    """One episode of mini-swe-agent."""
    python = await asyncio.to_thread(installed)
    command = (python, "{agents}/mini_swe_agent.py", *options)
    harness = Harness(command, PolicyAddress(bench.url, bench.gateway.key, "tiny"))
    chat = GatewayChat(PolicyAddress(bench.url, bench.gateway.key, "tiny"), 30.0, limit=4)
    env = SweEnv(sandbox=SANDBOX)
    thread = ThreadPoolExecutor(1)

    async def call(function: Any, *arguments: Any, **options: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(thread, partial(function, *arguments, **options))

    spec = EpisodeSpec("mini", 7, TASK, max_turns=10, timeout_s=120.0)
    try:
        return await run_harness(spec, env, harness, chat, call)
    finally:
        await chat.close()
        await call(env.close)
        thread.shutdown()


async def test_mini_swe_agent_unmodified_solves_an_instance_through_the_session(
    bench: Bench,
) -> None:
    policy = Scripted(
        block("ls"),
        "I have no command.",
        block(f"git apply <<'EOF'\n{gold()}\nEOF"),
        block(f"echo {SUBMIT_MARK}"),
    )
    bench.policy._reply = policy
    episode = await play(bench, *PLAIN)
    assert (episode.stop_reason, episode.reward) == (StopReason.TERMINATED, 1.0), episode.error
    _, session, _ = await bench.get("/v1/sessions/mini")
    assert (session["task_id"], session["group_id"], session["reward"]) == (TASK.id, 7, 1.0)
    turns = session["turns"]
    assert [turn["kind"] for turn in turns] == ["main"] * 4
    states = ["".join(m["content"] for m in turn["next_state"] or []) for turn in turns]
    assert "<returncode>0</returncode>" in states[0]
    assert states[1] == ""  # it forgets a reply without a command: nothing came back to it
    assert "<returncode>0</returncode>" in states[2]
    assert states[3] == "(submitted)Test report: passed"


async def test_mini_swe_agent_that_gives_up_is_graded_as_it_left_the_repository(
    bench: Bench,
) -> None:
    bench.policy._reply = Scripted("Nothing.", "Nothing.", "Nothing.")
    episode = await play(bench, *PLAIN)
    assert (episode.stop_reason, episode.reward) == (StopReason.TRUNCATED, 0.0), episode.error
