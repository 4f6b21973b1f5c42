"""Replies as server-sent events: when the response opens, how it stays alive, when it is cut.

The status is kept open until there is something to send, so that an early failure is a proper HTTP
error; a request that waits longer gets its 200 and then comments, so that neither client nor proxy
gives up. What a client has not read yet is bounded by its connection's buffers: a reply waits for
its reader, and a reader that stalls is cut off.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from aiohttp import web

from clawrl_gym.core.types import Json

_WAITING = b": waiting\n\n"
END_OF_STREAM = b"data: [DONE]\n\n"
"""Ends every stream of the OpenAI API."""
_BEGUN = web.RequestKey("has_begun", bool)
encode = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Pace:
    """The times of a stream."""

    open_after_s: float = 1.0
    """Seconds that the status waits for a first piece."""
    keep_alive_s: float = 5.0
    """Longest silence on an open stream."""
    stall_s: float = 30.0
    """Seconds that a client may leave ready data unread."""


class EventStream:
    """One response; opens with its first event. Use it as a context, from one task."""

    def __init__(self, request: web.Request, headers: dict[str, str], pace: Pace) -> None:
        self._request = request
        self._pace = pace
        self._response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream; charset=utf-8",
                "Cache-Control": "no-cache",
                "X-Accel-Buffering": "no",
                **headers,
            }
        )
        self._clock = asyncio.get_running_loop().time
        self._last_s = self._clock()
        self._writing_since_s: float | None = None

    @property
    def is_open(self) -> bool:
        """The status is out: what fails now can only be sent as an event."""
        return self._response.prepared

    async def __aenter__(self) -> Self:
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._watching.cancel()

    async def send(self, events: bytes) -> None:
        """Hand events over; waits while the client does not read."""
        if not self._response.prepared:
            self._request[_BEGUN] = True
            await self._response.prepare(self._request)
        self._writing_since_s = self._clock()
        await self._response.write(events)
        self._writing_since_s = None
        self._last_s = self._clock()

    async def close(self, events: bytes) -> web.StreamResponse:
        """The last events, and the end."""
        await self.send(events)
        self._writing_since_s = self._clock()
        await self._response.write_eof()
        self._writing_since_s = None
        return self._response

    async def _watch(self) -> None:
        await asyncio.sleep(self._pace.open_after_s)
        if not self._response.prepared:
            await self._comment()
        while True:
            now_s = self._clock()
            if self._writing_since_s is None:
                due_s = self._last_s + self._pace.keep_alive_s
                if now_s >= due_s:
                    await self._comment()
            else:
                due_s = self._writing_since_s + self._pace.stall_s
                if now_s >= due_s:
                    return self._cut()
            await asyncio.sleep(max(due_s - now_s, self._pace.keep_alive_s / 10))

    async def _comment(self) -> None:
        """Send a comment if the buffer is empty: it never waits, and so never beside the reply."""
        transport = self._request.transport
        if transport is not None and not transport.get_write_buffer_size():
            with suppress(ConnectionError):
                await self.send(_WAITING)

    def _cut(self) -> None:
        """The handler of a connection that is gone is cancelled."""
        if self._request.transport is not None:
            self._request.transport.abort()


def has_begun(request: web.Request) -> bool:
    """Whether a stream is the answer to a request: no other can be sent."""
    return _BEGUN in request


def event(fields: Json) -> bytes:
    """One event."""
    return f"data: {encode(fields)}\n\n".encode()
