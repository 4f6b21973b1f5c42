"""run_episode: the only rollout loop.

One episode is: reset, then messages, reply, action, step, until an end with a StopReason. The
environment blocks, so its calls go to its own thread; the policy is reached through the gateway.
Infrastructure failures end an episode without a reward; they are never turned into one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from clawrl_gym.agents.base import Agent, ParseFailure, Tool
from clawrl_gym.errors import ContextError, EnvError, PolicyError, boundary
from clawrl_gym.types import Episode, Message, StopReason, TaskRef

InThread = Callable[..., Awaitable[Any]]
"""Runs a blocking call on the environment's own thread."""


@dataclass(frozen=True, slots=True)
class EpisodeSpec:
    """One episode to run."""

    session_id: str
    group_id: int | None
    """None for an episode that is measured, not trained on."""
    task: TaskRef
    max_turns: int
    timeout_s: float
    temperature: float | None = None
    """None takes the policy's own sampling."""


class TextEnv(Protocol):
    """What the loop needs of a Gymnasium environment.

    One with checks may say at the end what they found: in `info["report"]` of the last step, and
    after `finish()` in an attribute `report`.
    """

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any: ...

    def step(self, action: Any) -> Any: ...

    def finish(self) -> float:
        """Reward for what is there, when the episode ends outside of the environment."""
        ...


class Chat(Protocol):
    """The gateway, seen from an episode."""

    async def reply(self, spec: EpisodeSpec, messages: list[Message], tools: list[Tool]) -> Message:
        """Raises ContextError when the messages do not fit, PolicyError when nothing answers."""
        ...

    async def end(
        self, spec: EpisodeSpec, episode: Episode, next_state: list[Message] | None
    ) -> None: ...


@dataclass(slots=True)
class _Progress:
    """What has happened so far; survives the deadline."""

    observations: list[str] = field(default_factory=list)
    replies: list[Message] = field(default_factory=list)
    reward: float = 0.0
    family: str | None = None
    scores: dict[str, float] = field(default_factory=dict)
    report: str | None = None
    """What the environment's checks said at the end; it teaches, and no prompt holds it."""

    def note(self, observation: Any, info: dict[str, Any]) -> None:
        """Take in what reset or step gave."""
        self.observations.append(_text(observation))
        self.scores = {name: float(score) for name, score in (info.get("scores") or {}).items()}
        self.report = _report_text(info.get("report"))


async def run_episode(
    spec: EpisodeSpec, env: TextEnv, agent: Agent, chat: Chat, in_thread: InThread
) -> Episode:
    """Run one episode to its end and report it to the gateway. Raises nothing but cancellation."""
    started_s = time.monotonic()
    progress = _Progress()
    error: str | None = None
    try:
        async with asyncio.timeout(spec.timeout_s):
            stop = await _play(spec, env, agent, chat, in_thread, progress)
    except TimeoutError:
        stop, error = StopReason.DEADLINE, f"no end within {spec.timeout_s:g} s"
    except EnvError as failure:
        stop, error = StopReason.ENV_ERROR, str(failure)
    except PolicyError as failure:
        stop, error = StopReason.POLICY_ERROR, str(failure)
    episode = Episode(
        session_id=spec.session_id,
        group_id=spec.group_id,
        task=spec.task,
        stop_reason=stop,
        reward=None if stop.is_infrastructure else progress.reward,
        turns=len(progress.replies),
        error=error,
        family=progress.family,
        duration_s=time.monotonic() - started_s,
        scores={} if stop.is_infrastructure else progress.scores,
    )
    return await _report(spec, episode, agent, progress, chat)


async def _report(
    spec: EpisodeSpec, episode: Episode, agent: Agent, progress: _Progress, chat: Chat
) -> Episode:
    """Tell the gateway; an end that cannot be recorded makes the episode a policy error."""
    last: list[Message] | None = None
    if 0 < len(progress.replies) < len(progress.observations):
        asked = len(agent.messages(progress.observations[:-1], progress.replies[:-1]))
        last = agent.messages(progress.observations, progress.replies)[asked + 1 :]
        if progress.report and not episode.stop_reason.is_infrastructure:
            last = [*last, {"role": "user", "content": progress.report}]
    try:
        await chat.end(spec, episode, last)
    except PolicyError as failure:
        return replace(
            episode, stop_reason=StopReason.POLICY_ERROR, reward=None, error=str(failure)
        )
    return episode


async def _play(
    spec: EpisodeSpec,
    env: TextEnv,
    agent: Agent,
    chat: Chat,
    in_thread: InThread,
    progress: _Progress,
) -> StopReason:
    options = {} if spec.task.id is None else {"task": spec.task.id, "split": spec.task.split}
    with boundary(EnvError, "reset"):
        observation, info = await in_thread(env.reset, seed=spec.task.seed, options=options)
        progress.note(observation, info)
    progress.family = info.get("family")
    tools = agent.tools(info.get("tools") or [])
    while len(progress.replies) < spec.max_turns:
        messages = agent.messages(progress.observations, progress.replies)
        try:
            reply = await chat.reply(spec, messages, tools)
        except ContextError:
            await _finish(env, in_thread, progress)
            return StopReason.CONTEXT
        progress.replies.append(reply)
        action = agent.action(reply)
        if isinstance(action, ParseFailure):
            progress.observations.append(action.message)
            continue
        with boundary(EnvError, "step"):
            observation, reward, terminated, truncated, info = await in_thread(
                env.step, action.text
            )
            progress.note(observation, info)
        progress.reward += float(reward)
        if terminated:
            return StopReason.TERMINATED
        if truncated:
            return StopReason.TRUNCATED
    await _finish(env, in_thread, progress)
    return StopReason.TRUNCATED


async def _finish(env: TextEnv, in_thread: InThread, progress: _Progress) -> None:
    """Grade what is there; an environment that reports tells it in its attribute `report`."""
    with boundary(EnvError, "finish"):
        progress.reward += float(await in_thread(env.finish))
        progress.report = _report_text(getattr(env, "report", None))


def _report_text(report: Any) -> str | None:
    if report is not None and not isinstance(report, str):
        raise EnvError(f"got a report of type {type(report).__name__}, expected str or None")
    return report


def _text(observation: Any) -> str:
    if not isinstance(observation, str):
        raise EnvError(
            f"got an observation of type {type(observation).__name__}, expected str: "
            "wrap the environment so that it speaks text"
        )
    return observation
