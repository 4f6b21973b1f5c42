"""An external program as the agent: what it gets, what its end is worth, and what it cannot do."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from clawrl_gym.config import AgentConfig
from clawrl_gym.core.errors import PolicyError
from clawrl_gym.core.types import Episode, Message, StopReason, TaskRef
from clawrl_gym.envs.gym.config import GymEnvConfig
from clawrl_gym.rollout.collection.worker import RolloutWorker
from clawrl_gym.rollout.episodes.chat import GatewayChat, PolicyAddress
from clawrl_gym.rollout.episodes.deadline import Waits
from clawrl_gym.rollout.episodes.episode import EpisodeSpec
from clawrl_gym.rollout.episodes.harness import Harness, run_harness
from clawrl_gym.rollout.episodes.stage import one_stage
from tests.support.gateway_rig import Bench
from tests.support.waiting import becomes_true

TALK = """
import json, os, socket, sys, urllib.request
line = socket.socket(socket.AF_UNIX)
line.connect(os.environ["CLAWRL_SOCKET"])
lines = line.makefile("rwb")
def step(action):
    lines.write(json.dumps({"action": action}).encode() + b"\\n"); lines.flush()
    return json.loads(lines.readline())
def ask(messages):
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": os.environ["CLAWRL_MODEL"], "messages": messages}).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
         "Content-Type": "application/json"},
    )
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]
task = json.load(open(os.environ["CLAWRL_TASK"]))
history = [{"role": "user", "content": task["observation"]}]
"""
PLAY = """
for _ in range(20):
    reply = ask(history)
    answer = step(reply["content"])
    if answer["done"]:
        break
    history += [reply, {"role": "user", "content": answer["observation"]}]
"""
SPEC = EpisodeSpec("h", 5, TaskRef("t", 3, "train"), max_turns=9, timeout_s=30.0)


class Count:
    """Ends after `length` steps with the reward 1."""

    report = ""

    def __init__(self, length: int = 2) -> None:
        self.length, self.actions = length, list[str]()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.actions = []
        return "go", {"family": "count", "system": "be brief", "tools": []}

    def step(self, action: str) -> Any:
        if action == "break":
            raise OSError("disk gone")
        self.actions.append(action)
        over = len(self.actions) >= self.length
        self.report = "Test report: passed" if over else ""
        info = {"report": self.report, "returncode": 0}
        return f"saw {len(self.actions)}", float(over), over, False, info

    def finish(self) -> float:
        self.report = "Test report: failed\n- more was wanted"
        return 0.25


async def in_place(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


async def run(
    bench: Bench, program: str, env: Any = None, spec: EpisodeSpec = SPEC, *arguments: str
) -> Episode:
    """An episode of a Python program; what it needs to talk is there already."""
    command = (sys.executable, "-I", "-c", TALK + program, *arguments)
    chat = GatewayChat(PolicyAddress(bench.url, bench.gateway.key, "tiny"), 10.0, limit=4)
    harness = Harness(command, PolicyAddress(bench.url, bench.gateway.key, "tiny"))
    try:
        return await run_harness(spec, env or Count(), harness, chat, in_place)
    finally:
        await chat.close()


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def ends(pid: int) -> bool:
    """It was killed; on a busy machine the kernel takes a moment to carry that out."""
    return await asyncio.to_thread(becomes_true, lambda: is_gone(pid))


async def session(bench: Bench) -> Any:
    return (await bench.get("/v1/sessions/h"))[1]


async def test_a_program_plays_an_episode_and_each_next_state_belongs_to_its_turn(
    bench: Bench,
) -> None:
    replies = iter(["a", "b"])
    bench.policy._reply = lambda _: next(replies)
    episode = await run(bench, PLAY)
    assert (episode.stop_reason, episode.reward, episode.turns) == (StopReason.TERMINATED, 1.0, 2)
    assert episode.family == "count"
    told = await session(bench)
    assert (told["task_id"], told["group_id"], told["source"]) == ("t", 5, "rollout")
    assert (told["reward"], told["stop_reason"]) == (1.0, "terminated")
    assert [turn["next_state"] for turn in told["turns"]] == [
        [{"role": "user", "content": "saw 1"}],
        [
            {"role": "user", "content": "saw 2"},
            {"role": "user", "content": "Test report: passed"},
        ],
    ]


async def test_the_session_has_ended_before_the_program_hears_of_it(bench: Bench) -> None:
    late = """
ask(history)
step("a"); step("b")
try:
    ask(history + [{"role": "user", "content": "one more"}])
except urllib.error.HTTPError as error:
    assert error.code == 409, error.code
    assert step("c") == {"error": "the episode has ended", "done": True}
else:
    os._exit(3)
