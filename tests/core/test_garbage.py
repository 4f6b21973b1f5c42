"""Garbage is looked for by the clock while conversations are served, and as before afterwards."""

import gc
import weakref
from io import BytesIO
from pathlib import Path

from aiohttp import web

from clawrl_gym.core.processes.garbage import collected_by_the_clock
from tests.support.gateway_rig import Bench
from tests.support.waiting import until


class Knot:
    """Only a look for garbage frees it."""

    def __init__(self) -> None:
        self.myself = self


async def test_garbage_is_found_by_the_clock_and_settings_come_back() -> None:
    before = gc.get_threshold()
    async with collected_by_the_clock(every_s=0.01):
        assert gc.get_threshold()[0] == 100_000
        knot = weakref.ref(Knot())
        await until(lambda: knot() is None)
        assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def bodies_held() -> list[bool]:
    """For each request that exists, whether it holds a large body."""
    requests = [x for x in gc.get_objects() if type(x) is web.Request]
    return [len(request._read_bytes or b"") > 1_000_000 for request in requests]


async def test_a_refused_request_leaves_no_garbage_that_holds_its_body(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.start()
    try:
        await bench.post("/v1/chat/completions", {"messages": []})
        gc.collect()
        gc.disable()
        body = b'{"messages": [], "more": "' + b"x" * 3_000_000 + b'"}'
        headers = {"Content-Type": "application/json"}
        async with bench.http.post(
            "/v1/chat/completions", data=BytesIO(body), headers=headers
        ) as answer:
            assert answer.status == 400
        del body
        await bench.http.close()  # a connection keeps its last request
        await until(lambda: not any(bodies_held()))
    finally:
        gc.enable()
        await bench.stop()
