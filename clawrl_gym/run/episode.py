"""One episode, for looking at: of any environment, with any policy, and every message of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from clawrl_gym.cluster.envs import settle
from clawrl_gym.config import RunConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.types import Episode, Message, TaskRef, Tool
from clawrl_gym.recipe.configure import load_config
from clawrl_gym.rollout.collection.task_sampler import TaskSampler
from clawrl_gym.rollout.collection.worker import build_agent
from clawrl_gym.rollout.episodes.chat import FunctionChat, PolicyAddress, PolicyChat, chat_of
from clawrl_gym.rollout.episodes.environment_thread import EnvironmentThread
from clawrl_gym.rollout.episodes.episode import EpisodeSpec, PolicyReply, run_episode

PolicyFunction = Callable[[list[Message], list[Tool]], object]
"""Messages and tools in, the reply (a message or its text) out; it may be a coroutine function."""


@dataclass(frozen=True, slots=True)
class PlayedEpisode:
    """An episode and what was said in it."""

    episode: Episode
    messages: list[Message]
    """Messages from the first request to the last answer of the environment."""


async def run_episode_async(
    env: str | Sequence[str],
    policy: PolicyAddress | PolicyFunction,
    *,
    task: str | None = None,
    temperature: float | None = None,
    timeout_s: float = 600.0,
) -> PlayedEpisode:
    """Play one episode.

    `env`: an option of conf/env/ or overrides such as ["env=toolcall", "env.tasks=shop"].
    `policy`: an address, or a function. `task`: an id of the environment; None takes a held-out
    one. An environment or a policy that fails is told in the episode's `stop_reason` and `error`.
    """
    config = load_config([f"env={env}"] if isinstance(env, str) else list(env))
    config = await asyncio.to_thread(settle, config, lambda _: None)
    spec = EpisodeSpec(
        session_id=f"episode-{uuid4().hex[:12]}",
        group_id=None,
        task=_task(config, task),
        max_turns=config.env.max_turns,
        timeout_s=timeout_s,
        temperature=temperature,
    )
    chat = _Recorded(_chat(policy, timeout_s))
    environment = EnvironmentThread(config.env, 0)
    try:
        agent = build_agent(config.agent, config.env)
        episode = await run_episode(spec, environment, agent, chat, environment.call)
    finally:
        await environment.close()
        await chat.close()
    return PlayedEpisode(episode, chat.messages)


def _task(config: RunConfig, task: str | None) -> TaskRef:
    source = TaskSampler.of(config.env, config.seed)
    if task is None:
        return (source.heldout(1) or [source.train(0)])[0]
    return TaskRef(task, 0, "heldout")


def _chat(policy: PolicyAddress | PolicyFunction, timeout_s: float) -> FunctionChat | PolicyChat:
    if isinstance(policy, PolicyAddress):
        return chat_of(policy, timeout_s, limit=1)
    if not callable(policy):
        raise ConfigError(
            f"got a policy of type {type(policy).__name__}, expected a PolicyAddress, or a "
            "function of messages and tools"
        )
    return FunctionChat(policy)


@dataclass(slots=True)
class _Recorded:
    """A chat that remembers what was said."""

    chat: FunctionChat | PolicyChat
    messages: list[Message] = field(default_factory=list)

    async def reply(
        self, spec: EpisodeSpec, messages: list[Message], tools: list[Tool]
    ) -> PolicyReply:
        answer = await self.chat.reply(spec, messages, tools)
        self.messages = [*messages, answer.message]
        return answer

    async def end(
        self, spec: EpisodeSpec, episode: Episode, next_state: list[Message] | None
    ) -> None:
        self.messages += next_state or []
        await self.chat.end(spec, episode, next_state)

    async def close(self) -> None:
        if not isinstance(self.chat, FunctionChat):
            await self.chat.close()
