"""Real coding agents, unmodified from their packages, work inside a sandbox for a scripted policy.

The policy says a shell command in whatever tool an agent offers, and ends when it has none left.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from clawrl_gym.agents.cli.hosts import with_room
from clawrl_gym.agents.cli.installation import guest_of
from clawrl_gym.agents.cli.recipes import RECIPES
from clawrl_gym.config import AgentConfig
from clawrl_gym.core.types import Episode, StopReason, TaskRef
from clawrl_gym.envs.terminal.config import TerminalEnvConfig
from clawrl_gym.envs.terminal.source import open_source
from clawrl_gym.rollout.episodes.chat import GatewayChat, PolicyAddress
from clawrl_gym.rollout.episodes.episode import EpisodeSpec
from clawrl_gym.rollout.episodes.guest import run_guest
from tests.e2e.scripted_coder import Coder
from tests.support.gateway_rig import Bench
from tests.support.recordings import shipped

pytestmark = [pytest.mark.sandbox, pytest.mark.slow, pytest.mark.timeout(1500)]

CONFIG = TerminalEnvConfig.of({"tasks": "plain", "max_turns": 12}, "env.")
TASK = open_source(CONFIG).load(open_source(CONFIG).ids("train")[0])
MINIS_END = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


async def play(bench: Bench, name: str, policy: Coder) -> Episode:
    """One episode of an agent."""
    bench.policy._reply = policy
    agent = AgentConfig.model_validate({"type": "cli", "name": name})
    guest = await asyncio.to_thread(guest_of, agent)
    env = with_room(CONFIG, agent, lambda _: None).make().unwrapped
    address = PolicyAddress(bench.url, bench.gateway.key, "tiny")
    chat = GatewayChat(address, 30.0, limit=4)
    thread = ThreadPoolExecutor(1)

    async def call(function: Any, *arguments: Any, **options: Any) -> Any:
        work = partial(function, *arguments, **options)
        return await asyncio.get_running_loop().run_in_executor(thread, work)

    spec = EpisodeSpec("cli", 7, TaskRef(TASK.id, 0, "train"), max_turns=12, timeout_s=240.0)
    try:
        return await run_guest(spec, env, guest, address, chat, call)
    finally:
        await chat.close()
        await call(env.close)
        thread.shutdown()


@pytest.mark.parametrize("name", sorted(RECIPES))
async def test_an_agent_unmodified_solves_a_task_inside_the_sandbox(
    bench: Bench, name: str
) -> None:
    bench.live = shipped()
    await bench.restart()
    ends = [MINIS_END] if name == "mini-swe-agent" else []
    policy = Coder(bench, ["\n".join(TASK.solution), *ends])
    episode = await play(bench, name, policy)
    assert (episode.stop_reason, episode.reward) == (StopReason.TERMINATED, 1.0), episode.error
    assert policy.calls == 1 + len(ends)
    _, session, _ = await bench.get("/v1/sessions/cli")
    assert (session["task_id"], session["group_id"], session["reward"]) == (TASK.id, 7, 1.0)
    main = [turn for turn in session["turns"] if turn["kind"] == "main"]
    assert len(main) >= 2
    assert main[0]["next_state"], "the shell's output is the first call's next state"
    assert main[-1]["next_state"][-1]["content"] == "Test report: passed"
