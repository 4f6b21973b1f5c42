"""The links of rollout workers: many requests of many sessions on one connection each.

What a request means, how it is counted and what its errors look like is as over HTTP. A request
that its worker cancels, or whose link is lost, is cancelled like one whose client has left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

from aiohttp import WSCloseCode, WSMsgType, web

from clawrl_gym.core.link import (
    HEARTBEAT_S,
    LARGEST_FRAME_BYTES,
    AnswerHead,
    Outbox,
    RequestHead,
    in_one_line,
    messages_of,
)
from clawrl_gym.core.types import Json
from clawrl_gym.gateway.border import Border

_DRAIN_S = 0.5
"""Seconds that requests in flight may still take when the gateway stops."""


@dataclass(frozen=True, slots=True)
class LinkedRequest:
    """A request on a link."""

    session_id: str
    headers: dict[str, str]
    body: bytes


Answerer = Callable[[LinkedRequest], Awaitable[Json]]


class Links:
    """All links of one gateway."""

    def __init__(self, border: Border, chat: Answerer, end: Answerer) -> None:
        self._border = border
        self._answerers = {
            "chat": ("/sessions/{id}/v1/chat/completions", chat),
            "end": ("/sessions/{id}/end", end),
        }
        self._open: set[_Link] = set()

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        """GET /link, until either side closes it."""
        websocket = web.WebSocketResponse(
            max_msg_size=LARGEST_FRAME_BYTES, compress=False, heartbeat=HEARTBEAT_S
        )
        await websocket.prepare(request)
        link = _Link(websocket, self._answerers, self._answer)
        self._open.add(link)
        try:
            await link.run()
        finally:
            self._open.discard(link)
        return websocket

    async def close(self, _: web.Application) -> None:
        """Close all, after what is under way and ends soon."""
        await asyncio.gather(*(link.close() for link in self._open))

    async def _answer(self, route: str, request: LinkedRequest) -> tuple[int, bytes]:
        path, answerer = self._answerers[route]
        status, body = await self._border.linked(path, lambda: answerer(request))
        return status, in_one_line(body)


class _Link:
    """One connection."""

    def __init__(
        self,
        websocket: web.WebSocketResponse,
        routes: Collection[str],
        answer: Callable[[str, LinkedRequest], Awaitable[tuple[int, bytes]]],
    ) -> None:
        self._websocket = websocket
        self._routes = routes
        self._answer = answer
        self._outbox = Outbox(websocket.send_bytes)
        self._under_way: dict[int, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Run until it is lost; requests in flight are then cancelled."""
        sending = asyncio.create_task(self._outbox.run())
        reading = asyncio.create_task(self._read())
        try:
            await asyncio.wait({sending, reading}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            tasks = [sending, reading, *self._under_way.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """After what is under way and ends soon."""
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=_DRAIN_S)
        with suppress(ConnectionError):
            await self._outbox.flush()
        await self._websocket.close()

    async def _read(self) -> None:
        async for message in self._websocket:
            try:
                if message.type is not WSMsgType.BINARY:
                    raise ValueError(f"got a message of type {message.type.name}")
                for head, body in messages_of(message.data):
                    self._begin(head, body)
            except (ValueError, RecursionError) as error:
                reason = f"{error!a:.80}, expected what core/link.py says".encode()
                await self._websocket.close(code=WSCloseCode.PROTOCOL_ERROR, message=reason[:120])

    def _begin(self, head: RequestHead, body: bytes) -> None:
        if not _is_head(head):
            raise ValueError(f"got the head {head}")
        number = head["number"]
        if head["route"] == "cancel":
            if number in self._under_way:
                self._under_way[number].cancel()
            return
        if head["route"] not in self._routes or number in self._under_way:
            raise ValueError(f"got the head {head}")
        request = LinkedRequest(head["session_id"], head["headers"], body)
        task = asyncio.create_task(self._respond(number, head["route"], request))
        self._under_way[number] = task
        task.add_done_callback(lambda _: self._under_way.pop(number, None))

    async def _respond(self, number: int, route: str, request: LinkedRequest) -> None:
        status, body = await self._answer(route, request)
        self._outbox.put(AnswerHead(number=number, status=status), body)


def _is_head(head: object) -> bool:
    """Whether JSON from outside is a `RequestHead`."""
    if not isinstance(head, dict) or not isinstance(head.get("headers"), dict):
        return False
    texts = (head.get("route"), head.get("session_id"), *head["headers"].values())
    return type(head.get("number")) is int and all(isinstance(text, str) for text in texts)
