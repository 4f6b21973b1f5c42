"""A server of the OpenAI API in a few lines: it says what a test wants, and can misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Says = Callable[[dict[str, Any]], str]
"""The body of a request in, the reply's text out."""


@dataclass(slots=True)
class Endpoint:
    """One server; what a test sets holds from the next request on."""

    says: Says = lambda body: "nothing"
    usage: dict[str, int] | None = field(
        default_factory=lambda: {"prompt_tokens": 11, "completion_tokens": 3}
    )
    key: str = "none"
    """Any other one is refused."""
    models: tuple[str, ...] | None = ("scripted",)
    """Listed at /models; None: there is no list."""
    refusals: list[int] = field(default_factory=list)
    """Statuses of the next requests, the first first."""
    answers_left: int | None = None
    """Then it is down: 503. None: it never is."""
    delay_s: float = 0.0
    bodies: list[dict[str, Any]] = field(default_factory=list)
    """Requests that came."""
    url: str = ""

    async def chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.bodies.append(body)
        await asyncio.sleep(self.delay_s)
        if request.headers.get("Authorization") != f"Bearer {self.key}":
            return _refused(401, "Incorrect API key provided")
        if self.models is not None and body["model"] not in self.models:
            return _refused(404, f"The model `{body['model']}` does not exist")
        if self.refusals:
            return _refused(self.refusals.pop(0), "not now")
        if self.answers_left == 0:
            return _refused(503, "down")
        if self.answers_left is not None:
            self.answers_left -= 1
        message = {"role": "assistant", "content": self.says(body)}
        answer = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": self.usage}
        return web.json_response(answer)

    async def list_models(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {self.key}":
            return _refused(401, "Incorrect API key provided")
        if self.models is None:
            return _refused(404, "no such route")
        return web.json_response({"data": [{"id": name} for name in self.models]})


def _refused(status: int, message: str) -> web.Response:
    headers = {"Retry-After": "0"} if status == 429 else {}
    return web.json_response({"error": {"message": message}}, status=status, headers=headers)


@asynccontextmanager
async def listening(endpoint: Endpoint) -> AsyncIterator[Endpoint]:
    """The server, until the block ends; its address is in `url`."""
    app = web.Application()
    app.router.add_post("/v1/chat/completions", endpoint.chat)
    app.router.add_get("/v1/models", endpoint.list_models)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    endpoint.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield endpoint
    finally:
        await runner.cleanup()
