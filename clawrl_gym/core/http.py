"""Connections to a model server, with its failures as this package's errors.

The policy's client and a judge's share it. A server that cannot be reached or is too busy may be
asked again (PolicyUnavailable); a request that was refused may not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp

from clawrl_gym.core.errors import ContextError, PolicyError, PolicyUnavailable, RequestError


class HttpPool:
    """A pool of connections to one server, opened at its first use. Use it from one event loop."""

    def __init__(
        self,
        server: str,
        key: str | None,
        max_connections: int,
        keepalive_s: float = 15.0,
    ) -> None:
        """`server`: its name in errors; `keepalive_s`: how long an idle connection stays open."""
        self._server = server
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._max_connections = max_connections
        self._keepalive_s = keepalive_s
        self._session: aiohttp.ClientSession | None = None

    @property
    def session(self) -> aiohttp.ClientSession:
        """The open session; it ignores proxies of the environment."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self._max_connections, keepalive_timeout=self._keepalive_s
                ),
                headers=self._headers,
            )
        return self._session

    @contextmanager
    def reaching(self, path: str, timeout_s: float) -> Iterator[None]:
        """Raise PolicyUnavailable when the server does not answer inside."""
        try:
            yield
        except TimeoutError as error:
            raise PolicyUnavailable(
                f"{self._server} did not answer {path} within {timeout_s:g} s"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise PolicyUnavailable(
                f"{self._server} cannot be reached for {path}: {type(error).__name__}: {error}"
            ) from error

    def error(
        self,
        path: str,
        status: int,
        excerpt: str,
        *,
        is_unavailable: bool,
        is_bad_request: bool,
        is_too_long: bool,
    ) -> PolicyError:
        """The error for an answer that is not 200; `excerpt` of it is repeated."""
        kind: type[PolicyError] = PolicyUnavailable if is_unavailable else PolicyError
        if is_bad_request:
            kind = ContextError if is_too_long else RequestError
        return kind(f"{self._server} answered {path} with {status}: {excerpt}")

    async def close(self) -> None:
        """Close all connections; idempotent, and a later request opens them again."""
        if self._session is not None:
            await self._session.close()
            self._session = None
