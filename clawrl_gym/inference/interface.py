"""Interface of a policy for its users, and of several with the same weights."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from clawrl_gym.core.types import ChatBody
from clawrl_gym.inference.generation import ChatReply, Generation, Piece, Sampling

MODEL_NAME = "policy"
"""The name under which a run serves its model."""


class Policy(Protocol):
    """Token ids in, token ids out. `version` is the one that answers whom a request is for, and
    keeps what different weights have read apart; `user` is whose adapter answers, `""` the run's
    own.

    Each method raises PolicyUnavailable for what may succeed later or elsewhere, ContextError for a
    prompt that is too long, RequestError for a request that cannot be answered, and PolicyError
    else. Nothing is tried again here, and nothing that was sampled is tokenised again.
    """

    async def render(self, body: ChatBody) -> list[int]:
        """Prompt ids of a chat request, by the model's chat template.

        Special tokens inside the texts stay text: what a person or a tool wrote cannot end a turn.
        """
        ...

    async def tokenize(self, text: str) -> list[int]:
        """Prompt ids of a text; special tokens in it stay text."""
        ...

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
        """Render a chat, sample a reply and read it, in one call: it is what the deltas of a stream
        make together.

        Nothing is generated when the prompt does not begin with `required_prefix`: the caller
        decides on it, and calls again with `prompt_ids`, which are taken as they are.
        """
        ...

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
    ) -> AsyncGenerator[Piece, None]:
        """Sample a reply, piece by piece; the last piece holds it whole. `body` None: plain text.

        Closing the iterator aborts the generation. `resume_from` are the pieces of a reply that
        another engine began: this one continues where they end.
        """
        ...

    def stream_chat(
        self,
        body: ChatBody,
        sampling: Sampling,
        *,
        version: int,
        user: str = "",
        required_prefix: Sequence[int] = (),
        request_id: str | None = None,
    ) -> AsyncGenerator[Piece, None]:
        """`render` and `stream` in one call.

        The first piece has the prompt ids. When they do not begin with `required_prefix`, it is the
        only one: nothing was generated, and the caller decides on the prompt.
        """
        ...

    async def metrics(self) -> dict[str, float]:
        """Metrics of an engine that answers, as far as it has them: requests `running` and
        `waiting`, `kv_usage` (0 to 1), since its start `tokens` sampled, `prompt_tokens` read,
        `requests` that ended and its `preemptions`; `contexts` that fit into its cache at full
        length. Raises PolicyError where it does not answer."""
        ...


class EngineClient(Policy, Protocol):
    """A connection to one engine, as whoever runs it has it."""

    async def generate(
        self,
        prompt_ids: list[int],
        sampling: Sampling,
        *,
        version: int,
        user: str = "",
        request_id: str | None = None,
    ) -> Generation:
        """Sample a reply to exact ids."""
        ...

    async def logprobs(self, ids: list[int], *, version: int, user: str = "") -> list[float]:
        """Log-probs of all ids but the first, by the weights alone without sampling settings;
        computed afresh, whatever a cache holds. Raises PolicyError where the engine has no
        `probe`."""
        ...

    async def close(self) -> None:
        """Close all connections; idempotent, and a later call opens them again."""
        ...


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
    """Version that answers a request. For weights of all, `version` grows with each swap."""

    @property
    def user(self) -> str: ...

    @property
    def version(self) -> int: ...


class Versions(Protocol):
    """The version that answers each user."""

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
