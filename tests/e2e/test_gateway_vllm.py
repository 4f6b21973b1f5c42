"""The gateway before a real vLLM: exact ids over many turns, and a server that dies in between."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from clawrl_gym.config import GatewayConfig, PolicyConfig, SamplingConfig
from clawrl_gym.live.gateway import Gateway
from clawrl_gym.policy.client import PolicyClient
from clawrl_gym.policy.server import PolicyServer
from clawrl_gym.store import Store
from tests.tiny_models import make_random_model

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

CONFIG = PolicyConfig(max_model_len=1024, kv_cache_gb=0.125, start_timeout_s=240)


class Rig:
    """vLLM with random weights, the gateway before it, and a client."""

    def __init__(self, folder: Path) -> None:
        model = make_random_model(folder, max_len=1024)
        self.server = PolicyServer(
            CONFIG, model, folder / "serving", folder / "vllm.log", lambda _: None
        )
        self.store = Store.open(folder / "run")

    async def start(self) -> None:
        await self.server.start()
        server = self.server
        self.policy = PolicyClient(server.base_url, server.key, server.model_name, 120.0, 256)
        sampling = SamplingConfig(max_tokens=24)
        self.gateway = Gateway(
            GatewayConfig(), sampling, self.store, self.policy, server.model_name, 240.0
        )
        url = await self.gateway.start()
        headers = {"Authorization": f"Bearer {self.gateway.key}"}
        self.http = aiohttp.ClientSession(url, headers=headers)

    async def stop(self) -> None:
        await self.http.close()
        await self.gateway.stop()
        await self.policy.close()
        await self.server.stop()
        await self.store.close()

    async def say(self, session: str, messages: list[dict[str, Any]], **more: Any) -> Any:
        path = f"/sessions/{session}/v1/chat/completions"
        async with self.http.post(path, json={"messages": messages, **more}) as answer:
            told = await answer.json()
            assert answer.status == 200, told
            return told["choices"][0]["message"]


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture(scope="module")
def rig(loop: asyncio.AbstractEventLoop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    rig = Rig(tmp_path_factory.mktemp("rig"))
    loop.run_until_complete(rig.start())
    yield rig
    loop.run_until_complete(rig.stop())


async def converse(rig: Rig, session: str, turns: int) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "copy a.txt to b.csv"}]
    for turn in range(turns):
        reply = await rig.say(session, messages)
        messages += [reply, {"role": "user", "content": f"output {turn}"}]


def test_every_prompt_extends_the_ids_that_were_sampled(
    rig: Rig, loop: asyncio.AbstractEventLoop
) -> None:
    async def check() -> None:
        await asyncio.gather(*(converse(rig, f"s{number}", 6) for number in range(6)))
        for number in range(6):
            turns = await rig.store.turns_of(f"s{number}")
            assert len(turns) == 6
            for before, after in itertools.pairwise(turns):
                used_T = before.prompt_ids_T + before.sampled_ids_T
                assert after.prompt_ids_T[: len(used_T)] == used_T
            for turn in turns:
                assert len(turn.logprobs_T) == len(turn.sampled_ids_T) == len(turn.versions_T)
                assert None not in turn.logprobs_T
        fits = rig.gateway.stats.fits
        assert fits["first"] == 6
        assert fits["exact"] + fits["spliced"] == 30
        assert fits["spliced"] > 0, "random weights spell text in odd ways"

    loop.run_until_complete(check())


def test_a_prompt_that_does_not_fit_is_context_length_exceeded(
    rig: Rig, loop: asyncio.AbstractEventLoop
) -> None:
    async def check() -> None:
        body = {"messages": [{"role": "user", "content": "word " * 3000}]}
        async with rig.http.post("/v1/chat/completions", json=body) as answer:
            assert answer.status == 400
            assert (await answer.json())["error"]["code"] == "context_length_exceeded"

    loop.run_until_complete(check())


def test_requests_wait_while_a_killed_vllm_starts_again(
    rig: Rig, loop: asyncio.AbstractEventLoop
) -> None:
    async def check() -> None:
        watch = asyncio.create_task(rig.server.watch())
        long = {"max_tokens": 600, "stop": None}
        asks = [
            asyncio.create_task(rig.say(f"k{n}", [{"role": "user", "content": "x"}], **long))
            for n in range(8)
        ]
        await asyncio.sleep(0.3)
        assert rig.server.pid is not None
        os.killpg(rig.server.pid, signal.SIGKILL)
        replies = await asyncio.gather(*asks)
        assert len(replies) == 8
        assert rig.gateway.stats.waited > 0
        assert rig.gateway.stats.failed == 0
        watch.cancel()

    loop.run_until_complete(check())
