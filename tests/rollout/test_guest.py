"""An agent inside the episode's sandbox: what it reaches, what its end is worth, what is left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.agents.cli.recipe import AGENT_FOLDER, HOME, Guest, Recipe
from clawrl_gym.config import AgentConfig
from clawrl_gym.core.types import Episode, Message, StopReason, TaskRef
from clawrl_gym.envs.sandbox.bubblewrap import open_sandbox
from clawrl_gym.envs.sandbox.interface import Limits
from clawrl_gym.envs.showcase.swe.corpus import make_instance
from clawrl_gym.envs.swe.env import SweEnv
from clawrl_gym.envs.terminal.config import TerminalEnvConfig
from clawrl_gym.envs.terminal.env import TerminalEnv
from clawrl_gym.envs.terminal.source import open_source
from clawrl_gym.envs.toolcall.config import ToolCallEnvConfig
from clawrl_gym.rollout.collection.worker import RolloutWorker
from clawrl_gym.rollout.episodes.chat import GatewayChat, PolicyAddress
from clawrl_gym.rollout.episodes.episode import EpisodeSpec
from clawrl_gym.rollout.episodes.guest import run_guest
from clawrl_gym.rollout.episodes.guest_process import GuestProcess
from clawrl_gym.rollout.episodes.stage import one_stage
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
SPEC = EpisodeSpec("g", 5, TaskRef(TASK_ID, 3, "train"), max_turns=12, timeout_s=60.0)
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
    reply: Callable[[list[Message]], str] | None = None,
    guest: Guest | None = None,
    env: Any = None,
    spec: EpisodeSpec | None = None,
) -> Episode:
    """One episode of a Python program inside a sandbox; what it needs to ask is there."""
    bench.policy._reply = reply or Scripted(*replies)
    policy = PolicyAddress(bench.url, bench.gateway.key, "tiny")
    chat = GatewayChat(policy, 20.0, limit=4)
    env = env or TerminalEnv(tasks="plain", max_turns=12, sandbox=LIMITS)
    guest = guest or Guest(Recipe(("python3", "-c", ASK + program)), timeout_s=timeout_s)

    async def call(function: Any, *arguments: Any, **options: Any) -> Any:
        work = partial(function, *arguments, **options)
        return await asyncio.get_running_loop().run_in_executor(thread, work)

    try:
        return await run_guest(spec or SPEC, env, guest, policy, chat, call)
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
    episode = await play(bench, thread, endless, spec=replace(SPEC, max_turns=3))
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


async def test_a_policy_that_fails_is_not_the_agents_doing(
    bench: Bench, thread: ThreadPoolExecutor
) -> None:
    def dies(messages: list[Message]) -> str:
        bench.policy.down = 1_000_000
        return "one"

    again = """
ask(history)
try:
    ask(history)
except OSError as error:
    print("the policy:", error)
"""
    episode = await play(bench, thread, again, reply=dies)
    assert (episode.stop_reason, episode.reward) == (StopReason.POLICY_ERROR, None)
    assert "the policy answered with status 502" in (episode.error or "")


async def test_a_failure_that_the_agent_got_over_is_forgotten(
    bench: Bench, thread: ThreadPoolExecutor
) -> None:
    retry = """
for _ in range(100):
    try:
        ask(history)
        break
    except OSError as error:
        print(error)
"""
    bench.policy.down = 1
    episode = await play(bench, thread, retry)
    assert (episode.stop_reason, episode.turns) == (StopReason.TERMINATED, 1), episode.error


async def test_an_agent_that_hangs_up_in_the_middle_of_a_reply_is_no_failure_of_the_policy(
    bench: Bench, thread: ThreadPoolExecutor
) -> None:
    leave = """
import http.client
for _ in range(3):
    link = http.client.HTTPConnection(os.environ["OPENAI_BASE_URL"].split("/")[2])
    body = json.dumps({"model": "tiny", "messages": history, "stream": True})
    link.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    link.sock.recv(20)
    link.sock.close()
