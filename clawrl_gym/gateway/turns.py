"""One request's way to a turn, streamed or whole. No HTTP here, and no judgement.

A turn's life:

1.  Equal requests of a session go one after another. A retry of a turn that nothing has followed
    gets the stored reply again (`TurnRecorder.stored_reply` says what is a retry and what is a
    wish for another reply).
2.  The next state that the request brings is stored, so that it can be judged while the reply is
    still being made.
3.  The request waits while weights are swapped or the policy is down. It is rendered, joined to the
    turn before it, and sampled. How long a policy may be silent is limited, not how long it may
    speak.
4.  Pieces go out as they are sampled. When the policy dies, another one, or the same once it is
    back, continues after the last piece. When the client leaves, or the policy is silent for too
    long, generation is cancelled and what was sampled is stored as INTERRUPTED, with version -1
    where the policy had not sent it. It is never replayed.
5.  With the last piece the turn is stored. Only then may the caller tell the end of the reply: a
    client that saw the end can rely on its turn being on disk.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from typing import cast

from clawrl_gym.config import SamplingConfig
from clawrl_gym.core.errors import (
    ContextError,
    PolicyError,
    PolicyUnavailable,
    ReplyTimeout,
    RequestError,
    StoreError,
)
from clawrl_gym.core.ownership import user_of
from clawrl_gym.core.pictures import pictures_of
from clawrl_gym.core.processes.pauses import growing_pauses_s
from clawrl_gym.core.processes.slow_machine import is_slow
from clawrl_gym.core.types import INTERRUPTED, UNKNOWN_ID, ChatBody, Message, TemplateOptions, Turn
from clawrl_gym.dialogue.call_failures import call_failures
from clawrl_gym.dialogue.prompts import (
    HistoryRule,
    PreviousTurn,
    Prompt,
    Render,
    extends,
    make_prompt,
)
from clawrl_gym.gateway.outages import Outages
from clawrl_gym.gateway.prometheus import GatewayStats
from clawrl_gym.gateway.responders import Responders
from clawrl_gym.gateway.sessions.session import TurnRecorder, TurnRequest
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.inference.generation import (
    Delta,
    Generation,
    Piece,
    Sampling,
    for_clients,
    message_of,
)
from clawrl_gym.inference.interface import (
    Policies,
    Policy,
    SharedWeights,
    VersionInUse,
    Versions,
)

Send = Callable[[Delta], Awaitable[None]]
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_GLANCE_S = 2.0
_MOST_FAILURES = 6
"""Answers that are errors, from a policy that can be reached, before a request is given up."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TurnInput:
    """Input of one turn, whatever API it came by."""

    messages: list[Message]
    sampling: Sampling
    body: ChatBody | None = None
    """Body that the chat template reads; None when `prompt` holds the prompt."""
    prompt: str | list[int] = ""
    """A prompt that needs no chat template: text or ids."""
    claimable: bool = False
    """An environment may answer the session, if this is its first turn."""
    answer_id: str = ""
    """Id by which a later request may name the turn; empty: none does."""


