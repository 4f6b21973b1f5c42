"""Who can answer a request: a policy, one of several with the same weights, or somebody's seat."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Protocol

from clawrl_gym.core.types import ChatBody, Message, Tool
from clawrl_gym.policy.generation import Generation, Piece, Sampling


class Policy(Protocol):
    """What the gateway needs of a policy's client."""

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

    def failed(self, policy: Any) -> None: ...

    def forget(self, session_id: str) -> None: ...

    async def metrics(self) -> dict[str, float]: ...


class Seat(Protocol):
    """Answers a session in the policy's place."""

    async def reply(self, messages: list[Message], tools: list[Tool]) -> Message | None:
        """None when the seat was given up: the policy answers."""


class Seats(Protocol):
    """Who answers which session."""

    def wants(self, session_id: str, claimable: bool) -> Seat | None: ...