"""
    env = Count()
    episode = await run(bench, late, env)
    assert (episode.stop_reason, env.actions) == (StopReason.TERMINATED, ["a", "b"])
    assert len((await session(bench))["turns"]) == 1


async def test_a_program_that_ends_by_itself_is_graded_by_what_is_there(bench: Bench) -> None:
    episode = await run(bench, 'ask(history); step("a")')
    assert (episode.stop_reason, episode.reward) == (StopReason.TRUNCATED, 0.25)
    (turn,) = (await session(bench))["turns"]
    assert turn["next_state"] == [
        {"role": "user", "content": "Test report: failed\n- more was wanted"}
    ]


async def test_the_turn_budget_ends_it_and_what_is_there_is_graded(bench: Bench) -> None:
    spec = EpisodeSpec("h", 5, TaskRef("t", 3, "train"), max_turns=3, timeout_s=30.0)
    env = Count(99)
    episode = await run(bench, "while not step('a')['done']: pass", env, spec)
    assert (episode.stop_reason, episode.reward) == (StopReason.TRUNCATED, 0.25)
    assert len(env.actions) == 3


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("print('no model'); sys.exit(2)", "exit code 2: no model"),
        ("os.kill(os.getpid(), 9)", "-9"),
    ],
)
async def test_a_program_that_fails_is_never_a_reward(
    bench: Bench, program: str, told: str
) -> None:
    episode = await run(bench, program)
    assert (episode.stop_reason, episode.reward) == (StopReason.ENV_ERROR, None)
    assert told in (episode.error or "")


async def test_an_environment_that_fails_is_never_a_reward_whatever_the_program_does(
    bench: Bench,
) -> None:
    episode = await run(bench, 'step("break")')
    assert (episode.stop_reason, episode.reward) == (StopReason.ENV_ERROR, None)
    assert "disk gone" in (episode.error or "")


async def test_a_program_that_hangs_is_killed_with_all_that_it_started(
    bench: Bench, tmp_path: Path
) -> None:
    hang = (
        "import subprocess, time\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "time.sleep(600)"
    )
    spec = EpisodeSpec("h", 5, TaskRef("t", 3, "train"), max_turns=3, timeout_s=2.0)
    episode = await run(bench, hang, None, spec)
    assert (episode.stop_reason, episode.reward) == (StopReason.DEADLINE, 0.0)
    pid = int((tmp_path / "pid").read_text())
    assert await ends(pid)


class Heard:
    """A gateway that notes which ends it hears of."""

    reply: Any = None

    def __init__(self) -> None:
        self.ends: list[StopReason] = []

    async def begin(self, spec: EpisodeSpec) -> None:
        pass

    async def end(
        self, spec: EpisodeSpec, episode: Episode, next_state: list[Message] | None
    ) -> None:
        self.ends.append(episode.stop_reason)


async def test_a_step_that_outlives_the_deadline_does_nothing_more() -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()
    asked = list[str]()

    async def in_thread(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        asked.append(function.__name__)
        values = function(*args, **kwargs)
        if function.__name__ == "step":
            begun.set()
            await may_end.wait()
        return values

    async def waits(last_s: float) -> Waits:
        await begun.wait()
        return Waits()

    command = (sys.executable, "-I", "-c", TALK + "step('a')")
    harness = Harness(command, PolicyAddress("http://127.0.0.1:1/v1", "k", "tiny"))
    spec = EpisodeSpec("h", 5, TaskRef("t", 3, "train"), max_turns=1, timeout_s=0.5)
    gateway = Heard()
    episode = await run_harness(spec, Count(9), harness, gateway, in_thread, waits)
    may_end.set()
    for _ in range(50):
        await asyncio.sleep(0)
    assert episode.stop_reason is StopReason.DEADLINE
    assert (asked, gateway.ends) == (["reset", "step"], [StopReason.DEADLINE])


async def test_a_last_step_whose_answer_nobody_waits_for_counts() -> None:
    async def in_thread(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(1.0 if function.__name__ == "step" else 0.0)
        return function(*args, **kwargs)

    send = """lines.write(b'{"action": "a"}\\n'); lines.flush(); import time; time.sleep(0.2)"""
    command = (sys.executable, "-I", "-c", TALK + send)
    harness = Harness(command, PolicyAddress("http://127.0.0.1:1/v1", "k", "tiny"))
    gateway = Heard()
    episode = await run_harness(SPEC, Count(1), harness, gateway, in_thread)
    assert (episode.stop_reason, episode.reward) == (StopReason.TERMINATED, 1.0)
    assert gateway.ends == [StopReason.TERMINATED]


async def test_the_program_gets_of_the_info_what_json_can_say(bench: Bench, tmp_path: Path) -> None:
    class Arrays(Count):
        def step(self, action: str) -> Any:
            *rest, info = super().step(action)
            return *rest, {"array": np.zeros(3), "seconds": 1.5, **info}

    told = tmp_path / "told"
    await run(bench, f"step('a'); json.dump(step('b'), open({str(told)!r}, 'w'))", Arrays())
    assert json.loads(told.read_text())["info"] == {"seconds": 1.5, "returncode": 0}


async def test_a_program_that_cannot_be_started_says_so(bench: Bench) -> None:
    chat = GatewayChat(PolicyAddress(bench.url, bench.gateway.key, "tiny"), 10.0, limit=4)
    harness = Harness(("/nowhere/agent",), PolicyAddress(bench.url, bench.gateway.key, "tiny"))
    episode = await run_harness(SPEC, Count(), harness, chat, in_place)
    await chat.close()
    assert episode.stop_reason is StopReason.ENV_ERROR
    assert "cannot start the harness '/nowhere/agent'" in (episode.error or "")


async def test_a_gateway_that_is_not_there_is_a_policy_error(bench: Bench) -> None:
    class Deaf:
        async def begin(self, spec: EpisodeSpec) -> None:
            raise PolicyError("nobody there")

        async def end(
            self, spec: EpisodeSpec, episode: Episode, next_state: list[Message] | None
        ) -> None:
            raise PolicyError("nobody there")

        reply: Any = None

    harness = Harness(("true",), PolicyAddress(bench.url, "k", "tiny"))
    episode = await run_harness(SPEC, Count(), harness, Deaf(), in_place)
    assert (episode.stop_reason, episode.reward) == (StopReason.POLICY_ERROR, None)


@pytest.mark.parametrize("line", [b"x\n", b"[]\n", b'{"action": 7}\n', b"[" * 100_000 + b"\n"])
async def test_lines_that_are_no_action_are_answered_in_words(bench: Bench, line: bytes) -> None:
    program = f"""
