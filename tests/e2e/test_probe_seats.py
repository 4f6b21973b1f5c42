"""What verifies a publication is read at once by a real vLLM whose seats are all taken."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from clawrl_gym.inference.vllm.client import Sampling
from tests.e2e.served import CONFIG, Served
from tests.support.tiny_models import make_random_model

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

SEATS = 2
PROMPT = list(range(5, 45))
LONG = Sampling(1.0, 1.0, 900)


def test_a_probe_is_answered_before_all_that_runs_and_waits(tmp_path: Path) -> None:
    model = make_random_model(tmp_path / "model", max_len=1024)
    config = CONFIG.model_copy(update={"max_num_seqs": SEATS})
    served = Served(model, tmp_path, config)

    async def main() -> None:
        await served.server.start()
        client = served.client()
        try:
            alone = await client.logprobs(PROMPT, version=0)
            requests = [
                asyncio.create_task(client.generate(PROMPT, LONG, version=0)) for _ in range(6)
            ]
            while (await client.metrics())["waiting"] < len(requests) - SEATS:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            beside = await asyncio.gather(*(client.logprobs(PROMPT, version=0) for _ in range(3)))
            assert not any(request.done() for request in requests)
            assert beside == [pytest.approx(alone, abs=1e-4)] * 3
            assert (await client.metrics())["running"] <= SEATS, "nobody else has its seat"
            for request in requests:
                request.cancel()
        finally:
            await client.close()
            await served.server.stop()

    asyncio.run(main())
