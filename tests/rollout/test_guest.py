"""An agent inside the episode's sandbox: what it reaches, what its end is worth, what is left."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from clawrl_gym.agents.cli.recipe import HOME, Guest, Recipe
from clawrl_gym.core.types import Episode, Message, StopReason, TaskRef
from clawrl_gym.envs.terminal.config import TerminalEnvConfig
from clawrl_gym.envs.terminal.env import TerminalEnv
from clawrl_gym.envs.terminal.source import open_source
from clawrl_gym.rollout.episodes.chat import GatewayChat, PolicyAddress
from clawrl_gym.rollout.episodes.episode import EpisodeSpec
from clawrl_gym.rollout.episodes.guest import run_guest
from tests.support.gateway_rig import Bench

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(120)]

ASK = """
import json, os, subprocess, sys, time, urllib.request
def ask(messages, path="/chat/completions"):
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + path,
        json.dumps({"model": os.environ["CLAWRL_MODEL"], "messages": messages}).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
         "Content-Type": "application/json"},
    )
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]
def run(command):
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    return done.stdout + done.stderr
history = [{"role": "user", "content": sys.stdin.read()}]
"""
PLAY = """
while True:
    reply = ask(history)
    if reply["content"] == "done":
        break
    history += [reply, {"role": "user", "content": run(reply["content"]) or "(nothing)"}]
"""
CONFIG = TerminalEnvConfig.of({"tasks": "plain"}, "env.")
TASK_ID = open_source(CONFIG).ids("train")[0]
SOLUTION = open_source(CONFIG).load(TASK_ID).solution
LIMITS = {"memory_mb": 256, "disk_mb": 32, "pids": 48}


class Scripted:
    """Says its replies in order, then "done"."""

    def __init__(self, *replies: str) -> None:
        self._replies = list(replies)
        self.asked: list[list[Message]] = []

    def __call__(self, messages: list[Message]) -> str:
        self.asked.append(messages)
        return self._replies.pop(0) if self._replies else "done"


@pytest.fixture(scope="module")
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as one:
        yield one


async def play(
    bench: Bench,
    thread: ThreadPoolExecutor,
    program: str,
    *replies: str,
    timeout_s: float | None = None,
    max_turns: int = 12,
    task_id: str = TASK_ID,
) -> Episode:
    """One episode of a Python program inside a sandbox; what it needs to ask is there."""
    bench.policy._reply = Scripted(*replies)
    policy = PolicyAddress(bench.url, bench.gateway.key, "tiny")
    chat = GatewayChat(policy, 20.0, limit=4)
    env = TerminalEnv(tasks="plain", max_turns=max_turns, sandbox=LIMITS)
    guest = Guest(Recipe(("python3", "-c", ASK + program)), timeout_s=timeout_s)
    spec = EpisodeSpec("g", 5, TaskRef(task_id, 3, "train"), max_turns, timeout_s=60.0)

    async def call(function: Any, *arguments: Any, **options: Any) -> Any:
        work = partial(function, *arguments, **options)
        return await asyncio.get_running_loop().run_in_executor(thread, work)

    try:
        return await run_guest(spec, env, guest, policy, chat, call)
    finally:
        await chat.close()
        await call(env.close)


async def session(bench: Bench) -> Any:
    return (await bench.get("/v1/sessions/g"))[1]


async def test_an_agent_that_solves_its_task_earns_the_reward(
    bench: Bench, thread: ThreadPoolExecutor
) -> None:
    episode = await play(bench, thread, PLAY, *SOLUTION)
    assert (episode.stop_reason, episode.reward) == (StopReason.TERMINATED, 1.0), episode.error
    assert episode.turns == len(SOLUTION) + 1
    told = await session(bench)
    assert (told["group_id"], told["source"], told["reward"]) == (5, "rollout", 1.0)
    assert len(told["turns"]) == len(SOLUTION) + 1
    first, last = told["turns"][0], told["turns"][-1]
    assert first["next_state"][0]["role"] == "user"
    assert last["next_state"] == [{"role": "user", "content": "Test report: passed"}]


async def test_an_agent_that_does_nothing_useful_is_graded_as_it_is(
    bench: Bench, thread: ThreadPoolExecutor
) -> None:
    episode = await play(bench, thread, PLAY)
    assert (episode.stop_reason, episode.reward, episode.turns) == (StopReason.TERMINATED, 0.0, 1)


async def test_an_agent_that_crashes_is_graded_and_its_last_words_are_kept(
    bench: Bench, thread: ThreadPoolExecutor
) -> None:
    crash = PLAY + 'sys.exit("out of ideas")'
    episode = await play(bench, thread, crash, *SOLUTION)
    assert (episode.stop_reason, episode.reward) == (StopReason.TRUNCATED, 1.0)
    assert "ended with exit code 1" in (episode.error or "")
    assert "out of ideas" in (episode.error or "")


async def test_an_agent_that_hangs_is_ended_and_graded(
    bench: Bench, thread: ThreadPoolExecutor
) -> None:
    hang = "ask(history)\ntime.sleep(1000)"
    episode = await play(bench, thread, hang, timeout_s=3.0)
    assert (episode.stop_reason, episode.reward) == (StopReason.TRUNCATED, 0.0), episode.error
    assert "had not ended in time" in (episode.error or "")


@pytest.mark.parametrize("program", ["pass", "raise SystemExit(3)", "import no_such_module"])
async def test_an_agent_that_never_asks_the_policy_earns_nothing(
    bench: Bench, thread: ThreadPoolExecutor, program: str
) -> None:
    episode = await play(bench, thread, program)
    assert (episode.stop_reason, episode.reward) == (StopReason.ENV_ERROR, None)
    assert "never got a reply of the policy" in (episode.error or "")


async def test_replies_are_bounded_by_the_environments_turns(
    bench: Bench, thread: ThreadPoolExecutor
) -> None:
    endless = "while True:\n    history.append(ask(history))"
    episode = await play(bench, thread, endless, max_turns=3)
    assert (episode.stop_reason, episode.reward, episode.turns) == (StopReason.TRUNCATED, 0.0, 3)
    assert "more than the task's 3 replies" in (episode.error or "")
    assert len((await session(bench))["turns"]) == 3


async def test_forked_histories_and_sub_agents_are_turns_of_the_same_session(
    bench: Bench, thread: ThreadPoolExecutor
) -> None:
    fork = """
