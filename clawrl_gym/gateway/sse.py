"""Replies as server-sent events: when the response opens, how it stays alive, when it is cut.

The status is kept open until there is something to send, so that an early failure is a proper HTTP
error; a request that waits longer gets its 200 and then comments, so that neither client nor proxy
gives up. What a client has not read yet is bounded by its connection's buffers: a reply waits for
its reader, and a reader that stalls is cut off.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, Self

from aiohttp import web

from clawrl_gym.core.types import Turn
from clawrl_gym.gateway.answers import finish_reason_of, usage_json
from clawrl_gym.policy.generation import Delta

_WAITING = b": waiting\n\n"
_DONE = b"data: [DONE]\n\n"
encode = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Pace:
    """The times of a stream."""

    open_after_s: float = 1.0
    """How long the status waits for a first piece."""
    keep_alive_s: float = 5.0
    """Longest silence on an open stream."""
    stall_s: float = 30.0
    """How long a client may read nothing of what is ready for it."""


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
        """The status is out: what fails now can only be told by an event."""
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
        """Only onto an empty buffer: it never waits, and so never beside the reply."""
        transport = self._request.transport
        if transport is not None and not transport.get_write_buffer_size():
            with suppress(ConnectionError):
                await self.send(_WAITING)

    def _cut(self) -> None:
        """The handler of a connection that is gone is cancelled."""
        if self._request.transport is not None:
            self._request.transport.abort()


class ChatEvents:
    """The events of one chat reply, in order."""

    object = "chat.completion.chunk"
    prefix = "chatcmpl-"
    speaks: ClassVar[dict[str, Any]] = {"delta": {"role": "assistant", "content": ""}}
    ends: ClassVar[dict[str, Any]] = {"delta": {}}

    def __init__(self, model: str, session_id: str, with_usage: bool) -> None:
        self._base: dict[str, Any] = {
            "id": self.prefix + uuid.uuid4().hex,
            "object": self.object,
            "created": int(time.time()),
            "model": model,
        }
        self._with_usage = with_usage
        no_usage = ',"usage":null' if with_usage else ""
        self._before = f'data: {encode(self._base)[:-1]},"choices":[{{"index":0,'
        self._after = f',"logprobs":null,"finish_reason":null}}]{no_usage}}}\n\n'
        self._opening = self._choice_event(self.speaks, None, {"session_id": session_id})

    @property
    def has_begun(self) -> bool:
        """A piece was made."""
        return not self._opening

    def piece(self, delta: Delta) -> bytes:
        """What came; the only event that is made again and again."""
        opening, self._opening = self._opening, b""
        return opening + f"{self._before}{self._choice(delta)}{self._after}".encode()

    def last(self, turn: Turn) -> bytes:
        """Why it ended, the usage when it was asked for, and the end."""
        told = {"session_id": turn.session_id, "turn_id": turn.id}
        events = self._opening + self._choice_event(self.ends, finish_reason_of(turn), told)
        if self._with_usage:
            events += event({**self._base, "choices": [], "usage": usage_json(turn)})
        return events + _DONE

    def _choice(self, delta: Delta) -> str:
        return f'"delta":{encode(delta)}'

    def _choice_event(
        self, choice: dict[str, Any], finish_reason: str | None, told: dict[str, Any]
    ) -> bytes:
        choice = {"index": 0, **choice, "logprobs": None, "finish_reason": finish_reason}
        usage = {"usage": None} if self._with_usage else {}
        return event({**self._base, **told, "choices": [choice], **usage})


def event(value: Any) -> bytes:
    """One event."""
    return f"data: {encode(value)}\n\n".encode()
