"""A worker's one connection to the gateway, for the requests of all its episodes.

Opened with the first request, and again with the first after it was lost; requests that were under
way then fail, each with a ClientConnectionError.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp

from clawrl_gym.core.link import (
    HEARTBEAT_S,
    PATH,
    AnswerHead,
    Outbox,
    RequestHead,
    Route,
    messages_of,
)

_CLOSE_S = 2.0


class GatewayLink:
    """Use it from one event loop and close it."""

    def __init__(self, base_url: str, key: str) -> None:
        self._url = base_url + PATH
        self._headers = {"Authorization": f"Bearer {key}"}
        self._http: aiohttp.ClientSession | None = None
        self._connection: _Connection | None = None
        self._opening = asyncio.Lock()

    async def request(
        self, route: Route, session_id: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, bytes]:
        """Status and body of the answer. Cancelled, it is cancelled in the gateway, too.

        Raises aiohttp's ClientError.
        """
        connection = await self._open()
        return await connection.request(route, session_id, headers, body)

    async def close(self) -> None:
        """Close the link; idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
        if self._http is not None:
            await self._http.close()

    async def _open(self) -> _Connection:
        async with self._opening:
            if self._connection is None or self._connection.is_lost:
                if self._http is None:
                    self._http = aiohttp.ClientSession(headers=self._headers)
                websocket = await self._http.ws_connect(
                    self._url,
                    heartbeat=HEARTBEAT_S,
                    max_msg_size=0,
                    timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_S),
                )
                self._connection = _Connection(websocket)
            return self._connection


class _Connection:
    """One WebSocket, and who waits for an answer on it."""

    def __init__(self, websocket: aiohttp.ClientWebSocketResponse) -> None:
        self._websocket = websocket
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[tuple[int, bytes]]] = {}
        self._outbox = Outbox(websocket.send_bytes)
        self._running = asyncio.create_task(self._run())

    @property
    def is_lost(self) -> bool:
        return self._running.done() or self._websocket.closed

    async def request(
        self, route: Route, session_id: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, bytes]:
        number = next(self._numbers)
        head = RequestHead(number=number, route=route, session_id=session_id, headers=headers)
        with self._answer_to(number) as answer:
            self._outbox.put(head, body)
            return await answer

    async def close(self) -> None:
        self._running.cancel()
        await asyncio.wait({self._running})
        await self._websocket.close()

    @contextmanager
    def _answer_to(self, number: int) -> Iterator[asyncio.Future[tuple[int, bytes]]]:
        answer: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            yield answer
        finally:
            del self._waiting[number]
            if answer.cancelled():
                nobody = RequestHead(number=number, route="cancel", session_id="", headers={})
                self._outbox.put(nobody, b"{}")

    async def _run(self) -> None:
        """Read until the connection is lost; then nobody waits any more."""
        sending = asyncio.create_task(self._outbox.run())
        reading = asyncio.create_task(self._read())
        try:
            await asyncio.wait({sending, reading}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, reading):
                task.cancel()
            await asyncio.gather(sending, reading, return_exceptions=True)
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(
                        aiohttp.ClientConnectionError("the gateway closed the connection")
                    )

    async def _read(self) -> None:
        async for message in self._websocket:
            if message.type is not aiohttp.WSMsgType.BINARY:
                return
            for head, body in messages_of(message.data):
                self._settle(head, body)

    def _settle(self, head: AnswerHead, body: bytes) -> None:
        answer = self._waiting.get(head["number"])
        if answer is not None and not answer.done():
            answer.set_result((head["status"], body))
