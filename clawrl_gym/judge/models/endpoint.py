"""JSON over HTTP to a judge's model: bounded answers, no proxies, no redirects.

A key goes to the address that was configured and nowhere else. A server that is busy, broken or
away is asked again while there is time: after as long as it says (Retry-After), else after growing
waits. All waits are spread, so that those that were refused together do not come back together.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

import aiohttp

from clawrl_gym.core.errors import ConfigError, PolicyError, PolicyUnavailable
from clawrl_gym.core.http import HttpPool
from clawrl_gym.core.text import read_json
from clawrl_gym.core.types import Json
from clawrl_gym.judge.models.server_errors import is_too_long, status_inside, wait_s

MAX_ANSWER_BYTES = 2 * 2**20
_EXCERPT_BYTES = 400
"""Bytes of an answer that an error repeats."""
_BUSY = (408, 409, 424, 425, 429)
_NEVER = (501, 505)
"""Errors of the server that asking again does not mend."""
_LONGEST_WAIT_S = 8.0
"""Longest pause in seconds where the server does not say how long."""
_SPREAD = 0.25
"""Share of a wait that is added at most."""


class JudgeEndpoint:
    """A connection pool to one server. Use it from one event loop and close it."""

    def __init__(
        self,
        base_url: str,
        key: str | None,
        timeout_s: float,
        max_connections: int,
        first_wait_s: float = 0.5,
    ) -> None:
        """`timeout_s`: for an answer, all tries and waits together; `first_wait_s`: before the
        second try, where the server says nothing; doubled with each."""
        if not _is_url(base_url):
            raise ConfigError(
                f"got judge.base_url={base_url!r}, expected one such as http://HOST:PORT/v1"
            )
        self._base_url = base_url.rstrip("/")
        self._timeout_s = timeout_s
        self._first_wait_s = first_wait_s
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
        ends_s, wait_s = time.monotonic() + self._timeout_s, self._first_wait_s
        while True:
            after = _RetryAfter()
            try:
                return await self._try(method, url, body, ends_s - time.monotonic(), after)
            except PolicyUnavailable:
                pause_s = wait_s if after.wait_s is None else after.wait_s
                pause_s *= 1 + _SPREAD * random.random()
                if time.monotonic() + pause_s >= ends_s:
                    raise
            await asyncio.sleep(pause_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    async def _try(
        self, method: str, url: str, body: Json | None, left_s: float, after: _RetryAfter
    ) -> object:
        """One request. `after` is told how long the server wants to be left alone."""
        path = urlsplit(url).path
        timeout = aiohttp.ClientTimeout(total=left_s)
        with self._pool.reaching(path, self._timeout_s):
            async with self._pool.session.request(
                method, url, json=body, allow_redirects=False, timeout=timeout
            ) as response:
                data = await _read(response)
        after.wait_s = wait_s(response.headers)
        if 300 <= response.status < 400:
            raise PolicyError(
                f"the judge's model answered {path} with a {response.status} to "
                f"{response.headers.get('Location')!r}, which is not followed: set judge.base_url "
                "to where the server is"
            )
        if not 200 <= response.status < 300:
            raise self._error(path, response.status, data)
        if len(data) > MAX_ANSWER_BYTES:
            raise PolicyError(
                f"the judge's answer to {path} is longer than {MAX_ANSWER_BYTES} bytes"
            )
        try:
            answer: object = read_json(bytes(data), "judge")
        except (ValueError, RecursionError) as error:
            raise (PolicyUnavailable if _is_cut_off(data) else PolicyError)(
                f"the judge's model answered {path} with {_excerpt(data)!r}, expected JSON"
            ) from error
        status = status_inside(answer)
        if status is not None:
            raise self._error(path, status, data)
        return answer

    def _error(self, path: str, status: int, data: bytes) -> PolicyError:
        is_broken = status >= 500 and status not in _NEVER
        too_long = status == 413 or is_too_long(data.decode(errors="replace"))
        return self._pool.error(
            path,
            status,
            _excerpt(data),
            is_unavailable=status in _BUSY or is_broken,
            is_bad_request=status in (400, 413, 422) or (is_broken and too_long),
            is_too_long=too_long,
        )


@dataclass(slots=True)
class _RetryAfter:
    wait_s: float | None = None
    """Pause that the server asks for, in seconds; None: it does not say."""


def _is_cut_off(data: bytes) -> bool:
    """Whether an answer ended on its way, so that the same request may be answered whole."""
    text = data.strip()
    return not text or (text.startswith(b"{") and not text.endswith(b"}"))


def _excerpt(data: bytes) -> str:
    return data[:_EXCERPT_BYTES].decode(errors="replace")


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
