"""Bodies of requests: how large one may be, and where a large one is read.

The event loop answers everybody, so nobody's body is read on it for long. A small one is, for that
costs less than a thread; a large one is parsed, checked and hashed on one thread beside the loop.
There the users take turns: whoever sends many large bodies waits for each before the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Self, TypeVar

from clawrl_gym.config import GatewayConfig, ImagesConfig
from clawrl_gym.gateway.refusals import Refusal

T = TypeVar("T")
LARGE_BODY_BYTES = 64 * 2**10
"""From this size on a body is read on the thread; one of this size takes about 2 ms."""
BYTES_PER_TOKEN = 32
"""More than any language needs: JSON escapes take 6 bytes a letter, a token is 1 to 5 letters."""
_ROOM_BYTES = 2**20
"""What a body may hold that no prompt has: unknown fields, thoughts that the template drops."""


@dataclass(frozen=True, slots=True)
class BodyLimit:
    """The most bytes that a body of JSON may have, and why."""

    most_bytes: int
    reason: str
    is_of_context: bool = False
    """A larger body could never fit the policy's context."""

    @classmethod
    def of(
        cls, config: GatewayConfig, context: int | None, images: ImagesConfig | None = None
    ) -> Self:
        """`context`: tokens of a prompt with its reply; None: any number. `images`: limits of
        pictures; None: there are none."""
        most_bytes = int(config.max_body_mb * 2**20)
        configured = cls(most_bytes, "gateway.max_body_mb")
        if context is None:
            return configured
        picture_mb = 0.0 if images is None else images.max_count * images.max_mb * 4 / 3
        fitting_bytes = _ROOM_BYTES + BYTES_PER_TOKEN * context + int(picture_mb * 2**20)
        if fitting_bytes >= most_bytes:
            return configured
        pictures = f", and {picture_mb:g} MB of pictures" if picture_mb else ""
        reason = (
            f"1 MB and {BYTES_PER_TOKEN} bytes a token of the policy's maximum context length, "
            f"{context} tokens (policy.max_model_len){pictures}"
        )
        return cls(fitting_bytes, reason, is_of_context=True)

    def refusal(self) -> Refusal:
        """The answer to a larger one. Clients that shorten their history do so at this code."""
        limit_mb = self.most_bytes / 2**20
        message = f"the body is larger than {limit_mb:.3g} MB ({self.reason})"
        code = "context_length_exceeded" if self.is_of_context else "body_too_large"
        return Refusal(413, message, code)


@dataclass(slots=True)
class _UserTurns:
    """Lets one large body of a user be read at a time."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    count: int = 0


class BodyReader:
    """Reads bodies for one gateway: small ones at once, large ones beside the event loop."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gateway-bodies")
        self._users: dict[str, _UserTurns] = {}

    async def run(self, user: str, size_bytes: int, work: Callable[[], T]) -> T:
        """What `work` makes of a body of this size, sent by this user."""
        if size_bytes < LARGE_BODY_BYTES:
            return work()
        async with self._turn_of(user):
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    @asynccontextmanager
    async def _turn_of(self, user: str) -> AsyncIterator[None]:
        turns = self._users.setdefault(user, _UserTurns())
        turns.count += 1
        try:
            async with turns.lock:
                yield
        finally:
            turns.count -= 1
            if not turns.count:
                del self._users[user]

    def close(self) -> None:
        """Take no more; what is being read ends by itself."""
        self._thread.shutdown(wait=False, cancel_futures=True)