"""
    bench.policy.piece_s = 0.01
    episode = await play(
        bench, thread, leave, "a long reply " * 40, "the next one " * 40, "and one " * 40
    )
    assert (episode.stop_reason, episode.reward) == (StopReason.TERMINATED, 0.0), episode.error


async def test_an_agent_that_kills_all_around_it_concerns_itself_alone(
    bench: Bench, thread: ThreadPoolExecutor
) -> None:
    kill = "ask(history)\nos.kill(-1, 9)"
    episode = await play(bench, thread, kill, timeout_s=20.0)
    assert (episode.stop_reason, episode.reward) == (StopReason.TRUNCATED, 0.0), episode.error


async def test_an_agent_that_takes_all_processes_is_ended_and_graded(
    bench: Bench, thread: ThreadPoolExecutor
) -> None:
    crowd = """
ask(history)
while True:
    try:
        os.fork() or time.sleep(1000)
    except OSError:
        time.sleep(1000)
"""
    episode = await play(bench, thread, crowd, timeout_s=6.0)
    assert (episode.stop_reason, episode.reward) == (StopReason.TRUNCATED, 0.0), episode.error


async def test_an_evaluations_temperature_takes_the_place_of_the_agents(
    bench: Bench, thread: ThreadPoolExecutor
) -> None:
    await play(bench, thread, "ask(history)", spec=replace(SPEC, temperature=0.25))
    assert bench.policy.samplings[-1].temperature == 0.25


async def test_a_folder_of_ones_own_is_the_agents_installation(
    bench: Bench, thread: ThreadPoolExecutor, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(ASK + PLAY)
    recipe = Recipe(("python3", "{agent}/program.py"))
    guest = Guest(recipe, {AGENT_FOLDER: str(tmp_path)})
    episode = await play(bench, thread, "", *SOLUTION, guest=guest)
    assert (episode.stop_reason, episode.reward) == (StopReason.TERMINATED, 1.0), episode.error


def test_nothing_of_an_agent_but_its_work_is_left() -> None:
    script = "echo said; touch /root/work; echo 7 >/tmp/clawrl-agent/exit"
    with open_sandbox(Limits(memory_mb=256, disk_mb=32, pids=48)) as sandbox:
        process = GuestProcess.started(sandbox, {f"{HOME}/start": script})
        while process.is_alive():
            pass
        ended = process.end("")
        process.clean()
        assert (ended.code, ended.output) == (7, "said")
        assert sandbox.exec("ls -A /tmp /root", 5).output.split() == ["/root:", "work", "/tmp:"]


async def test_a_worker_plays_episodes_of_an_agent_inside(bench: Bench) -> None:
    bench.policy._reply = Scripted(*SOLUTION)
    agent = AgentConfig(type="cli", command=["python3", "-c", ASK + PLAY])
    config = TerminalEnvConfig.of({"tasks": "plain", "sandbox": LIMITS}, "env.")
    policy = PolicyAddress(bench.url, bench.gateway.key, "tiny")
    worker = RolloutWorker(one_stage(config, agent, 60.0), 1, policy, 20.0)
    try:
        episode = await worker.run(SPEC)
    finally:
        await worker.close()
    assert (episode.stop_reason, episode.reward) == (StopReason.TERMINATED, 1.0), episode.error


async def test_an_environment_without_a_sandbox_cannot_hold_an_agent(bench: Bench) -> None:
    agent = AgentConfig(type="cli", command=["true"])
    policy = PolicyAddress(bench.url, bench.gateway.key, "tiny")
    worker = RolloutWorker(one_stage(ToolCallEnvConfig(), agent, 60.0), 1, policy, 20.0)
    try:
        episode = await worker.run(replace(SPEC, task=TaskRef(None, 3, "train")))
    finally:
        await worker.close()
    assert (episode.stop_reason, episode.reward) == (StopReason.ENV_ERROR, None)
    assert "has no sandbox that an agent could work in" in (episode.error or "")


@pytest.mark.slow
async def test_an_agent_repairs_a_repository(bench: Bench, thread: ThreadPoolExecutor) -> None:
    task = "swe-operator-train-000000"
    gold = make_instance(task).patch.rstrip("\n")
    env = SweEnv(sandbox={"type": "bubblewrap", "memory_mb": 512, "disk_mb": 256, "pids": 64})
    spec = replace(SPEC, task=TaskRef(task, 0, "train"), timeout_s=300.0)
    apply = f"git apply <<'EOF'\n{gold}\nEOF"
    episode = await play(bench, thread, PLAY, "ls", apply, env=env, spec=spec)
    assert (episode.stop_reason, episode.reward) == (StopReason.TERMINATED, 1.0), episode.error
    assert episode.turns == 3
