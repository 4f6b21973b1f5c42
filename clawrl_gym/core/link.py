"""Messages between a rollout worker and the gateway on their one connection, a WebSocket.

Requests of many episodes are in flight at once, each with a number that its answer repeats. A
message is two lines: a JSON head and a JSON body. Messages that are ready together travel as one
frame, so that a busy connection needs no system call for each.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypedDict

PATH = "/link"
LARGEST_BODY_BYTES = 1 << 20
"""Larger bodies go by a request of their own: they would hold up all others."""
LARGEST_FRAME_BYTES = 4 << 20
HEARTBEAT_S = 120.0
"""Seconds between pings of either side; one silent for half of it is gone, as with its machine."""
_FULL_FRAME_BYTES = 1 << 20
Route = Literal["chat", "end", "cancel"]
"""The request's route; `cancel`: nobody waits for the answer to the request of that number."""


class RequestHead(TypedDict):
    """Head of a request."""

    number: int
    route: Route
    session_id: str
    headers: dict[str, str]
    """Headers as in a request over HTTP."""


class AnswerHead(TypedDict):
    """Head of an answer."""

    number: int
    status: int
    """HTTP status; the body of an answer that is not 200 is an OpenAI error."""


def messages_of(frame: bytes) -> list[tuple[Any, bytes]]:
    """The heads and bodies in a frame. Any: a head is any JSON until somebody has checked it.

    Raises ValueError for what is not a frame, RecursionError where it is nested too deeply.
    """
    lines = frame.split(b"\n")
    pairs = zip(lines[::2], lines[1::2], strict=True)
    return [(json.loads(head), body) for head, body in pairs]


class Outbox:
    """Outgoing messages in order; those that come while a frame is sent go with the next."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        self._send = send
        self._messages: deque[bytes] = deque()
        self._some = asyncio.Event()

    def put(self, head: RequestHead | AnswerHead, body: bytes) -> None:
        """`body`: JSON in one line."""
        self._messages.append(json.dumps(head).encode() + b"\n" + body)
        self._some.set()

    async def run(self) -> None:
        """Send for ever. Raises ConnectionError when the other side is gone."""
        while True:
            await self._some.wait()
            await self.flush()

    async def flush(self) -> None:
        """Send what is there. Raises ConnectionError when the other side is gone."""
        while self._messages:
            await self._send(self._frame())
        self._some.clear()

    def _frame(self) -> bytes:
        messages, size_bytes = [], 0
        while self._messages and size_bytes < _FULL_FRAME_BYTES:
            messages.append(self._messages.popleft())
            size_bytes += len(messages[-1])
        return b"\n".join(messages)


def in_one_line(body: object) -> bytes:
    """JSON without a line break."""
    return json.dumps(body).encode()
