"""A reply in the making: its prompt, its pieces, and what is left of it when it breaks off."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field

from clawrl_gym.core.pictures import pictures_of
from clawrl_gym.core.types import INTERRUPTED, ChatBody, Message
from clawrl_gym.dialogue.prompts import PreviousTurn, Prompt, Render, extends, make_prompt
from clawrl_gym.gateway.answerers import Policy
from clawrl_gym.policy.client import PolicyUnavailable
from clawrl_gym.policy.draft import assembled
from clawrl_gym.policy.generation import Delta, Generation, Piece, Sampling

_ONLY_CONTENT = {"content"}


@dataclass(frozen=True, slots=True)
class Ask:
    """What one turn is to be made of, whatever API it came by."""

    messages: list[Message]
    sampling: Sampling
    body: ChatBody | None = None
    """What the chat template reads; None when `prompt` is given."""
    prompt: str | list[int] = ""
    """A prompt that needs no chat template: text or ids."""
    claimable: bool = False
    """Somebody may take a seat in the session, if this is its first turn."""


@dataclass(slots=True)
class Draft:
    """One reply, made by one policy or, when that fails, by several."""

    ask: Ask
    past: PreviousTurn | None
    """The turn that its prompt is joined to."""
    prompt: Prompt | None = None
    _ids_T: list[int] = field(default_factory=list)
    _logprobs_T: list[float | None] = field(default_factory=list)
    _versions_T: list[int] = field(default_factory=list)
    _content: list[str] = field(default_factory=list)
    _deltas: list[Delta] = field(default_factory=list)
    """Those that are more than content."""

    @property
    def has_begun(self) -> bool:
        """Something was sampled."""
        return bool(self._ids_T)

    @property
    def is_seen(self) -> bool:
        """The policy is shown pictures: it reads and replies in one request, with their bytes."""
        return self.ask.body is not None and bool(pictures_of(self.ask.body["messages"]))

    @property
    def can_go_on(self) -> bool:
        """Whether another policy can take over: all that was sampled has a version."""
        return -1 not in self._versions_T

    async def whole(self, policy: Policy, version: int) -> tuple[Generation, Message]:
        """The reply in one piece, with fewer bytes on the way."""
        ask, body = self.ask, self.ask.body
        assert body is not None
        self.prompt = await make_prompt(policy.render, body, self.past)
        made = await policy.generate(self.prompt.ids_T, ask.sampling, version=version)
        return made, await policy.parse(body, made)

    async def stream(self, policy: Policy, version: int) -> AsyncGenerator[Piece, None]:
        """The pieces that are still to come."""
        source = self._go_on if self.has_begun or self.ask.body is None else self._from_chat
        async with aclosing(source(policy, version)) as pieces:
            async for piece in pieces:
                self._add(piece)
                yield piece

    def _add(self, piece: Piece) -> None:
        self._ids_T += piece.ids_T
        self._logprobs_T += piece.logprobs_T
        self._versions_T += piece.versions_T or [-1] * len(piece.ids_T)
        if piece.delta.keys() == _ONLY_CONTENT:
            self._content.append(piece.delta["content"])
        elif piece.delta:
            self._deltas.append(piece.delta)

    async def _go_on(self, policy: Policy, version: int) -> AsyncGenerator[Piece, None]:
        ask = self.ask
        if self.prompt is None:
            told = ask.prompt
            ids_T = await policy.tokenize(told) if isinstance(told, str) else told
            self.prompt = Prompt(ids_T, ids_T, "first")
        pieces = policy.stream(
            self.prompt.ids_T, ask.sampling, ask.body, version=version, already=self._already()
        )
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece

    async def _from_chat(self, policy: Policy, version: int) -> AsyncGenerator[Piece, None]:
        """Render and generate in one call, unless ids of the turn before must take a place."""
        body, past = self.ask.body, self.past
        assert body is not None
        after_T: list[int] = []
        if past is not None and extends(body["messages"], past.turn):
            after_T = past.turn.prompt_ids_T + past.turn.sampled_ids_T
        pieces = policy.stream_chat(body, self.ask.sampling, version=version, after=after_T)
        async with aclosing(pieces):
            first = await anext(pieces, None)
            if first is None or first.prompt_ids_T is None:
                raise PolicyUnavailable("vLLM ended a stream before it began")
            rendered_T = first.prompt_ids_T
            self.prompt = await make_prompt(_knowing(policy, body, rendered_T), body, past)
            if rendered_T[: len(after_T)] == after_T:
                async for piece in pieces:
                    yield piece
                return
        async with aclosing(self._go_on(policy, version)) as pieces:
            async for piece in pieces:
                yield piece

    def _already(self) -> list[Piece]:
        """All that was sampled, as one piece."""
        if not self.has_begun:
            return []
        delta: Delta = {"content": "".join(self._content)}
        ids_T, logprobs_T, versions_T = [*self._ids_T], [*self._logprobs_T], [*self._versions_T]
        return [Piece(ids_T, logprobs_T, delta, versions_T=versions_T)]

    def reply(self) -> Message:
        """The message as the client has seen it."""
        return assembled([{"content": "".join(self._content)}, *self._deltas])

    def interrupted(self) -> Generation:
        """What was sampled; version -1 where the policy has not told it."""
        return Generation(
            prompt_ids_T=[] if self.prompt is None else self.prompt.ids_T,
            sampled_ids_T=self._ids_T,
            logprobs_T=self._logprobs_T,
            versions_T=self._versions_T,
            finish_reason=INTERRUPTED,
        )


def _knowing(policy: Policy, body: ChatBody, rendered_T: list[int]) -> Render:
    """The policy's `render`, of which one answer is known."""

    async def render(asked: ChatBody) -> list[int]:
        return rendered_T if asked is body else await policy.render(asked)

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
