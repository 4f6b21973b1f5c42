"""JSON over HTTP to a judge's model: bounded answers, no proxies, no redirects.

A key goes to the address that was configured and nowhere else.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from clawrl_gym.core.errors import ConfigError, ContextError, PolicyError, RequestError
from clawrl_gym.policy.generation import PolicyUnavailable

MAX_ANSWER_BYTES = 2 * 2**20
_MAX_TOLD = 200
"""Characters of an answer that an error repeats."""
_UNAVAILABLE = (408, 409, 425, 429, 502, 503, 504)
_TOO_LONG = ("context length", "context window", "context_length", "model length", "model_len",
             "too long", "context size")  # fmt: skip


class Endpoint:
    """A connection pool to one server. Use it from one event loop and close it."""

    def __init__(
        self, base_url: str, key: str | None, timeout_s: float, max_connections: int
    ) -> None:
        if not _is_url(base_url):
            raise ConfigError(
                f"got judge.base_url={base_url!r}, expected one such as http://HOST:PORT/v1"
            )
        self._base_url = base_url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._timeout_s = timeout_s
        self._most = max_connections
        self._session: aiohttp.ClientSession | None = None

    def beside_v1(self) -> str:
        """The server's address without the path of OpenAI's API."""
        return self._base_url.removesuffix("/v1")

    async def get(self, path: str) -> Any:
        """JSON below the base URL. Raises PolicyError."""
        return await self._call("GET", self._base_url + path, None)

    async def post(self, path: str, body: dict[str, Any], base_url: str | None = None) -> Any:
        """JSON in answer to JSON. Raises PolicyError, or the one of its kinds that fits."""
        return await self._call("POST", (base_url or self._base_url) + path, body)

    async def close(self) -> None:
        """Close all connections; idempotent, and a later call opens them again."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _call(self, method: str, url: str, body: dict[str, Any] | None) -> Any:
        path = urlsplit(url).path
        try:
            async with self._open().request(
                method, url, json=body, allow_redirects=False
            ) as response:
                data = await _read(response)
        except TimeoutError as error:
            raise PolicyUnavailable(
                f"the judge's model did not answer {path} within {self._timeout_s:g} s"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise PolicyUnavailable(
                f"the judge's model cannot be reached for {path}: {type(error).__name__}: {error}"
            ) from error
        return _answer(path, response.status, data)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._most),
                timeout=aiohttp.ClientTimeout(total=self._timeout_s),
                headers=self._headers,
            )
        return self._session


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The body, of which one byte more than the limit is enough to refuse it."""
    data = bytearray()
    async for chunk in response.content.iter_any():
        data += chunk
        if len(data) > MAX_ANSWER_BYTES:
            break
    return bytes(data)


def _answer(path: str, status: int, data: bytes) -> Any:
    told = data[:_MAX_TOLD].decode(errors="replace")
    if status != 200:
        kind: type[PolicyError] = PolicyUnavailable if status in _UNAVAILABLE else PolicyError
        if status in (400, 413, 422):
            said = data.decode(errors="replace").lower()
            kind = ContextError if any(sign in said for sign in _TOO_LONG) else RequestError
        raise kind(f"the judge's model answered {path} with {status}: {told}")
    if len(data) > MAX_ANSWER_BYTES:
        raise PolicyError(f"the judge's answer to {path} is longer than {MAX_ANSWER_BYTES} bytes")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise PolicyError(
            f"the judge's model answered {path} with {told!r}, expected JSON"
        ) from error