one = ask(history)
ask([{"role": "system", "content": "You are a sub-agent."}, {"role": "user", "content": "look"}])
for word in ("left", "right"):
    ask([*history, one, {"role": "user", "content": word}])
"""
    episode = await play(bench, thread, fork, "a", "b", "c", "d")
    assert (episode.stop_reason, episode.turns) == (StopReason.TERMINATED, 4), episode.error
    turns = (await session(bench))["turns"]
    assert sorted(turn["reply"]["content"] for turn in turns) == ["a", "b", "c", "d"]


async def test_a_policy_that_fails_is_no_end_of_the_agents(
    bench: Bench, thread: ThreadPoolExecutor
) -> None:
    twice = """
ask(history)
try:
    ask(history)
except Exception as error:
    print("the policy:", error)
"""

    bench.policy._reply = None
    policy_fails = iter([False, True])

    class Failing(Scripted):
        def __call__(self, messages: list[Message]) -> str:
            if next(policy_fails, True):
                raise RuntimeError("the engine is gone")
            return "one"

    policy = PolicyAddress(bench.url, bench.gateway.key, "tiny")
    assert policy.session_url("g").endswith("/sessions/g/v1")
    assert Failing and twice


async def test_nothing_of_the_agent_but_its_work_is_left(
    bench: Bench, thread: ThreadPoolExecutor
) -> None:
    env = TerminalEnv(tasks="plain", sandbox=LIMITS)

    async def call(function: Any, *arguments: Any, **options: Any) -> Any:
        work = partial(function, *arguments, **options)
        return await asyncio.get_running_loop().run_in_executor(thread, work)

    assert HOME.startswith("/tmp/")
    await call(env.close)
