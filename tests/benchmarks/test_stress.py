"""The clients of `bench/stress.py` end at their deadline, whatever the service does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from bench import stress
from tests.support.waiting import until

KEYS = dict.fromkeys((*stress.HONEST, stress.FLOODING), "key")


class Silent:
    """A service that takes every request and answers none."""

    def __init__(self) -> None:
        self.asked = self.left = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.left += 1
        raise AssertionError


@asynccontextmanager
async def serving(silent: Silent) -> AsyncIterator[str]:
    app = web.Application(client_max_size=2**30)
    app.router.add_route("*", "/{path:.*}", silent.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_the_flood_ends_at_its_deadline_with_requests_under_way() -> None:
    silent = Silent()
    async with serving(silent) as url, asyncio.timeout(60):
        heard = await stress.flooding(url, KEYS, 10_000, 5, 0.5)
        assert silent.asked > 0
        await until(lambda: silent.left == silent.asked)
    assert heard.answers == {}, "what was cancelled is no answer"


async def test_honest_users_and_probes_end_with_them() -> None:
    silent = Silent()
    async with serving(silent) as url, asyncio.timeout(60):
        heard, probed_s = await asyncio.gather(
            stress.honest(url, KEYS, "alone", 0.5), asyncio.to_thread(stress.probes, url, 0.5)
        )
    assert heard.answers == {}
    assert silent.asked == len(stress.HONEST) + len(probed_s)
