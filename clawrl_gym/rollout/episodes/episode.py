"""run_episode: the only rollout loop.

One episode is: reset, then messages, reply, action, step, until an end with a StopReason. The
policy is reached through the gateway. Who is to blame decides what an end is worth:

- what the agent did: a deadline, a loop, a spoilt grade, a request that is refused for what it
  said: a failure, a reward of 0 at most, and what its unplayed steps might have cost
  (`rollout/floors.py`);
- what is provably not its doing: a start that fails, an environment that raises, a policy that
  cannot be reached, a machine that is too slow: no reward at all, and the episode is run again;
- a task whose verifier gives no verdict at all: no reward, and the task is left out.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from clawrl_gym.agents.agent import Action, Agent, ParseFailure
from clawrl_gym.agents.context import HeadTail
from clawrl_gym.core.errors import (
    AgentFault,
    ContextError,
    EnvError,
    NoVerdict,
    PolicyError,
    ReplyTimeout,
    RequestError,
    RequestTooLarge,
    boundary,
)
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.processes.slow_machine import ReplyTimes
from clawrl_gym.core.text import valid_text
from clawrl_gym.core.types import Answer, Episode, Message, StopReason, TaskRef, Tool
from clawrl_gym.rollout.episodes.deadline import Deadline, WaitClock, no_waits
from clawrl_gym.rollout.episodes.progress import InThread, Progress, TextEnv


@dataclass(frozen=True, slots=True)
class EpisodeSpec:
    """One episode to run."""

    session_id: str
    group_id: int | None
    """Id of its group; None for an episode that is measured, not trained on."""
    task: TaskRef
    max_turns: int
    timeout_s: float
    """Seconds of the agent's own time, and of the environment's start."""
    temperature: float | None = None
    """Sampling temperature; None takes the policy's own sampling."""
    keeps_transcript: bool = False
    """All that is said comes back with the episode."""

    @property
    def longest_s(self) -> float:
        """A worker that has not reported an end by then no longer works: the start, the
        agent's own time, outages of the policy, and the end."""
        return 3 * self.timeout_s + 60.0


@dataclass(frozen=True, slots=True)
class EpisodeLimits:
    """Time limits of an episode."""

    max_turns: int
    timeout_s: float
    """Seconds, as `EpisodeSpec.timeout_s`."""


Limits = Mapping[str, EpisodeLimits]
"""Limits by `TaskRef.env`."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of what an episode may take of the policy."""

    context: Literal["stop", "head_tail"] = "stop"
    """Rule for a history that does not fit: the episode ends, or its middle is cut."""
    max_context_chars: int | None = None
    """head_tail: longest history; None: only what the policy refuses is cut."""
    max_reply_tokens: int | None = None
    """The episode is truncated when the policy has sampled as many."""


@dataclass(frozen=True, slots=True)
class PolicyReply:
    """One reply of the policy."""

    message: Message
    tokens: int = 0
    """Tokens sampled for it; 0 where the server does not say."""
    prompt_tokens: int | None = None
    """Tokens of the prompt; None where the server does not say."""
    finish_reason: str | None = None
    version: int | None = None
    """The weight version that answered; None where the server does not say."""


class Chat(Protocol):
    """The gateway, seen from an episode."""

    async def reply(
        self, spec: EpisodeSpec, messages: list[Message], tools: list[Tool]
    ) -> PolicyReply:
        """The next reply. Raises ContextError when the messages do not fit, RequestError when they
        are refused, ReplyTimeout when the reply takes too long, another PolicyError when nothing
        answers."""
        ...

    async def end(
        self, spec: EpisodeSpec, episode: Episode, next_state: list[Message] | None
    ) -> None: ...


