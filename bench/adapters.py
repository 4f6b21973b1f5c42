"""Tokens a second with one adapter, and with one for each of many users.

    python bench/adapters.py [--users 32] [--streams 64] [--seconds 15]

Serves the tiny policy with adapters of rank 16 and keeps that many streams in flight: all of one
adapter, then in turn of `users` adapters, then without one; the order is repeated backwards, so
that a machine that has its day favours none. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from pathlib import Path

from bench.swap import PROMPT_TOKENS, REPLY_TOKENS, make_adapter
from clawrl_gym.config import AdapterConfig, PolicyConfig
from clawrl_gym.policy.client import PolicyClient, Sampling
from clawrl_gym.policy.models import resolve_model
from clawrl_gym.policy.servers import PolicyServers

SETTLING_S = 2.0


async def tokens_a_second(
    client: PolicyClient, users: list[tuple[str, int]], streams: int, seconds: float
) -> float:
    """With a stream after the other of each of `users`: a name and a version."""
    sampled: list[tuple[float, int]] = []

    async def talk(number: int) -> None:
        draw = random.Random(number)
        user, version = users[number % len(users)]
        sampling = Sampling(1.0, 1.0, REPLY_TOKENS)
        while True:
            prompt = [draw.randrange(10, 900) for _ in range(PROMPT_TOKENS)]
            async for piece in client.stream(prompt, sampling, None, version=version, user=user):
                sampled.append((time.perf_counter(), len(piece.ids_T)))

    talking = [asyncio.create_task(talk(number)) for number in range(streams)]
    began_s = time.perf_counter() + SETTLING_S
    await asyncio.sleep(SETTLING_S + seconds)
    for task in talking:
        task.cancel()
    results = await asyncio.gather(*talking, return_exceptions=True)
    for result in results:
        if not isinstance(result, asyncio.CancelledError):
            raise RuntimeError(f"a request failed: {result!r}")
    return sum(count for at_s, count in sampled if at_s >= began_s) / seconds


async def measure(users: int, streams: int, seconds: float, folder: Path) -> dict[str, object]:
    form = AdapterConfig(rank=16)
    config = PolicyConfig(dtype="float32", max_model_len=1024, max_adapters=users + 1)
    model = resolve_model("tiny")
    servers = PolicyServers(config, model, folder / "serving", folder / "logs", print, adapter=form)
    source = make_adapter(model, folder / "adapter", form)
    names = [f"user{number}" for number in range(users)]
    cases = {
        "none": [("", 0)],
        "one": [("", 1)],
        "many": [(name, 1) for name in names],
    }
    rates: dict[str, list[float]] = {name: [] for name in cases}
    try:
        (client,) = servers.fleet(2 * streams).policies
        await servers.start_adapters()
        for name in ["", *names]:
            await servers.publish_adapter(1, source, user=name)
        for case in [*cases, *reversed(cases)]:
            rates[case].append(await tokens_a_second(client, cases[case], streams, seconds))
    finally:
        await servers.stop()
        await servers.close_clients()
    means = {name: sum(rate) / len(rate) for name, rate in rates.items()}
    return {
        "users": users,
        "streams": streams,
        "tokens_a_second": {name: round(rate) for name, rate in means.items()},
        "runs": {name: [round(rate) for rate in rate] for name, rate in rates.items()},
        "many_of_one": round(means["many"] / means["one"], 2),
        "one_of_none": round(means["one"] / means["none"], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--users", type=int, default=32)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=15.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measured = asyncio.run(
            measure(options.users, options.streams, options.seconds, Path(folder))
        )
    sys.stdout.write(json.dumps(measured) + "\n")


if __name__ == "__main__":
    main()