class TurnMaker:
    """Makes and records turns."""

    def __init__(
        self,
        policies: Policies,
        recorder: TurnRecorder,
        sampling: SamplingConfig,
        timeout_s: float,
        responders: Responders | None = None,
        history: HistoryRule | None = None,
        versions: Versions | None = None,
    ) -> None:
        """`timeout_s`: how long the policy may be silent, or a reply that is not streamed take.
        `versions`: which one answers whom; None: one set of weights answers all."""
        self._weights = SharedWeights()
        self._versions: Versions = versions or self._weights
        self.stats = GatewayStats()
        self.outages = Outages()
        self.sampling = sampling
        self._policies = policies
        self._recorder = recorder
        self._responders = responders
        self._history = history or HistoryRule()
        self._timeout_s = timeout_s
        self._may_start = asyncio.Event()
        self._may_start.set()

    @property
    def version(self) -> int:
        """The newest for all, which has been published."""
        return self._weights.version

    @version.setter
    def version(self, version: int) -> None:
        self._weights.version = version

    def newest(self, user: str) -> int:
        """The version that would answer this user now."""
        with self._versions.use(user) as served:
            return served.version

    @contextmanager
    def hold_requests(self) -> Iterator[None]:
        """Keep new requests waiting here, and off the policy; those in flight continue."""
        self._may_start.clear()
        try:
            with self.outages.during():
                yield
        finally:
            self._may_start.set()

    async def stored(self, request: TurnRequest) -> Turn | None:
        """The turn that this very request made before, when it is a retry."""
        stored = await self._recorder.stored_reply(request)
        self.stats.replayed += stored is not None
        return stored

    async def prompt_length(self, body: ChatBody) -> int:
        """Tokens of a prompt, as it is rendered afresh. Raises ContextError and PolicyError."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return len(await self._policies.of("").render(body))
        except TimeoutError as error:
            raise PolicyError(f"the policy read no prompt within {self._timeout_s:g} s") from error

    async def turn(
        self, request: TurnRequest, turn_input: TurnInput, send: Send | None = None
    ) -> Turn:
        """The turn that answers a request which is no retry, on disk. With `send`, its reply goes
        there in pieces.

        Raises Refusal when the session has ended, ContextError, and PolicyError when the policy
        gave no reply in time.
        """
        await self._recorder.record_next_states(request)
        turn = await self._from_responder(request, turn_input, send)
        return turn or await self._from_policy(request, turn_input, send)

    async def _from_responder(
        self, request: TurnRequest, turn_input: TurnInput, send: Send | None
    ) -> Turn | None:
        """A reply that no policy sampled, as a side turn without ids; None without a responder."""
        body = turn_input.body
        if self._responders is None or request.identity.kind != "main" or body is None:
            return None
        session = request.session
        claimable = turn_input.claimable and session.next_index == 0
        responder = self._responders.of(session.id, claimable)
        if responder is None:
            return None
        reply = await responder.reply(turn_input.messages, body.get("tools") or [])
        if not reply:
            return None
        if send is not None:
            await send(delta_of(reply))
        turn = _turn(request, turn_input, Generation([], [], [], [], "stop"), reply)
        return await self._record(request, replace(turn, kind="side", rule="seat"), [])

    async def _from_policy(
        self, request: TurnRequest, turn_input: TurnInput, send: Send | None
    ) -> Turn:
        previous = (
            await self._recorder.previous_turn(request) if turn_input.body is not None else None
        )
        if previous is not None and not previous.turn.has_ids:
            previous = None  # there is nothing that a prompt could extend
        partial = PartialReply(turn_input, previous, self._history)
        try:
            with (
                self._versions.use(user_of(request.session.id)) as served,
                request.session.reply_times.asking() as ended,
            ):
                generation, reply = await self._reply(request.session.id, partial, send, served)
                ended(len(generation.sampled_ids_T))
        except BaseException:
            await self._record_partial(request, partial)
            raise
        assert partial.prompt is not None
        self.stats.fits[partial.prompt.fit] += 1
        turn = _turn(request, turn_input, generation, reply)
        return await self._record(request, turn, partial.prompt.rendered_ids_T)

    async def _reply(
        self, session_id: str, partial: PartialReply, send: Send | None, served: VersionInUse
    ) -> tuple[Generation, Message]:
        """Try until a policy has answered, for as long as it may be silent."""
        last: PolicyError | None = None
        policy: Policy | None = None
        is_generating = False
        failures, pauses_s = 0, growing_pauses_s(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                while True:
                    await self._may_start.wait()
                    policy = self._policies.of(session_id)
                    is_generating = send is None and partial.can_be_whole
                    try:
                        if is_generating:
                            return await partial.generate(policy, served)
                        return await self._stream(policy, partial, send, limit, served)
                    except (ContextError, RequestError):
                        raise
                    except PolicyError as error:
                        last, is_generating = error, False
                    self.stats.waited += 1
                    failures += not isinstance(last, PolicyUnavailable)
                    if not partial.can_go_on or failures == _MOST_FAILURES:
                        raise last
                    if self._has_another(session_id, policy, last):
                        continue
                    with self.outages.during():
                        await asyncio.sleep(next(pauses_s))
        except TimeoutError:
            works = policy is not None and await self._works(session_id, policy)
            max_tokens = partial.turn_input.sampling.max_tokens
            raise self._no_reply(last, max_tokens, works=is_generating and works) from last

    def _no_reply(self, last: PolicyError | None, max_tokens: int, *, works: bool) -> PolicyError:
        """`works`: on a reply, which had no time to end."""
        limit_s = f"{self._timeout_s:g} s"
        if works and is_slow(max_tokens, self._timeout_s):
            return PolicyError(
                f"the machine is too slow: a reply of at most {max_tokens} tokens had not ended "
                f"after {limit_s}; send fewer requests at once, or raise policy.request_timeout_s"
            )
        if works:
            return ReplyTimeout(f"the reply had not ended after {limit_s}")
        held = not self._may_start.is_set()
        why = "its weights were being swapped" if held else "it is silent"
        why = f"the last attempt said: {last}" if last else why
        return PolicyError(f"the policy gave no reply within {limit_s}; {why}")

    async def _works(self, session_id: str, policy: Policy) -> bool:
        """Whether a policy that has not ended a reply can be reached; the session leaves it when
        it cannot."""
        try:
            async with asyncio.timeout(_GLANCE_S):
                await policy.metrics()
        except (PolicyError, TimeoutError):
            self._has_another(session_id, policy, PolicyUnavailable("it is silent"))
            return False
        return True

    async def _stream(
        self,
        policy: Policy,
        partial: PartialReply,
        send: Send | None,
        limit: asyncio.Timeout,
        served: VersionInUse,
    ) -> tuple[Generation, Message]:
        clock = asyncio.get_running_loop().time
        generation: Generation | None = None
        try:
            async with aclosing(partial.stream(policy, served)) as pieces:
                async for piece in pieces:
                    delta = for_clients(piece.delta)
                    if send is not None and delta:
                        await send(delta)
                    generation = piece.generation or generation
                    limit.reschedule(clock() + self._timeout_s)
        except PolicyError:
            if generation is None:
                raise
        if generation is None:
            raise PolicyUnavailable("the engine ended a stream without saying why")
        return generation, partial.message()

    def _has_another(self, session_id: str, policy: Policy, error: PolicyError) -> bool:
        """Leave a policy out that cannot be reached; whether one is left to use at once."""
        if not isinstance(error, PolicyUnavailable):
            return False
        self._policies.failed(policy)
        return self._policies.alive > 0 and self._policies.of(session_id) is not policy

    async def _record_partial(self, request: TurnRequest, partial: PartialReply) -> None:
        """Store what was sampled of a reply that was not finished."""
        if not partial.has_begun or partial.prompt is None:
            return
        turn = _turn(request, partial.turn_input, partial.interrupted(), partial.message())
        try:
            await self._record(request, turn, partial.prompt.rendered_ids_T)
        except Refusal:  # the session has ended, or was deleted, meanwhile
            return
        except StoreError as error:
            _log.error("an interrupted turn of %s was not stored: %s", turn.session_id, error)
            return
        self.stats.interrupted += 1

    async def _record(self, request: TurnRequest, turn: Turn, rendered_ids_T: list[int]) -> Turn:
        """Store a turn; not left before it is stored, so that an equal request then finds it."""
        recording = asyncio.ensure_future(self._recorder.record(request, turn, rendered_ids_T))
        try:
            await asyncio.wait([recording])
        except asyncio.CancelledError:
            await asyncio.wait([recording])
            raise
        finally:
            if recording.done() and not recording.exception():
                self._count(recording.result(), request)
        return recording.result()

    def _count(self, turn: Turn, request: TurnRequest) -> None:
        self.stats.turns += 1
        self.stats.failed_calls += bool(call_failures(turn.reply, turn.tools))
        self.stats.noted_replies += "reading_notes" in turn.reply
        self.stats.kinds[turn.kind] += 1
        if turn.kind == "main" and not request.session.is_rollout:
            self.stats.untrainable.update(turn.untrainable.split())
        self.stats.tokens_prompt += len(turn.prompt_ids_T)
        self.stats.tokens_sampled += len(turn.sampled_ids_T)


@dataclass(slots=True)
class PartialReply:
    """A reply in the making, by one policy or, when that fails, by several: its prompt and its
    pieces. They are kept in the order in which they came, once: the message, the ids and what the
    next policy is told are views of them."""

    turn_input: TurnInput
    previous: PreviousTurn | None
    """The turn that its prompt is joined to."""
    history: HistoryRule
    prompt: Prompt | None = None
    _pieces: list[Piece] = field(default_factory=list)

    @property
    def has_begun(self) -> bool:
        """Something was sampled."""
        return any(piece.ids_T for piece in self._pieces)

    @property
    def can_be_whole(self) -> bool:
        """Whether it may come in one piece. A policy that sees pictures reads and replies in one
        request, with their bytes, and that is a stream."""
        body = self.turn_input.body
        return body is not None and not pictures_of(body["messages"])

    @property
    def can_go_on(self) -> bool:
        """Whether another policy can take over: nothing was sampled yet, or all of it has a version
        and the rest is sampled as it would have been."""
        if not self.has_begun:
            return True
        has_versions = all(len(piece.versions_T) == len(piece.ids_T) for piece in self._pieces)
        return has_versions and self.turn_input.sampling.can_go_on

    async def generate(self, policy: Policy, served: VersionInUse) -> tuple[Generation, Message]:
        """The reply in one piece, with fewer bytes on the way."""
        body, sampling = self.turn_input.body, self.turn_input.sampling
        assert body is not None
        version, user = served.version, served.user
        reply = await policy.generate_chat(
            body, sampling, version=version, user=user, required_prefix=self._required_prefix(body)
        )
        render = _render_but_once(policy, body, reply.prompt_ids_T)
        self.prompt = await self._joined(render, body, reply.prompt_ids_T)
        if reply.whole is None:  # ids of the turn before take a place in the prompt
            ids_T = self.prompt.ids_T
            reply = await policy.generate_chat(
                body, sampling, version=version, user=user, prompt_ids=ids_T
            )
        assert reply.whole is not None
        return reply.whole

    async def stream(self, policy: Policy, served: VersionInUse) -> AsyncGenerator[Piece, None]:
        """The pieces that are still to come."""
        from_prompt = self.has_begun or self.turn_input.body is None
        source = self._from_prompt if from_prompt else self._from_chat
        async with aclosing(source(policy, served)) as pieces:
            async for piece in pieces:
                self._add(piece)
                yield piece

    def _add(self, piece: Piece) -> None:
        """The only place where a reply grows."""
        self._pieces.append(piece)

    async def _from_prompt(
        self, policy: Policy, served: VersionInUse
    ) -> AsyncGenerator[Piece, None]:
        turn_input = self.turn_input
        if self.prompt is None:
            prompt = turn_input.prompt
            ids_T = await policy.tokenize(prompt) if isinstance(prompt, str) else prompt
            self.prompt = Prompt(ids_T, ids_T, "first")
        pieces = policy.stream(
            self.prompt.ids_T,
            turn_input.sampling,
            turn_input.body,
            version=served.version,
            user=served.user,
            resume_from=[*self._pieces],
        )
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece

    async def _from_chat(self, policy: Policy, served: VersionInUse) -> AsyncGenerator[Piece, None]:
        """Render and generate in one call, unless ids of the turn before must take a place."""
        body, sampling = self.turn_input.body, self.turn_input.sampling
        assert body is not None
        prefix_T = self._required_prefix(body)
        pieces = policy.stream_chat(
            body, sampling, version=served.version, user=served.user, required_prefix=prefix_T
        )
        async with aclosing(pieces):
            first = await anext(pieces, None)
            if first is None or first.prompt_ids_T is None:
                raise PolicyUnavailable("the engine ended a stream before it began")
            rendered_T = first.prompt_ids_T
            render = _render_but_once(policy, body, rendered_T)
            self.prompt = await self._joined(render, body, rendered_T)
            if rendered_T[: len(prefix_T)] == prefix_T or UNKNOWN_ID in rendered_T[:1]:
                async for piece in pieces:
                    yield piece
                return
        async with aclosing(self._from_prompt(policy, served)) as pieces:
            async for piece in pieces:
                yield piece

    def _required_prefix(self, body: ChatBody) -> list[int]:
        """Ids that a prompt must begin with, rendered afresh, to be taken as it is."""
        previous = self.previous
        if previous is None or not extends(
            body["messages"], previous.turn, self.history.keeps_thoughts
        ):
            return []
        return previous.ids_T

    async def _joined(self, render: Render, body: ChatBody, rendered_T: list[int]) -> Prompt:
        if UNKNOWN_ID in rendered_T[:1]:  # whatever was said before
            return Prompt(rendered_T, rendered_T, "first")
        max_tokens = self.turn_input.sampling.max_tokens
        return await make_prompt(render, body, self.previous, self.history, max_tokens)

    def message(self) -> Message:
        """The message as the client has seen it."""
        return message_of(piece.delta for piece in self._pieces)

    def interrupted(self) -> Generation:
        """Generation of what was sampled; version -1 where the policy has not sent it."""
        return Generation(
            prompt_ids_T=[] if self.prompt is None else self.prompt.ids_T,
            sampled_ids_T=[token for piece in self._pieces for token in piece.ids_T],
            logprobs_T=[logprob for piece in self._pieces for logprob in piece.logprobs_T],
            versions_T=[
                version
                for piece in self._pieces
                for version in piece.versions_T or [-1] * len(piece.ids_T)
            ],
            finish_reason=INTERRUPTED,
        )


def _render_but_once(policy: Policy, body: ChatBody, rendered_T: list[int]) -> Render:
    """The policy's `render`; `body` itself is rendered already."""

    async def render(chat: ChatBody) -> list[int]:
        return rendered_T if chat is body else await policy.render(chat)

    return render


