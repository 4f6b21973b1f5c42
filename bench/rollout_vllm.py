"""Tokens a second of rollouts against those of vLLM alone, both with so many requests at a time.

    python -m bench.rollout_vllm [--in-flight 128] [--seconds 10] [--rounds 2]

The tiny policy on this machine. Alone: this process sends the chats of such episodes to vLLM's own
OpenAI API, and asks for ids and log-probs. Rollouts: a Ray worker, the gateway and the store, with
environments of no time (`bench/rollout.py`). In turn, in one run. Prints a line of JSON a round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import aiohttp

from bench.gateway import REPLY_TOKENS
from bench.rollout import Instant, Load, Usage, rollouts
from clawrl_gym.cluster import cluster
from clawrl_gym.config import PolicyConfig
from clawrl_gym.inference.fleet import Fleet
from clawrl_gym.inference.interface import EngineClient
from clawrl_gym.inference.models.resolve import resolve_model
from clawrl_gym.inference.servers import PolicyServers
from clawrl_gym.inference.vllm.engine import VllmEngine
from clawrl_gym.inference.vllm.server import PolicyServer

_WARM_UP_S = 2.0


@dataclass(frozen=True, slots=True)
class Measured:
    """Results of some seconds, and the resources that each process took for them."""

    tokens_per_s: float
    turns_per_s: float
    cpu_ms: dict[str, float]
    """CPU time of a turn, by process."""

    @property
    def figures(self) -> dict[str, object]:
        return {
            "tokens_per_s": round(self.tokens_per_s),
            "turns_per_s": round(self.turns_per_s),
            "cpu_ms_per_turn": {name: round(ms, 1) for name, ms in self.cpu_ms.items() if ms > 0.1},
        }


async def measured(counts: Callable[[], tuple[int, int]], seconds: float) -> Measured:
    """`counts`: tokens and turns so far."""
    (tokens, turns), before = counts(), Usage.now(0)
    await asyncio.sleep(seconds)
    (tokens_then, turns_then), after = counts(), Usage.now(0)
    turns, wall_s = turns_then - turns, after.time_s - before.time_s
    cpu_ms = {name: ms / turns for name, ms in after.cpu_ms_since(before).items()}
    return Measured((tokens_then - tokens) / wall_s, turns / wall_s, cpu_ms)


@dataclass
class Alone:
    """The same chats, sent to vLLM's own API, with what a learner needs of a reply."""

    http: aiohttp.ClientSession
    model: str
    tokens: int = 0
    turns: int = 0

    async def play_on(self) -> None:
        while True:
            env = Instant()
            observation, _ = env.reset()
            messages = [{"role": "user", "content": observation}]
            done = False
            while not done:
                reply = await self._reply(messages)
                observation, _, done, _, _ = env.step(reply)
                messages += [
                    {"role": "assistant", "content": reply},
                    {"role": "user", "content": observation},
                ]

    async def _reply(self, messages: list[dict[str, str]]) -> str:
        body = {
            "model": self.model,
            "messages": messages,
            "max_tokens": REPLY_TOKENS,
            "logprobs": True,
            "return_token_ids": True,
        }
        async with self.http.post("/v1/chat/completions", json=body) as answer:
            answer.raise_for_status()
            completion = await answer.json()
        self.tokens += completion["usage"]["completion_tokens"]
        self.turns += 1
        return completion["choices"][0]["message"]["content"] or ""


async def alone(server: PolicyServer, in_flight: int, seconds: float) -> Measured:
    headers = {"Authorization": f"Bearer {server.key}"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(server.base_url, headers=headers, connector=connector) as http:
        load = Alone(http, server.model_name)
        asking = [asyncio.create_task(load.play_on()) for _ in range(in_flight)]
        try:
            await asyncio.sleep(_WARM_UP_S)
            return await measured(lambda: (load.tokens, load.turns), seconds)
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)


async def through(
    fleet: Fleet[EngineClient], model: str, in_flight: int, seconds: float
) -> Measured:
    async with rollouts(fleet, model, in_flight, workers=1) as (gateway, environments):
        stats = gateway.stats
        async with Load(environments, in_flight).playing(in_flight):
            return await measured(lambda: (stats.tokens_sampled, stats.turns), seconds)


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
                server = cast(VllmEngine, servers.engines[0]).server
                by_itself = await alone(server, in_flight, seconds)
                in_rollouts = await through(fleet, servers.model_name, in_flight, seconds)
                line = {
                    "in_flight": in_flight,
                    "share": round(in_rollouts.tokens_per_s / by_itself.tokens_per_s, 2),
                    "alone": by_itself.figures,
                    "rollouts": in_rollouts.figures,
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
    parser.add_argument("--seconds", type=float, default=10.0, help="for each measurement")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    asyncio.run(bench(options.in_flight, options.seconds, options.rounds))


if __name__ == "__main__":
    main()