lines.write({line!r}); lines.flush()
assert "expected one line of JSON" in json.loads(lines.readline())["error"]
step("a"); step("b")
"""
    assert (await run(bench, program)).reward == 1.0


async def test_a_line_without_an_end_ends_its_connection_and_nothing_else(bench: Bench) -> None:
    program = """
line.settimeout(20)
try:
    for _ in range(40):
        line.sendall(b"x" * (1 << 20))
    assert line.recv(1) == b""
except OSError:
    pass
again = socket.socket(socket.AF_UNIX); again.connect(os.environ["CLAWRL_SOCKET"])
lines = again.makefile("rwb")
step("a"); step("b")
"""
    assert (await run(bench, program)).reward == 1.0


async def test_a_program_gets_no_more_of_the_workers_environment_than_it_needs(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_KEY", "s3cret")
    told = tmp_path / "told"
    program = (
        f"json.dump([dict(os.environ), task, sys.argv], open({str(told)!r}, 'w'));"
        "step('a'); step('b')"
    )
    arguments = ("{base_url}", "{model}", "{other}", "{agents}/mini_swe_agent.py")
    await run(bench, program, None, SPEC, *arguments)
    environ, task, (_, base_url, model, other, script) = json.loads(told.read_text())
    assert "s3cret" not in str(environ)
    assert environ["HOME"] != os.environ.get("HOME")
    assert not os.path.exists(environ["HOME"])  # noqa: PTH110, ASYNC240
    assert environ["CLAWRL_TEMPERATURE"] == ""
    assert (base_url, model, other) == (f"{bench.url}/sessions/h/v1", "tiny", "{other}")
    assert script.endswith("agents/mini_swe_agent.py")
    assert task == {
        "task": "t", "observation": "go", "model": "tiny", "system": "be brief", "tools": [],
    }  # fmt: skip


async def test_the_report_of_the_checks_is_not_told_to_the_program(
    bench: Bench, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    await run(bench, f"json.dump([step('a'), step('b')], open({str(told)!r}, 'w'))")
    first, last = json.loads(told.read_text())
    assert first == {"observation": "saw 1", "done": False, "info": {"returncode": 0}}
    assert last == {"observation": "saw 2", "done": True, "info": {"returncode": 0}}


async def test_a_worker_runs_the_configured_program(bench: Bench) -> None:
    agent = AgentConfig(type="harness", command=[sys.executable, "-I", "-c", TALK + PLAY])
    env = GymEnvConfig(target="tests.e2e.guess_env:SayEnv")
    worker = RolloutWorker(
        one_stage(env, agent), 1, PolicyAddress(bench.url, bench.gateway.key, "tiny"), 10.0
    )
    spec = EpisodeSpec("h", 5, TaskRef(None, 3, "train"), max_turns=2, timeout_s=30.0)
    episode = await worker.run(spec)
    await worker.close()
    assert episode.error is None
    assert (await session(bench))["stop_reason"] == episode.stop_reason.value


@pytest.mark.parametrize("given", [{"type": "harness"}, {"command": ["x"]}])
def test_a_program_and_the_type_harness_belong_together(given: Any) -> None:
    with pytest.raises(ValidationError, match="expected a program"):
        AgentConfig(**given)
