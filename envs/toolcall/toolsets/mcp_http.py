"""An MCP server behind a URL: the SDK's streamable HTTP, with a bound on what comes back.

No proxies: a key in the headers goes to the address that was configured and nowhere else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

MAX_ANSWER_BYTES = 32 * 2**20
"""Of one answer; a stream of events counts as one."""
_TIMEOUT_S = 30.0
_READ_TIMEOUT_S = 300.0


@asynccontextmanager
async def http_transport(url: str, headers: Mapping[str, str]) -> AsyncIterator[tuple[Any, Any]]:
    """Streams of messages from and to the server at the URL."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    client = httpx2.AsyncClient(
        headers=dict(headers),
        timeout=httpx2.Timeout(_TIMEOUT_S, read=_READ_TIMEOUT_S),
        transport=_bounded_transport(),
        trust_env=False,
    )
    async with client, streamable_http_client(url, http_client=client) as streams:
        yield streams


def _bounded_transport() -> Any:
    """The usual transport, whose answers end with an error where they are too long."""
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        def __init__(self, stream: httpx2.AsyncByteStream) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            count = 0
            async for chunk in self._stream:
                count += len(chunk)
                if count > MAX_ANSWER_BYTES:
                    raise httpx2.ReadError(f"the answer is longer than {MAX_ANSWER_BYTES} bytes")
                yield chunk

        async def aclose(self) -> None:
            await self._stream.aclose()

    class Transport(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            answer = await super().handle_async_request(request)
            assert isinstance(answer.stream, httpx2.AsyncByteStream)
            answer.stream = Bounded(answer.stream)
            return answer

    return Transport()
