"""A small hand-written server that answers like vLLM, for tests of the client and of the swap."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from clawrl_gym.inference.vllm.client import PolicyClient

KEY = "the key"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class FakeVllm:
    """Records what it is asked; `answers` replaces the answer to a path."""

    calls: list[tuple[str, Any]] = field(default_factory=list)
    answers: dict[str, Handler] = field(default_factory=dict)
    paused: bool = False
    version: str = "default"
    base_url: str = ""

    def paths(self) -> list[str]:
        return [path for path, _ in self.calls]

    def client(self, timeout_s: float = 5.0) -> PolicyClient:
        return PolicyClient(self.base_url, KEY, "policy", timeout_s, 8)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            return web.Response(status=401)
        body = await request.json() if request.can_read_body else dict(request.query)
        self.calls.append((request.path, body))
        if request.path in self.answers:
            return await self.answers[request.path](request)
        return self.answer(request.path, body)

    def answer(self, path: str, body: Any) -> web.StreamResponse:
        if path == "/pause":
            self.paused = True
        elif path == "/resume":
            self.paused = False
        elif path == "/update_weight_version":
            self.version = body["new_version"]
        elif path == "/reset_prefix_cache":
            return web.json_response({"success": True})
        elif path in ("/clawrl/render", "/clawrl/tokenize"):
            return web.json_response({"token_ids": [1, 2, 3]})
        elif path == "/clawrl/reply":
            return web.json_response(whole(version=self.version))
        return web.json_response({})


def whole(prompt: list[int] | None = None, version: str = "4", **changes: Any) -> dict[str, Any]:
    """What /clawrl/reply answers with a reply of three tokens; `prompt`: those of its ids that the
    client does not know."""
    made = {"prompt_ids": prompt or [], "prefix_matched": True, "text": "hi", "deltas": None}
    tokens = {"ids": [10, 11, 2], "logprobs": [-0.5, None, -0.25]}
    return {**made, **tokens, **end(3, version), **changes}


def says(answer: Any, status: int = 200) -> Handler:
    """A handler that always answers this."""

    async def handler(request: web.Request) -> web.StreamResponse:
        return web.json_response(answer, status=status)

    return handler


def event(ids: list[int], version: str = "4", **more: Any) -> dict[str, Any]:
    """One step of a stream; `end` makes it the last."""
    logprobs = [-0.5] * len(ids)
    return {"ids": ids, "logprobs": logprobs, "versions": [version] * len(ids), **more}


def end(count: int, version: str = "4", first: int = 0, reason: str = "stop") -> dict[str, Any]:
    """What the last step has besides."""
    spans = [{"version": version, "start": 0, "end": count - first}]
    return {"finish_reason": reason, "stop_reason": None, "weight_versions": spans}


def streams(*events: Any, done: bool = True, pause_s: float = 0.0, bytes_each: int = 7) -> Handler:
    """A handler that sends events, in packets that care for no border; `done` False breaks off."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        data = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)
        data += b"data: [DONE]\n\n" if done else b""
        for at in range(0, len(data), bytes_each):
            await response.write(data[at : at + bytes_each])
            await asyncio.sleep(pause_s)
        return response

    return handler


def sleeps(seconds: float) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return web.json_response({})

    return handler


@asynccontextmanager
async def running(port: int = 0) -> AsyncIterator[FakeVllm]:
    """The fake on a port of loopback."""
    fake = FakeVllm()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    fake.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield fake
    finally:
        await runner.cleanup()
