"""How long a weight swap pauses vLLM, and that it fails no request.

    python bench/swap.py [--swaps 50] [--requests 24]

Serves the tiny policy, keeps requests of 120 tokens in flight and publishes its weights again and
again as new versions. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
from pathlib import Path

from clawrl_gym.config import PolicyConfig
from clawrl_gym.policy.client import PolicyClient, Sampling
from clawrl_gym.policy.models import resolve_model
from clawrl_gym.policy.server import PolicyServer
from clawrl_gym.policy.swap import WeightSwap


async def _load(client: PolicyClient, stop: asyncio.Event, versions: list[list[int]]) -> None:
    draw = random.Random(id(stop) + len(versions))
    while not stop.is_set():
        prompt = [draw.randrange(10, 900) for _ in range(40)]
        generation = await client.generate(prompt, Sampling(1.0, 1.0, 120), version=0)
        versions.append(generation.versions_T)


async def measure(swaps: int, requests: int, folder: Path) -> dict[str, float]:
    """Any failed request raises."""
    config = PolicyConfig(dtype="float32", max_model_len=1024)
    model = resolve_model("tiny")
    server = PolicyServer(
        config, model, folder / "serving", folder / "vllm.log", lambda phase: print(phase)
    )
    pauses_s: list[float] = []
    versions: list[list[int]] = []
    try:
        await server.start()
        client = PolicyClient(server.base_url, server.key, server.model_name, 60.0, 2 * requests)
        swap, stop = WeightSwap(server), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for _ in range(requests):
                group.create_task(_load(client, stop, versions))
            for version in range(1, swaps + 1):
                await asyncio.sleep(0.2)
                pauses_s.append(await swap.publish(version, model / "model.safetensors"))
            stop.set()
        await client.close()
    finally:
        await server.stop()
    return {
        "swaps": swaps,
        "pause_p50_s": round(statistics.median(pauses_s), 3),
        "pause_max_s": round(max(pauses_s), 3),
        "requests_answered": len(versions),
        "requests_failed": 0,
        "requests_that_lived_through_a_swap": sum(len(set(reply)) > 1 for reply in versions),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--swaps", type=int, default=50)
    parser.add_argument("--requests", type=int, default=24)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(measure(options.swaps, options.requests, Path(folder)))
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
