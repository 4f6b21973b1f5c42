"""A policy that is nobody's vLLM: what vLLM does in one request it does step by step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from clawrl_gym.core.types import ChatBody, Message
from clawrl_gym.inference.generation import ChatReply, Generation, Piece, Sampling


class SteppedPolicy(ABC):
    """Renders, generates and parses; whole replies and streams are made of these."""

    @abstractmethod
    async def render(self, body: ChatBody) -> list[int]: ...

    @abstractmethod
    async def generate(
        self, prompt_ids: list[int], sampling: Sampling, *, version: int
    ) -> Generation: ...

    @abstractmethod
    async def parse(self, body: ChatBody, generation: Generation) -> Message: ...

    @abstractmethod
    def stream(
        self,
        prompt_ids: list[int],
        sampling: Sampling,
        body: ChatBody | None,
        *,
        version: int,
        user: str = "",
        request_id: str | None = None,
        resume_from: Sequence[Piece] = (),
    ) -> AsyncGenerator[Piece, None]: ...

    async def generate_chat(
        self,
        body: ChatBody,
        sampling: Sampling,
        *,
        version: int,
        user: str = "",
        prompt_ids: list[int] | None = None,
        required_prefix: Sequence[int] = (),
        request_id: str | None = None,
    ) -> ChatReply:
        if prompt_ids is None:
            prompt_ids = await self.render(body)
        if prompt_ids[: len(required_prefix)] != [*required_prefix]:
            return ChatReply(prompt_ids, None)
        generation = await self.generate(prompt_ids, sampling, version=version)
        return ChatReply(prompt_ids, (generation, await self.parse(body, generation)))

    async def stream_chat(
        self,
        body: ChatBody,
        sampling: Sampling,
        *,
        version: int,
        user: str = "",
        required_prefix: Sequence[int] = (),
        request_id: str | None = None,
    ) -> AsyncGenerator[Piece, None]:
        prompt_ids = await self.render(body)
        yield Piece([], [], {}, prompt_ids_T=prompt_ids)
        if prompt_ids[: len(required_prefix)] != [*required_prefix]:
            return
        async with aclosing(self.stream(prompt_ids, sampling, body, version=version)) as pieces:
            async for piece in pieces:
                yield piece