class _AgentBorder:
    """An agent of anybody's; whatever it raises, or gives that is of another type, is EnvError."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def messages(self, observations: Sequence[str], replies: Sequence[Message]) -> list[Message]:
        with boundary(EnvError, "the agent's messages"):
            messages = self._agent.messages(observations, replies)
        if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
            raise EnvError(
                f"got {messages!r:.200} of the agent's messages, expected a list of dicts"
            )
        if not messages:
            raise EnvError("got no message of the agent's messages, expected at least one")
        return messages

    def tools(self, env_tools: Sequence[Tool]) -> list[Tool]:
        with boundary(EnvError, "the agent's tools"):
            return list(self._agent.tools(env_tools))

    def instructions(self, env_tools: Sequence[Tool]) -> str:
        with boundary(EnvError, "the agent's instructions"):
            instructions = self._agent.instructions(env_tools)
        if not isinstance(instructions, str):
            raise EnvError(
                f"got {instructions!r:.200} of the agent's instructions, expected a text"
            )
        return instructions

    def action(self, reply: Message) -> Action | ParseFailure:
        with boundary(EnvError, "the agent's action"):
            action = self._agent.action(reply)
        if not isinstance(action, Action | ParseFailure):
            raise EnvError(
                f"got {action!r:.200} of the agent's action, expected Action or ParseFailure"
            )
        return action


async def run_episode(
    spec: EpisodeSpec,
    env: TextEnv,
    agent: Agent,
    chat: Chat,
    in_thread: InThread,
    bounds: Bounds = Bounds(),
    waits: WaitClock = no_waits,
) -> Episode:
    """Run one episode to its end and report it to the gateway. Raises nothing but cancellation."""
    started_s = time.monotonic()
    progress = Progress(env, in_thread)
    agent = _AgentBorder(agent)
    replies = ReplyTimes()
    stop, error = await ending_of(
        spec, progress, lambda: _play(spec, agent, chat, bounds, progress, replies), waits,
        replies,
    )  # fmt: skip
    episode = conclude(spec, progress, stop, error, started_s)
    try:
        last = _last_state(agent, progress, episode)
    except EnvError as failure:
        episode = conclude(spec, progress, StopReason.ENV_ERROR, str(failure), started_s)
        last = None
    return await record_end(spec, episode, last, chat)


async def ending_of(
    spec: EpisodeSpec,
    progress: Progress,
    play: Callable[[], Awaitable[StopReason]],
    waits: WaitClock = no_waits,
    replies: ReplyTimes | None = None,
) -> tuple[StopReason, str | None]:
    """Start the environment and play: how the episode ended, and what failed when something did."""
    try:
        await _start(spec, progress)
        return await Deadline(spec.timeout_s, waits, replies, progress.actions).hold(play()), None
    except TimeoutError:
        return StopReason.DEADLINE, f"no end within {spec.timeout_s:g} s of the agent's time"
    except ReplyTimeout as failure:
        return StopReason.DEADLINE, str(failure)
    except AgentFault as failure:
        return StopReason.AGENT_FAULT, str(failure)
    except NoVerdict as failure:
        return StopReason.NO_VERDICT, str(failure)
    except EnvError as failure:
        return StopReason.ENV_ERROR, str(failure)
    except PolicyError as failure:
        return StopReason.POLICY_ERROR, str(failure)


async def _start(spec: EpisodeSpec, progress: Progress) -> None:
    """Before the agent's time begins: a start that takes too long is not its doing."""
    try:
        async with asyncio.timeout(spec.timeout_s):
            await progress.reset(spec.task)
    except TimeoutError as error:
        raise EnvError(f"reset: the environment did not start in {spec.timeout_s:g} s") from error


def conclude(
    spec: EpisodeSpec, progress: Progress, stop: StopReason, error: str | None, started_s: float
) -> Episode:
    """Episode as it ended; infrastructure leaves nothing to reward."""
    is_failure = stop.is_failure or progress.is_spoilt
    return Episode(
        session_id=spec.session_id,
        group_id=spec.group_id,
        task=spec.task,
        stop_reason=stop,
        reward=None if stop.is_infrastructure else _reward(progress, is_failure),
        turns=len(progress.replies),
        error=None if error is None else valid_text(error, "environment", progress.replaced),
        replaced=progress.replaced.total,
        family=progress.family,
        duration_s=time.monotonic() - started_s,
        scores={} if stop.is_infrastructure else progress.scores,
        transcript=progress.transcript if spec.keeps_transcript else None,
        solved=None if is_failure or stop.is_infrastructure else progress.solved,
        unplayed=_unplayed(spec, progress, stop),
        lowest_step=progress.lowest_step,
        declared_floor=progress.declared_floor,
    )


def _reward(progress: Progress, is_failure: bool) -> float:
    """Reward of an episode; a failure earns nothing and keeps its cost: a loop must not pay."""
    return min(0.0, progress.reward) if is_failure else progress.reward


def _unplayed(spec: EpisodeSpec, progress: Progress, stop: StopReason) -> int:
    """Steps whose rewards the agent did without; see `rollout/floors.py`."""
    if stop.is_infrastructure:
        return 0
    most = spec.max_turns
    return progress.left_of(most) if stop.is_failure else progress.unplayed(most)


async def record_end(
    spec: EpisodeSpec, episode: Episode, last: list[Message] | None, chat: Chat
) -> Episode:
    """Tell the gateway; an end that cannot be recorded makes the episode a policy error."""
    try:
        await chat.end(spec, episode, last)
    except PolicyError as failure:
        return replace(
            episode, stop_reason=StopReason.POLICY_ERROR, reward=None, error=str(failure)
        )
    return episode


