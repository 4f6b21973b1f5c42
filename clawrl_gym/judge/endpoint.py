"""JSON over HTTP to a judge's model: bounded answers, no proxies, no redirects.

A key goes to the address that was configured and nowhere else.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import aiohttp

from clawrl_gym.core.errors import ConfigError, PolicyError
from clawrl_gym.core.http import HttpPool
from clawrl_gym.core.text import read_json
from clawrl_gym.core.types import Json

MAX_ANSWER_BYTES = 2 * 2**20
_EXCERPT_BYTES = 200
"""Of an answer, that an error repeats."""
_UNAVAILABLE = (408, 409, 425, 429, 502, 503, 504)
_TOO_LONG = ("context length", "context window", "context_length", "model length", "model_len",
             "too long", "context size")  # fmt: skip


class JudgeEndpoint:
    """A connection pool to one server. Use it from one event loop and close it."""

    def __init__(
        self, base_url: str, key: str | None, timeout_s: float, max_connections: int
    ) -> None:
        if not _is_url(base_url):
            raise ConfigError(
                f"got judge.base_url={base_url!r}, expected one such as http://HOST:PORT/v1"
            )
        self._base_url = base_url.rstrip("/")
        self._timeout_s = timeout_s
        self._pool = HttpPool("the judge's model", key, max_connections)

    def beside_v1(self) -> str:
        """The server's address without the path of OpenAI's API."""
        return self._base_url.removesuffix("/v1")

    async def get(self, path: str) -> object:
        """JSON below the base URL. Raises PolicyError."""
        return await self._call("GET", self._base_url + path, None)

    async def post(self, path: str, body: Json, base_url: str | None = None) -> object:
        """JSON in answer to JSON. Raises PolicyError, or the one of its kinds that fits."""
        return await self._call("POST", (base_url or self._base_url) + path, body)

    async def close(self) -> None:
        """Close all connections; idempotent, and a later call opens them again."""
        await self._pool.close()

    async def _call(self, method: str, url: str, body: Json | None) -> object:
        path = urlsplit(url).path
        timeout = aiohttp.ClientTimeout(total=self._timeout_s)
        with self._pool.reaching(path, self._timeout_s):
            async with self._pool.session.request(
                method, url, json=body, allow_redirects=False, timeout=timeout
            ) as response:
                data = await _read(response)
        excerpt = data[:_EXCERPT_BYTES].decode(errors="replace")
        if response.status != 200:
            text = data.decode(errors="replace").lower()
            raise self._pool.error(
                path,
                response.status,
                excerpt,
                is_unavailable=response.status in _UNAVAILABLE,
                is_bad_request=response.status in (400, 413, 422),
                is_too_long=any(sign in text for sign in _TOO_LONG),
            )
        if len(data) > MAX_ANSWER_BYTES:
            raise PolicyError(
                f"the judge's answer to {path} is longer than {MAX_ANSWER_BYTES} bytes"
            )
        try:
            answer: object = read_json(bytes(data), "judge")
        except (ValueError, RecursionError) as error:
            raise PolicyError(
                f"the judge's model answered {path} with {excerpt!r}, expected JSON"
            ) from error
        return answer


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