def delta_of(reply: Message) -> Delta:
    """A whole reply as one delta."""
    delta: Delta = {}
    if reply.get("reasoning_content"):
        delta["reasoning_content"] = reply["reasoning_content"]
    if reply.get("content"):
        delta["content"] = str(reply["content"])
    calls = reply.get("tool_calls")
    if calls:
        delta["tool_calls"] = [{"index": at, **call} for at, call in enumerate(calls)]
    return delta


def _turn(
    request: TurnRequest, turn_input: TurnInput, generation: Generation, reply: Message
) -> Turn:
    """Numbered when it is recorded."""
    body = turn_input.body or ChatBody(messages=[])
    options = {name: option for name, option in body.items() if name not in ("messages", "tools")}
    return Turn(
        session_id=request.session.id,
        index=0,
        kind=request.identity.kind,
        prompt_ids_T=generation.prompt_ids_T,
        sampled_ids_T=generation.sampled_ids_T,
        logprobs_T=generation.logprobs_T,
        versions_T=generation.versions_T,
        finish_reason=generation.finish_reason,
        messages=turn_input.messages,
        reply=reply,
        created_s=time.time(),
        rule=request.identity.rule,
        tools=body.get("tools", []),
        template=cast(TemplateOptions, options),
        temperature=turn_input.sampling.temperature if generation.sampled_ids_T else None,
        stop_text=generation.stop_text,
        answer_id=turn_input.answer_id,
        untrainable=_untrainable(turn_input.sampling, generation),
    )


def _untrainable(sampling: Sampling, generation: Generation) -> str:
    if not generation.sampled_ids_T:
        return ""
    return " ".join(filter(None, (sampling.untrainable, generation.untrainable)))
