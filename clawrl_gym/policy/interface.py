"""What a policy is to those who use it, and what several with the same weights are."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from clawrl_gym.core.types import ChatBody
from clawrl_gym.policy.generation import ChatReply, Piece, Sampling


class Policy(Protocol):
    """Token ids in, token ids out; see `PolicyClient`. `user` is whose adapter answers, `""` the
    run's own."""

    async def render(self, body: ChatBody) -> list[int]: ...

    async def tokenize(self, text: str) -> list[int]: ...

    async def generate_chat(
        self,
        body: ChatBody,
        sampling: Sampling,
        *,
        version: int,
        user: str = "",
        prompt_ids: list[int] | None = None,
        after: Sequence[int] = (),
        request_id: str | None = None,
    ) -> ChatReply: ...

    def stream(
        self,
        prompt_ids: list[int],
        sampling: Sampling,
        body: ChatBody | None,
        *,
        version: int,
        user: str = "",
        request_id: str | None = None,
        already: Sequence[Piece] = (),
    ) -> AsyncGenerator[Piece, None]: ...

    def stream_chat(
        self,
        body: ChatBody,
        sampling: Sampling,
        *,
        version: int,
        user: str = "",
        after: Sequence[int] = (),
        request_id: str | None = None,
    ) -> AsyncGenerator[Piece, None]: ...

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


class VersionInUse(Protocol):
    """What answers a request. Of weights for all, `version` grows while they are swapped."""

    @property
    def user(self) -> str: ...

    @property
    def version(self) -> int: ...


class Versions(Protocol):
    """Which version answers whom."""

    def use(self, user: str = "") -> AbstractContextManager[VersionInUse]:
        """The newest of this user's, for as long as a request takes."""
        ...


class SharedWeights:
    """The Versions of one set of weights for all, which is swapped under the requests."""

    user = ""

    def __init__(self) -> None:
        self.version = 0

    def use(self, user: str = "") -> AbstractContextManager[VersionInUse]:
        return nullcontext(self)