def with_report(
    state: list[Message] | None, progress: Progress, episode: Episode
) -> list[Message] | None:
    """The last next state with the report of the environment's checks."""
    if state is None or not progress.report or episode.stop_reason.is_infrastructure:
        return state
    return [*state, {"role": "user", "content": progress.report}]


def _last_state(agent: Agent, progress: Progress, episode: Episode) -> list[Message] | None:
    """Messages that came back to the last reply, when something did."""
    if not 0 < len(progress.replies) < len(progress.observations):
        return None
    request_length = len(agent.messages(progress.observations[:-1], progress.replies[:-1]))
    state = agent.messages(progress.observations, progress.replies)[request_length + 1 :]
    return with_report(state, progress, episode)


async def _play(
    spec: EpisodeSpec,
    agent: Agent,
    chat: Chat,
    bounds: Bounds,
    progress: Progress,
    replies: ReplyTimes,
) -> StopReason:
    tools = agent.tools(progress.tools)
    system = _joined(progress.system, agent.instructions(progress.tools))
    history = HeadTail(bounds.max_context_chars) if bounds.context == "head_tail" else None
    most = progress.most_replies = min(spec.max_turns, progress.max_replies)
    while len(progress.replies) < most and not _spent_its_tokens(progress, bounds):
        messages = agent.messages(progress.observations, progress.replies)
        request = _with_system(messages, system)
        if not progress.opening:
            progress.opening, progress.offered = request, tools
        asked_s = time.monotonic()
        try:
            with replies.asking() as ended:
                answer = await _ask(spec, chat, request, tools, history)
                ended(answer.tokens)
        except ContextError:
            await progress.finish()
            return StopReason.CONTEXT
        except RequestError as refusal:
            if isinstance(refusal, RequestTooLarge) and _is_mostly_observed(progress):
                raise EnvError(f"the environment said too much: {refusal}") from refusal
            if progress.replies:  # the first request was taken: what came since is the agent's
                raise AgentFault(f"what the agent said cannot be sent on: {refusal}") from refusal
            raise
        duration_s = time.monotonic() - asked_s
        progress.tokens += answer.tokens
        progress.replies.append(answer.message)
        action = _unread(answer.message) or agent.action(answer.message)
        progress.answers.append(_noted(answer, action, duration_s))
        if isinstance(action, ParseFailure):
            progress.observations.append(action.message)
            continue
        stop = await progress.step(action.text)
        if stop is not None:
            return stop
    await progress.finish()
    return StopReason.TRUNCATED


def _is_mostly_observed(progress: Progress) -> bool:
    """Whether more of what was said is the environment's than the policy's."""
    said = sum(len(json.dumps(reply)) for reply in progress.replies)
    return sum(map(len, progress.observations)) + len(progress.system) > said


def _unread(reply: Message) -> ParseFailure | None:
    """Failure of calls that could not be read; none of the others is made then."""
    problems = reply.get("unread_calls")
    return ParseFailure(f"got 0 actions: {'; '.join(problems)}") if problems else None


def _noted(reply: PolicyReply, action: Action | ParseFailure, duration_s: float) -> Answer:
    is_counted = reply.prompt_tokens is not None
    return Answer(
        reply.message,
        None if isinstance(action, ParseFailure) else action.text,
        reply.prompt_tokens,
        reply.tokens if is_counted else None,
        round(duration_s, 3),
        reply.finish_reason,
        reply.version,
    )


async def _ask(
    spec: EpisodeSpec,
    chat: Chat,
    messages: list[Message],
    tools: list[Tool],
    history: HeadTail | None,
) -> PolicyReply:
    """The policy's answer, to a history that is cut until it fits where that is wanted."""
    if history is None:
        return await chat.reply(spec, messages, tools)
    shortened = history.view(messages)
    while True:
        try:
            return await chat.reply(spec, shortened, tools)
        except ContextError:
            tighter = history.tighten(messages)
            if tighter is None:
                raise
            shortened = tighter


def _spent_its_tokens(progress: Progress, bounds: Bounds) -> bool:
    return bounds.max_reply_tokens is not None and progress.tokens >= bounds.max_reply_tokens


def _joined(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)


def _with_system(messages: list[Message], system: str) -> list[Message]:
    """The text ends the agent's own system message; without one it is a message itself."""
    if not system:
        return messages
    first, *rest = messages
    if first.get("role") != "system":
        return [{"role": "system", "content": system}, *messages]
    return [{**first, "content": _joined(text_of(first), system)}, *rest]
