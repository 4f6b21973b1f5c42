"""One request's way to a turn: retry or new, next state, prompt ids, generation, reply, record.

The turn is on disk before its reply leaves. Training never makes a request fail: while the policy
restarts or swaps weights, requests wait. No HTTP here, and no judgement.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from clawrl_gym.config import SamplingConfig
from clawrl_gym.errors import ContextError, PolicyError, RequestError
from clawrl_gym.live.sessions import Session, Sessions, ended_refusal
from clawrl_gym.live.splice import PastTurn, Prompt, make_prompt
from clawrl_gym.live.wire import ChatRequest
from clawrl_gym.policy.client import Generation, Sampling
from clawrl_gym.types import Message, Turn, TurnKind

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


class Policy(Protocol):
    """What the gateway needs of the policy's client."""

    async def render(self, body: dict[str, Any]) -> list[int]: ...

    async def generate(
        self,
        prompt_ids: list[int],
        sampling: Sampling,
        *,
        version: int,
        request_id: str | None = None,
    ) -> Generation: ...

    async def parse(self, body: dict[str, Any], generation: Generation) -> Message: ...

    async def metrics(self) -> dict[str, float]: ...


@dataclass(slots=True)
class GatewayStats:
    """Plain counters since the start, for the view and for metrics."""

    inside: int = 0
    """Requests under way."""
    requests: int = 0
    turns: int = 0
    tokens_prompt: int = 0
    tokens_sampled: int = 0
    replayed: int = 0
    """Retries that got the stored reply."""
    waited: int = 0
    """Attempts that found the policy down and were made again."""
    refused: int = 0
    """Answers 4xx and 503."""
    failed: int = 0
    """Answers 500 and 502."""
    fits: Counter[str] = field(default_factory=Counter)
    """How prompts joined the turn before them: see `splice.Fit`."""


class TurnMaker:
    """Makes and records turns with one policy."""

    def __init__(
        self, policy: Policy, sessions: Sessions, sampling: SamplingConfig, timeout_s: float
    ) -> None:
        self.version = 0
        self.stats = GatewayStats()
        self._policy = policy
        self._sessions = sessions
        self._sampling = sampling
        self._timeout_s = timeout_s
        self._unheld = asyncio.Event()
        self._unheld.set()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep new requests waiting here, and off the policy; those under way go on."""
        self._unheld.clear()
        try:
            yield
        finally:
            self._unheld.set()

    async def turn(self, session: Session, chat: ChatRequest, kind: TurnKind) -> Turn:
        """The turn that answers a request: the stored one for a retry, else a new one.

        Raises Refusal when the session has ended, ContextError, and PolicyError when the policy
        gave no reply in time.
        """
        messages = chat.plain_messages()
        async with session.one_at_a_time(kind, messages):
            if session.ended:
                raise ended_refusal(session.id)
            stored = session.stored_reply(kind, messages)
            if stored is not None:
                self.stats.replayed += 1
                return stored
            answered = session.answered_by(messages) if kind == "main" else None
            if answered is not None:
                await self._sessions.record_next_state(session, *answered)
            past = session.before(kind, messages)
            prompt, generation, reply = await self._reply(
                chat.body(messages), past, chat.sampling(self._sampling)
            )
            turn = _turn(session, kind, messages, generation, reply)
            turn = await self._sessions.record(session, turn, prompt.rendered_ids_T)
        self._count(turn, prompt)
        return turn

    async def _reply(
        self, body: dict[str, Any], past: PastTurn | None, sampling: Sampling
    ) -> tuple[Prompt, Generation, Message]:
        """Ask until the policy answers, for as long as a request may take."""
        last: PolicyError | None = None
        pause_s = _FIRST_PAUSE_S
        try:
            async with asyncio.timeout(self._timeout_s):
                while True:
                    try:
                        return await self._attempt(body, past, sampling)
                    except (ContextError, RequestError):
                        raise
                    except PolicyError as error:
                        last = error
                    self.stats.waited += 1
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        except TimeoutError:
            why = f"the last attempt said: {last}" if last else "it was still generating"
            raise PolicyError(
                f"the policy gave no reply within {self._timeout_s:g} s; {why}"
            ) from last

    async def _attempt(
        self, body: dict[str, Any], past: PastTurn | None, sampling: Sampling
    ) -> tuple[Prompt, Generation, Message]:
        await self._unheld.wait()
        prompt = await make_prompt(self._policy.render, body, past)
        generation = await self._policy.generate(prompt.ids_T, sampling, version=self.version)
        return prompt, generation, await self._policy.parse(body, generation)

    def _count(self, turn: Turn, prompt: Prompt) -> None:
        self.stats.turns += 1
        self.stats.tokens_prompt += len(turn.prompt_ids_T)
        self.stats.tokens_sampled += len(turn.sampled_ids_T)
        self.stats.fits[prompt.fit] += 1


def _turn(
    session: Session,
    kind: TurnKind,
    messages: list[Message],
    generation: Generation,
    reply: Message,
) -> Turn:
    return Turn(
        session_id=session.id,
        index=session.next_index,
        kind=kind,
        prompt_ids_T=generation.prompt_ids_T,
        sampled_ids_T=generation.sampled_ids_T,
        logprobs_T=generation.logprobs_T,
        versions_T=generation.versions_T,
        finish_reason=generation.finish_reason,
        messages=messages,
        reply=reply,
        created_s=time.time(),
    )
