"""The machine's part of an episode's time: replies, actions, processes that wait for a CPU."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import pytest

from clawrl_gym.agents.text import TextAgent
from clawrl_gym.core.errors import PolicyError
from clawrl_gym.core.processes.slow_machine import CpuWaits, ReplyTimes
from clawrl_gym.core.types import StopReason, TaskRef
from clawrl_gym.envs.sandbox.bubblewrap import open_sandbox
from clawrl_gym.envs.sandbox.interface import Limits
from clawrl_gym.envs.sandbox.shell import waited_for_cpu_s
from clawrl_gym.rollout.episodes.deadline import ActionTimes, Deadline, Waits
from clawrl_gym.rollout.episodes.episode import EpisodeSpec, PolicyReply, run_episode


@dataclass
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


def stat(running: int, cpus: int = 2, stolen: int = 0, total: int = 1000) -> str:
    lines = [f"cpu  {total - stolen} 0 0 0 0 0 0 {stolen} 0 0"]
    lines += [f"cpu{number} 1 0 0 0 0 0 0 0 0 0" for number in range(cpus)]
    return "\n".join([*lines, "ctxt 1", f"procs_running {running}", ""])


@pytest.mark.parametrize(
    ("texts", "waited_s"),
    [
        ([stat(1)], 0.0),
        ([stat(3)], 0.0),  # two that want to run, and the thread that looks
        ([stat(5)], 5.0),  # four on two CPUs: each waits half of the time
        ([stat(9)], 7.5),
        ([stat(9, cpus=8)], 0.0),
        ([stat(1), stat(1, stolen=500, total=2000)], 5.0),  # the host took half of the last second
        ([stat(5), stat(5, stolen=500, total=2000)], 7.5),
        ([stat(1, stolen=500), stat(1, stolen=100, total=2000)], 0.0),
        (["nothing that is known"], 0.0),
        ([""], 0.0),
    ],
)
def test_how_long_processes_wait_for_a_cpu(texts: list[str], waited_s: float) -> None:
    clock, left = Clock(), list(texts)
    waits = CpuWaits(lambda: left.pop(0), clock)
    for _ in texts[1:]:
        waits.look()
    before_s = waits._waited_s
    clock.now_s += 10.0
    waits.look()
    assert waits._waited_s - before_s == pytest.approx(waited_s)


def test_where_the_kernel_does_not_say_nobody_waits() -> None:
    clock = Clock()

    def missing() -> str:
        raise FileNotFoundError("/proc/stat")

    waits = CpuWaits(missing, clock)
    clock.now_s = 10.0
    waits.look()
    assert waits._waited_s == 0.0


def test_of_this_machine_it_grows_at_most_as_time_does() -> None:
    waits = CpuWaits()
    assert waits.seconds() >= 0.0
    waits.look()
    assert 0.0 <= waits.seconds() < 60.0


def test_an_action_counts_without_what_it_waited_for_a_thread_or_a_cpu() -> None:
    clock = Clock()
    actions = ActionTimes(clock)
    with actions.acting() as begin:
        clock.now_s = 5.0
        assert actions.slow_s == 5.0, "it waits for a thread"
        begin()
        clock.now_s = 25.0
        assert actions.slow_s == 5.0
    actions.waited(15.0)
    clock.now_s = 99.0
    assert actions.slow_s == 20.0
    assert actions.words() == "of the 25 s that its actions took, they could not run for 20 s"


def test_a_second_says_nothing() -> None:
    actions = ActionTimes(Clock())
    actions.waited(0.9)
    assert actions.slow_s == 0.0


@pytest.mark.parametrize(
    ("took_s", "used_s", "share", "waited_s"),
    [
        (60.0, 0.0, 0.9, 0.0),  # it slept on a busy machine
        (60.0, 60.0, 0.0, 0.0),  # it computed on an idle one
        (60.0, 15.0, 0.75, 45.0),  # it computed on a busy one
        (60.0, 5.0, 0.75, 15.0),  # it computed a while, and slept
        (60.0, 15.0, 0.99, 45.0),  # no more than it took
        (60.0, 100.0, 0.5, 0.0),  # on several CPUs at once
        (60.0, 30.0, 1.5, 30.0),
        (60.0, 30.0, -0.5, 0.0),
    ],
)
def test_what_a_command_waited_for_a_cpu(
    took_s: float, used_s: float, share: float, waited_s: float
) -> None:
    assert waited_for_cpu_s(took_s, used_s, share) == pytest.approx(waited_s)


class Slow(gymnasium.Env[str, str]):  # type: ignore[misc]
    """An environment that says what its processes waited for."""

    def __init__(self, waited_s: float) -> None:
        self._each_s, self.waited_s = waited_s, 7.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return "go", {}

    def step(self, action: str) -> Any:
        self.waited_s += self._each_s
        return "on", 0.0, False, False, {}

    def finish(self) -> float:
        return 0.0


class Says:
    """A policy that takes a while for each reply."""

    async def reply(self, spec: Any, messages: Any, tools: Any) -> PolicyReply:
        await asyncio.sleep(0.02)
        return PolicyReply({"role": "assistant", "content": "a"})

    async def end(self, spec: Any, episode: Any, next_state: Any) -> None:
        """Nothing to record."""


async def in_place(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


@pytest.mark.parametrize(
    ("waited_s", "stop", "reward"),
    [(5.0, StopReason.POLICY_ERROR, None), (0.0, StopReason.DEADLINE, 0.0)],
)
async def test_what_an_environment_waited_for_is_not_the_agents_time(
    waited_s: float, stop: StopReason, reward: float | None
) -> None:
    spec = EpisodeSpec("s", 0, TaskRef("t", 0, "train"), max_turns=9_999, timeout_s=0.3)
    episode = await run_episode(spec, Slow(waited_s), TextAgent(), Says(), in_place)
    assert (episode.stop_reason, episode.reward) == (stop, reward)


@pytest.mark.sandbox
def test_a_sandbox_tells_computing_from_sleeping() -> None:
    with open_sandbox(Limits()) as sandbox:
        slept = sandbox.exec("sleep 1.2", 30.0)
        assert slept.waited_s < 0.3
        busy = "i=0; while [ $SECONDS -lt 3 ]; do i=$((i+1)); done"
        computed = sandbox.exec(f"SECONDS=0; {busy}", 30.0)
        assert 0.0 <= computed.waited_s < 4.0
        assert sandbox.exec("echo still here", 5.0).output == "still here\n"


def test_replies_that_are_asked_for_side_by_side_count_each() -> None:
    clock = Clock()
    replies = ReplyTimes(clock)
    with replies.asking() as first, replies.asking() as second:
        clock.now_s = 10.0
        first(50)
        second(0)
    assert replies.slow_s == 5.0
    assert replies.tokens_per_s == 2.5


async def never() -> StopReason:
    await asyncio.sleep(60)
    return StopReason.TERMINATED


@pytest.mark.parametrize(("waited_s", "error"), [(90.0, PolicyError), (0.0, TimeoutError)])
async def test_a_busy_machine_is_named_and_an_idle_one_no_excuse(
    waited_s: float, error: type[Exception]
) -> None:
    actions = ActionTimes()
    actions.waited(waited_s)
    why = "too slow.*could not run for 90 s" if waited_s else None
    with pytest.raises(error, match=why):
        await Deadline(0.05, actions=actions).hold(never())


async def test_replies_that_the_gateway_alone_sees_can_be_slow_too() -> None:
    async def waits(last_s: float) -> Waits:
        return Waits(0.0, slow_s=99.0, tokens_per_s=1.5)

    with pytest.raises(PolicyError, match=r"too slow.*sampled 1\.5 tokens/s"):
        await Deadline(0.05, waits).hold(never())
