"""The way out of a sandbox for an agent inside it: to its own session's policy, and nowhere else.

Takes HTTP from a socket that listens inside the sandbox. A request that is one of the routes below
is made anew to the episode's session at the gateway, with the key that the agent does not have;
nothing but its body and a few headers goes along. Every other request gets 404. Connections,
requests at once, sizes and times are bounded.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import socket
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeVar

import aiohttp
from aiohttp import web

from clawrl_gym.core.errors import PolicyError
from clawrl_gym.core.text import read_json

T = TypeVar("T")

ROUTES: Final = frozenset(
    {
        ("GET", "/v1/models"),
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/completions"),
        ("POST", "/v1/messages"),
        ("POST", "/v1/messages/count_tokens"),
        ("POST", "/v1/responses"),
    }
)
_ANSWERS = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"})
"""Routes whose answers the policy samples."""
_HEADERS = ("Accept", "Content-Type", "User-Agent", "anthropic-version", "anthropic-beta")
_MOST_CONNECTIONS = 64
_MOST_AT_ONCE = 8
_MOST_BODY_BYTES = 32 << 20
_MOST_HEADER_BYTES = 8190
_CONNECT_S = 10.0
_TOO_LONG = 504
"""The gateway's answer for a reply that takes too long, of a policy that works."""
_SILENT = logging.getLogger(f"{__name__}.http")
"""What is not HTTP is no news: anything may be sent from inside."""
_SILENT.setLevel(logging.CRITICAL)


class SessionRelay:
    """Carries an agent's requests to one session, and counts what it asked for."""

    def __init__(
        self,
        base_url: str,
        key: str,
        *,
        timeout_s: float,
        most_replies: float = math.inf,
        temperature: float | None = None,
    ) -> None:
        """`base_url`: address of the session with its /v1. `temperature`: takes the place of the
        agent's own."""
        self.most_replies = most_replies
        """Replies that there are for the agent."""
        self.replies = 0
        """Replies of the policy, begun or ended."""
        self.spent = asyncio.Event()
        """Set once the agent has asked for more replies than there are."""
        self.failure: str | None = None
        """Failure of the policy after which it has not answered again."""
        self._base_url = base_url.rstrip("/")
        self._key = key
        self._timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=_CONNECT_S)
        self._temperature = temperature
        self._at_once = asyncio.Semaphore(_MOST_AT_ONCE)

    @asynccontextmanager
    async def listening(self, listener: socket.socket) -> AsyncIterator[None]:
        """Serve what connects to the listener, which is closed afterwards."""
        async with aiohttp.ClientSession(
            timeout=self._timeout, cookie_jar=aiohttp.DummyCookieJar(), trust_env=False
        ) as http:

            async def handle(request: web.BaseRequest) -> web.StreamResponse:
                return await self._handle(request, http)

            server = _Server(
                handle,
                logger=_SILENT,
                access_log=None,
                max_line_size=_MOST_HEADER_BYTES,
                max_field_size=_MOST_HEADER_BYTES,
                handler_cancellation=True,
            )

            def connected() -> asyncio.BaseProtocol:
                return server() if server.open < _MOST_CONNECTIONS else _Refused()

            serving = await asyncio.get_running_loop().create_server(connected, sock=listener)
            try:
                yield
            finally:
                serving.close()
                await server.shutdown(0.0)

    async def _handle(
        self, request: web.BaseRequest, http: aiohttp.ClientSession
    ) -> web.StreamResponse:
        path = request.raw_path.partition("?")[0]
        if (request.method, path) not in ROUTES:
            return _refusal(404, "there is no such route in a sandbox")
        body = await _body_of(request)
        if body is None:
            return _refusal(413, f"the body has more than {_MOST_BODY_BYTES >> 20} MB")
        if path not in _ANSWERS:
            return await self._forward(request, http, path, body)
        if self.replies >= self.most_replies:
            self.spent.set()
            return _refusal(403, f"the task's {self.most_replies:g} replies are used up")
        self.replies += 1
        if self._temperature is not None:
            body = await asyncio.to_thread(_with_temperature, body, self._temperature)
        async with self._at_once:
            return await self._forward(request, http, path, body)

    async def _forward(
        self, request: web.BaseRequest, http: aiohttp.ClientSession, path: str, body: bytes
    ) -> web.StreamResponse:
        """The gateway's answer, passed on as it comes."""
        url = self._base_url + path.removeprefix("/v1")
        headers = _passed_on(request.headers) | {"Authorization": f"Bearer {self._key}"}
        asked = http.request(
            request.method, url, data=body or None, headers=headers, allow_redirects=False
        )
        try:
            answer = await _of_policy(asked)
        except PolicyError as error:
            self.failure = str(error)
            return _refusal(502, "the policy does not answer")
        async with answer:
            self._note(path, answer.status)
            response = web.StreamResponse(
                status=answer.status, headers={"Content-Type": answer.content_type}
            )
            await response.prepare(request)
            try:
                while chunk := await _of_policy(answer.content.readany()):
                    await response.write(chunk)
                await response.write_eof()
            except PolicyError as error:
                self.failure = str(error)
                if request.transport is not None:
                    request.transport.abort()  # half an answer is not taken for a whole one
            return response

    def _note(self, path: str, status: int) -> None:
        """A reply that was refused is none; a policy that fails is not the agent's doing."""
        if path not in _ANSWERS:
            return
        if status < 300:
            self.failure = None
            return
        self.replies -= 1
        if status == 429 or (status >= 500 and status != _TOO_LONG):
            self.failure = f"the policy answered with status {status}"


class _Server(web.Server):
    """Counts its connections from the moment that they are accepted."""

    open = 0

    def __call__(self) -> web.RequestHandler:
        self.open += 1
        return super().__call__()

    def connection_lost(
        self, handler: web.RequestHandler, exc: BaseException | None = None
    ) -> None:
        self.open -= 1
        super().connection_lost(handler, exc)


class _Refused(asyncio.Protocol):
    """A connection too many: closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            transport.abort()


async def _of_policy(awaited: Awaitable[T]) -> T:
    """What comes of the policy; that an agent hangs up is none of its failures."""
    try:
        return await awaited
    except (aiohttp.ClientError, TimeoutError) as error:
        raise PolicyError(f"the gateway did not answer: {type(error).__name__}: {error}") from error


async def _body_of(request: web.BaseRequest) -> bytes | None:
    """The body; None where it is too large."""
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > _MOST_BODY_BYTES:
            return None
    return bytes(body)


def _passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: headers[name] for name in _HEADERS if name in headers}


def _with_temperature(body: bytes, temperature: float) -> bytes:
    """The request at another temperature; one that is no JSON is the gateway's to refuse."""
    with suppress(ValueError, RecursionError):
        fields = read_json(body, "agent")
        if isinstance(fields, dict):
            return json.dumps({**fields, "temperature": temperature}).encode()
    return body


def _refusal(status: int, message: str) -> web.Response:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return web.json_response({"type": "error", "error": error}, status=status)
