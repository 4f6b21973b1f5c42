"""Tokens a second of rollouts against those of vLLM alone, both with so many requests at a time.

    python -m bench.rollout_vllm [--in-flight 128] [--seconds 10] [--rounds 2]

The tiny policy on this machine. Alone: this process asks vLLM for replies to the first prompt of an
episode, again and again. Rollouts: a Ray worker, the gateway and the store, with environments of no
time (`bench/rollout.py`). In turn, in one run. Prints one line of JSON for each round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.rollout import REPLY_TOKENS, Instant, Load, rollouts
from clawrl_gym.config import PolicyConfig
from clawrl_gym.core.types import ChatBody
from clawrl_gym.policy.client import PolicyClient
from clawrl_gym.policy.fleet import Fleet
from clawrl_gym.policy.generation import Sampling
from clawrl_gym.policy.models import resolve_model
from clawrl_gym.policy.servers import PolicyServers
from clawrl_gym.run import cluster

_WARM_UP_S = 2.0


@dataclass
class Alone:
    """Requests to vLLM that nothing is made of."""

    client: PolicyClient
    prompt_ids_T: list[int]
    tokens: int = 0
    replies: int = 0

    async def ask_on(self) -> None:
        sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=REPLY_TOKENS)
        while True:
            generation = await self.client.generate(self.prompt_ids_T, sampling, version=0)
            self.tokens += len(generation.sampled_ids_T)
            self.replies += 1


async def alone(client: PolicyClient, in_flight: int, seconds: float) -> tuple[float, float]:
    """Tokens a second, and of a reply."""
    observation, _ = Instant().reset()
    body = ChatBody(messages=[{"role": "user", "content": observation}])
    load = Alone(client, await client.render(body))
    asking = [asyncio.create_task(load.ask_on()) for _ in range(in_flight)]
    try:
        await asyncio.sleep(_WARM_UP_S)
        tokens, replies, began_s = load.tokens, load.replies, time.perf_counter()
        await asyncio.sleep(seconds)
        tokens, replies = load.tokens - tokens, load.replies - replies
        return tokens / (time.perf_counter() - began_s), tokens / replies
    finally:
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


async def through(
    fleet: Fleet[PolicyClient], model: str, in_flight: int, seconds: float
) -> tuple[float, float]:
    """The same of rollouts."""
    async with rollouts(fleet, model, in_flight, workers=1) as (gateway, environments):
        stats = gateway.stats
        async with Load(environments, in_flight).playing(in_flight):
            tokens, turns, began_s = stats.tokens_sampled, stats.turns, time.perf_counter()
            await asyncio.sleep(seconds)
            tokens, turns = stats.tokens_sampled - tokens, stats.turns - turns
            return tokens / (time.perf_counter() - began_s), tokens / turns


async def bench(in_flight: int, seconds: float, rounds: int) -> None:
    with tempfile.TemporaryDirectory(prefix="clawrl-bench-") as folder:
        config = PolicyConfig(dtype="float32", max_model_len=2048)
        model = resolve_model("tiny")
        servers = PolicyServers(
            config, model, Path(folder) / "serving", Path(folder), lambda *_: None
        )
        fleet = servers.fleet(2 * in_flight)
        ray = cluster.Cluster()
        await ray.start()
        try:
            await servers.start()
            for _ in range(rounds):
                of_engine, engine_tokens = await alone(fleet.policies[0], in_flight, seconds)
                of_rollouts, turn_tokens = await through(
                    fleet, servers.model_name, in_flight, seconds
                )
                line = {
                    "in_flight": in_flight,
                    "alone_tokens_per_s": round(of_engine),
                    "rollouts_tokens_per_s": round(of_rollouts),
                    "share": round(of_rollouts / of_engine, 2),
                    "tokens_of_a_reply": [round(engine_tokens, 1), round(turn_tokens, 1)],
                    "load": round(os.getloadavg()[0], 1),
                }
                print(json.dumps(line), flush=True)
        finally:
            await servers.close_clients()
            await servers.stop()
            ray.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--in-flight", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    asyncio.run(bench(options.in_flight, options.seconds, options.rounds))


if __name__ == "__main__":
    main()
