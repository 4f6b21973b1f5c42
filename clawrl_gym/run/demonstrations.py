"""Demonstrations: episodes of an environment that its own oracle plays, as chats to learn from.

They are played as training's episodes are, so that prompts, tools and results are the very ones
that the policy will read. Only what the environment itself rewards in full is kept.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from clawrl_gym.agents.agent import Agent
from clawrl_gym.config import AgentConfig, EnvConfig
from clawrl_gym.core.errors import ClawError, ConfigError, PolicyError
from clawrl_gym.core.files.files import replace_text
from clawrl_gym.core.progress import NowAndThen
from clawrl_gym.core.types import Episode, Message, TaskRef, Tool
from clawrl_gym.rollout.collection.task_sampler import TaskSampler
from clawrl_gym.rollout.collection.worker import build_agent
from clawrl_gym.rollout.episodes.episode import EpisodeSpec, PolicyReply, run_episode

_TIMEOUT_S = 120.0
_MOST_LOST = 20
"""Episodes in a row without a demonstration, after which there will be none."""


@runtime_checkable
class Demonstrator(Protocol):
    """An agent that can write the reply that asks for an action."""

    ending: str | None
    """Action that ends an episode whose task does not end it."""

    def reply(self, action: str) -> Message: ...


@dataclass(slots=True)
class _Oracle:
    """Plays an environment's own solution in the policy's place."""

    env: Any
    agent: Demonstrator
    messages: list[Message] = field(default_factory=list)
    """Messages of the last request, and the reply to it."""
    tools: list[Tool] = field(default_factory=list)
    _actions: Iterator[str] | None = None

    async def reply(
        self, spec: EpisodeSpec, messages: list[Message], tools: list[Tool]
    ) -> PolicyReply:
        try:
            if self._actions is None:
                solution = await asyncio.to_thread(self.env.unwrapped.solve)
                ending = self.agent.ending
                self._actions = chain(solution, [] if ending is None else [ending])
            action = await asyncio.to_thread(next, self._actions, None)
        except ClawError as error:
            raise PolicyError(f"the oracle failed: {error}") from error
        if action is None:
            raise PolicyError("the oracle has ended and the episode has not")
        reply = self.agent.reply(action)
        self.messages, self.tools = [*messages, reply], tools
        return PolicyReply(reply)

    async def end(
        self, spec: EpisodeSpec, episode: Episode, next_state: list[Message] | None
    ) -> None:
        """Keep nothing of a failed episode."""


def check_demonstrable(env: EnvConfig, agent: AgentConfig) -> None:
    """Raise ConfigError for an environment without an oracle, or an agent that writes none of its
    replies."""
    if agent.is_program or not isinstance(build_agent(agent, env), Demonstrator):
        raise ConfigError(
            f"got demonstrations with agent.type={agent.type}, which cannot write a reply for an "
            "action, expected an agent with a method reply(action)"
        )
    made = env.make()
    try:
        if not hasattr(made.unwrapped, "solve"):
            raise ConfigError(
                f"got demonstrations of env={env.type}, which has no oracle (a method solve()), "
                "expected one of ours, or data=FILE"
            )
    finally:
        made.close()


async def write_demonstrations(
    file: Path,
    count: int,
    env: EnvConfig,
    agent: AgentConfig,
    seed: int,
    say: Callable[[str], None],
) -> None:
    """Make `file` hold `count` chats, one a training task. Raises ConfigError when the environment
    has fewer tasks that its oracle solves."""
    env = env.settled(say)
    await asyncio.to_thread(env.prepare, say)
    made = await asyncio.to_thread(env.make)
    progress = NowAndThen(say)
    rows: list[str] = []
    lost: Counter[str] = Counter()
    in_a_row = 0
    try:
        for task in _tasks(TaskSampler.of(env, seed), 20 * count):
            if len(rows) == count:
                break
            row, why = await _demonstrate(made, build_agent(agent, env), task, env.max_turns)
            if row is None:
                lost[why] += 1
                in_a_row += 1
                if in_a_row == _MOST_LOST:
                    break
                continue
            in_a_row = 0
            rows.append(json.dumps(row, ensure_ascii=False))
            progress(f"{len(rows)} of {count} episodes{progress.left(len(rows), count)}")
    finally:
        await asyncio.to_thread(made.close)
    if len(rows) < count:
        reasons = "".join(f"; {n} not solved: {why}" for why, n in lost.most_common(2))
        raise ConfigError(
            f"got demonstrations={count} of env={env.type}, whose oracle solved {len(rows)} "
            f"different training tasks, expected as many: ask for fewer{reasons}"
        )
    for why, number in lost.items():
        say(f"left out {number} episodes that the oracle did not solve: {why}")
    replace_text(file, "".join(f"{row}\n" for row in rows))


def _tasks(source: TaskSampler, attempts: int) -> Iterator[TaskRef]:
    """Training tasks as a run draws them, each once."""
    seen = set()
    for number in range(attempts):
        task = source.train(number)
        key = task.seed if task.id is None else task.id
        if key not in seen:
            seen.add(key)
            yield task


async def _demonstrate(
    env: Any, agent: Agent, task: TaskRef, max_turns: int
) -> tuple[dict[str, object] | None, str]:
    """A chat, or why there is none."""
    assert isinstance(agent, Demonstrator)
    oracle = _Oracle(env, agent)
    spec = EpisodeSpec(f"demonstration-{task.id or task.seed}", None, task, max_turns, _TIMEOUT_S)
    episode = await run_episode(spec, env.unwrapped, agent, oracle, asyncio.to_thread)
    if not episode.success:
        return None, episode.error or f"reward {episode.reward}"
    row: dict[str, object] = {"task": task.id, "messages": oracle.messages}
    return (row | {"tools": oracle.tools} if oracle.tools else row), ""
