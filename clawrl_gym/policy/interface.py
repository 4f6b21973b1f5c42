"""What a policy is to those who use it, and what several with the same weights are."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Protocol

from clawrl_gym.core.types import ChatBody, Message
from clawrl_gym.policy.generation import Generation, Piece, Sampling


class Policy(Protocol):
    """Token ids in, token ids out; see `PolicyClient`."""

    async def render(self, body: ChatBody) -> list[int]: ...

    async def tokenize(self, text: str) -> list[int]: ...

    async def generate(
        self,
        prompt_ids: list[int],
        sampling: Sampling,
        *,
        version: int,
        request_id: str | None = None,
    ) -> Generation: ...

    def stream(
        self,
        prompt_ids: list[int],
        sampling: Sampling,
        body: ChatBody | None,
        *,
        version: int,
        request_id: str | None = None,
        already: Sequence[Piece] = (),
    ) -> AsyncGenerator[Piece, None]: ...

    def stream_chat(
        self,
        body: ChatBody,
        sampling: Sampling,
        *,
        version: int,
        after: Sequence[int] = (),
        request_id: str | None = None,
    ) -> AsyncGenerator[Piece, None]: ...

    async def parse(self, body: ChatBody, generation: Generation) -> Message: ...

    async def metrics(self) -> dict[str, float]: ...


class Policies(Protocol):
    """Several policies with the same weights; a session stays on one while it can."""

    @property
    def alive(self) -> int: ...

    def of(self, session_id: str) -> Policy: ...

    def failed(self, policy: Any) -> None:
        """One of its own: Any, because a fleet of clients takes nothing but clients."""
        ...

    def forget(self, session_id: str) -> None: ...

    async def metrics(self) -> dict[str, float]: ...
