"""Bodies of requests: how large one may be, and where a large one is read.

The event loop answers everybody, so nobody's body is read on it for long. A small one is, for that
costs less than sending it elsewhere; a large one is read in a process of its own, because threads
share one interpreter lock. There the users take turns: whoever sends many large bodies waits for
each before the next.

The process lives as long as its pipe: it ends with the gateway, however that ends.
"""

from __future__ import annotations

import asyncio
import pickle
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self

from clawrl_gym.config import GatewayConfig, ImagesConfig, LiveConfig
from clawrl_gym.core.errors import ClawError
from clawrl_gym.gateway.bodies.body_process import SIZE_BYTES, Head, Refused, framed
from clawrl_gym.gateway.bodies.reading import BYTES_PER_TOKEN, ReadRequest, RequestReader, Sender
from clawrl_gym.gateway.wire.refusals import Refusal

LARGE_BODY_BYTES = 64 * 2**10
"""Size from which a body is read elsewhere; one of this size takes about 2 ms."""
_ROOM_BYTES = 2**20
"""Bytes of a body beyond its prompt: unknown fields, thoughts that the template drops."""
_END_S = 2.0
_MAIN = "from clawrl_gym.gateway.bodies.body_process import main; main()"
"""Not `-m`: what is pickled there must not be of a module that is called `__main__`."""


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
    """Reads bodies for one gateway: small ones at once, large ones in another process."""

    def __init__(self, live: LiveConfig, context: int | None = None) -> None:
        """`context`: tokens of a prompt with its reply; None: any number."""
        self._reader = RequestReader(live, context)
        self.rules = self._reader.rules
        self._process = _ReaderProcess(live, context)
        self._users: dict[str, _UserTurns] = {}

    async def json(self, raw: bytes, sender: Sender) -> object:
        """Any body of JSON. Raises Refusal (400)."""
        return await self._read("json", raw, sender)

    async def request(self, reader: str, raw: bytes, sender: Sender) -> ReadRequest:
        """A request for a reply, by the reader of its dialect. Raises Refusal (400)."""
        read: ReadRequest = await self._read("request", raw, sender, reader)
        return read

    async def close(self) -> None:
        """End the process; what it is reading is not answered."""
        await self._process.close()

    async def _read(self, what: str, raw: bytes, sender: Sender, *arguments: str) -> Any:
        """`Any`: what the reader's method of that name returns."""
        if len(raw) < LARGE_BODY_BYTES:
            return getattr(self._reader, what)(*arguments, raw, sender)
        async with self._turn_of(sender.user):
            return await self._process.read((what, arguments, sender), raw)

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


class _ReaderProcess:
    """A process that reads one body after another; it starts with the first one."""

    def __init__(self, live: LiveConfig, context: int | None) -> None:
        self._settings = pickle.dumps((live, context))
        self._lock = asyncio.Lock()
        self._process: Process | None = None

    async def read(self, head: Head, raw: bytes) -> Any:
        """The result of a `RequestReader`. Not left before the answer is here, so that the next one
        is for the next body."""
        asked = asyncio.ensure_future(self._asked(head, raw))
        try:
            answer = await asyncio.shield(asked)
        except asyncio.CancelledError:
            await asyncio.wait([asked])
            raise
        if isinstance(answer, Refused):
            raise Refusal(*answer.arguments)
        return answer

    async def _asked(self, head: Head, raw: bytes) -> Any:
        """Stops asking a process that died meanwhile, and asks the next one once."""
        async with self._lock:
            for is_last in (False, True):
                try:
                    return await self._answer(head, raw)
                except (OSError, asyncio.IncompleteReadError) as error:
                    await self.close()
                    if is_last:
                        what = f"the process that reads large bodies ended twice ({error})"
                        raise ClawError(what) from None

    async def _answer(self, head: Head, raw: bytes) -> Any:
        process = self._process or await self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.writelines([*framed(pickle.dumps(head)), *framed(raw)])
        await process.stdin.drain()
        return pickle.loads(await _frame_in(process.stdout))

    async def _started(self) -> Process:
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _MAIN, stdin=PIPE, stdout=PIPE
        )
        assert process.stdin is not None
        process.stdin.writelines(framed(self._settings))
        return process

    async def close(self) -> None:
        """A later use starts another one."""
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        with suppress(OSError):
            await process.stdin.wait_closed()
        try:
            async with asyncio.timeout(_END_S):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _frame_in(stream: asyncio.StreamReader) -> bytes:
    return await stream.readexactly(int.from_bytes(await stream.readexactly(SIZE_BYTES)))
