"""The connections to one vLLM: requests, event streams, and its refusals as errors of ours."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import aiohttp

from clawrl_gym.core.errors import PolicyError
from clawrl_gym.core.http import HttpPool
from clawrl_gym.core.types import Json

VllmJson = dict[str, Any]
"""An object in an answer of vLLM's, whose version is pinned: what is not in it is a KeyError."""
_TOO_LONG = ("maximum context length", "maximum model length", "max_model_len")
_UNAVAILABLE = (429, 502, 503, 504)
_GENERATING = ("/clawrl/reply", "/clawrl/stream", "/inference/v1/generate")
"""Routes where any failure of vLLM's own means that its engine has died."""
_CONNECT_S = 10.0
_KEEPALIVE_S = 60.0


class VllmConnections:
    """A pool to one server. Use it from one event loop and close it."""

    def __init__(
        self,
        base_url: str | Callable[[], str],
        key: str,
        timeout_s: float,
        max_connections: int,
    ) -> None:
        self._base_url = base_url
        self._timeout_s = timeout_s
        self._pool = HttpPool("vLLM", key, max_connections, _KEEPALIVE_S)

    async def post(self, path: str, body: Json) -> VllmJson:
        """A JSON answer to a JSON body."""
        answer: VllmJson = json.loads(await self.request("POST", path, body))
        return answer

    async def request(
        self, method: str, path: str, body: Json | None = None, timeout_s: float | None = None
    ) -> str:
        """The text of an answer. Raises PolicyUnavailable, or what the refusal means."""
        timeout_s = timeout_s or self._timeout_s
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        url = self._url(path)
        with self._pool.reaching(path, timeout_s):
            async with self._pool.session.request(
                method, url, json=body, timeout=timeout
            ) as response:
                text = await response.text()
        if response.status != 200:
            raise self._error(path, response.status, text)
        return text

    async def events(self, path: str, body: Json) -> AsyncGenerator[VllmJson, None]:
        """Server-sent events. The time limit is between two of them."""
        timeout = aiohttp.ClientTimeout(sock_connect=_CONNECT_S, sock_read=self._timeout_s)
        with self._pool.reaching(path, self._timeout_s):
            async with self._pool.session.post(
                self._url(path), json=body, timeout=timeout
            ) as response:
                if response.status != 200:
                    raise self._error(path, response.status, await response.text())
                rest = b""
                async for data in response.content.iter_any():
                    *events, rest = (rest + data).split(b"\n\n")
                    for line in events:
                        if line == b"data: [DONE]":
                            continue  # to the end of the body: the connection is used again
                        event = json.loads(line[6:])
                        if "error" in event:
                            raise self._error(path, event["error"]["code"], line[6:].decode())
                        yield event

    async def close(self) -> None:
        """Close all; idempotent, and a later request opens them again."""
        await self._pool.close()

    def _url(self, path: str) -> str:
        base_url = self._base_url if isinstance(self._base_url, str) else self._base_url()
        return base_url.rstrip("/") + path

    def _error(self, path: str, status: int, text: str) -> PolicyError:
        try:
            answer = json.loads(text)
            message = str(answer.get("error", {}).get("message") or answer.get("detail") or answer)
        except (ValueError, AttributeError):
            message = text.strip()
        engine_died = status >= 500 and path in _GENERATING
        return self._pool.error(
            path,
            status,
            message[:500],
            is_unavailable=status in _UNAVAILABLE or engine_died,
            is_bad_request=status in (400, 422),
            is_too_long=any(sign in message for sign in _TOO_LONG),
        )
