"""The connections to one vLLM: requests, event streams, and its refusals as errors of ours."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp

from clawrl_gym.core.errors import ContextError, PolicyError, RequestError
from clawrl_gym.policy.generation import PolicyUnavailable

_TOO_LONG = ("maximum context length", "maximum model length", "max_model_len")
_UNAVAILABLE = (429, 502, 503, 504)
_GENERATING = ("/inference/v1/generate", "/clawrl/stream")
"""Where any failure of vLLM's own means that its engine has died."""
_CONNECT_S = 10.0


class Connections:
    """A pool to one server. Use it from one event loop and close it."""

    def __init__(self, base_url: str, key: str, timeout_s: float, most: int) -> None:
        self._base_url = base_url.rstrip("/")
        self._key = key
        self._timeout_s = timeout_s
        self._most = most
        self._session: aiohttp.ClientSession | None = None

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """A JSON answer to a JSON body."""
        answer: dict[str, Any] = json.loads(await self.request("POST", path, body))
        return answer

    async def request(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> str:
        """The text of an answer. Raises PolicyUnavailable, or what the refusal means."""
        timeout_s = timeout_s or self._timeout_s
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        url = self._base_url + path
        with _reaching(path, timeout_s):
            async with self._open().request(method, url, json=body, timeout=timeout) as response:
                text = await response.text()
        if response.status != 200:
            raise _refusal(path, response.status, text)
        return text

    async def events(self, path: str, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Server-sent events. The time limit is between two of them."""
        timeout = aiohttp.ClientTimeout(sock_connect=_CONNECT_S, sock_read=self._timeout_s)
        with _reaching(path, self._timeout_s):
            async with self._open().post(
                self._base_url + path, json=body, timeout=timeout
            ) as response:
                if response.status != 200:
                    raise _refusal(path, response.status, await response.text())
                rest = b""
                async for data in response.content.iter_any():
                    *events, rest = (rest + data).split(b"\n\n")
                    for line in events:
                        if line == b"data: [DONE]":
                            continue  # to the end of the body: the connection is used again
                        event = json.loads(line[6:])
                        if "error" in event:
                            raise _refusal(path, event["error"]["code"], line[6:].decode())
                        yield event

    async def close(self) -> None:
        """Close all; idempotent, and a later request opens them again."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._most, keepalive_timeout=60),
                headers={"Authorization": f"Bearer {self._key}"},
            )
        return self._session


@contextmanager
def _reaching(path: str, timeout_s: float) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise PolicyUnavailable(f"vLLM did not answer {path} within {timeout_s:g} s") from error
    except aiohttp.ClientError as error:
        raise PolicyUnavailable(
            f"vLLM cannot be reached for {path}: {type(error).__name__}: {error}"
        ) from error


def _refusal(path: str, status: int, text: str) -> PolicyError:
    try:
        answer = json.loads(text)
        said = str(answer.get("error", {}).get("message") or answer.get("detail") or answer)
    except (ValueError, AttributeError):
        said = text.strip()
    away = status in _UNAVAILABLE or (status >= 500 and path in _GENERATING)
    kind: type[PolicyError] = PolicyUnavailable if away else PolicyError
    if status in (400, 422):
        kind = ContextError if any(sign in said for sign in _TOO_LONG) else RequestError
    return kind(f"vLLM answered {path} with {status}: {said[:500]}")
