"""Tokens a second with one adapter, and with one for each of many users; and how long each request
waits for its first token.

    python -m bench.adapters [--users 32] [--streams 64] [--seconds 15] [--slots 33]

Serves the tiny policy with adapters of rank 16 and keeps that many streams in flight: all of one
adapter, then in turn of `users` adapters, then without one; the order is repeated backwards, so
that a machine that has its day favours none. With fewer slots (`policy.max_adapters`) than users,
requests wait until one is free. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from bench.swap import PROMPT_TOKENS, REPLY_TOKENS, make_adapter
from clawrl_gym.config import AdapterConfig, PolicyConfig
from clawrl_gym.inference.generation import Sampling
from clawrl_gym.inference.interface import EngineClient
from clawrl_gym.inference.models.resolve import resolve_model
from clawrl_gym.inference.servers import PolicyServers

SETTLING_S = 2.0


async def tokens_a_second(
    client: EngineClient, users: list[tuple[str, int]], streams: int, seconds: float
) -> tuple[float, list[float]]:
    """With a stream after the other of each of `users`: a name and a version. Also for how many
    seconds each request waited for its first token."""
    sampled: list[tuple[float, int]] = []
    waits_s: list[float] = []

    async def talk(number: int) -> None:
        draw = random.Random(number)
        user, version = users[number % len(users)]
        sampling = Sampling(1.0, 1.0, REPLY_TOKENS)
        while True:
            prompt = [draw.randrange(10, 900) for _ in range(PROMPT_TOKENS)]
            asked_s, is_first = time.perf_counter(), True
            async for piece in client.stream(prompt, sampling, None, version=version, user=user):
                now_s = time.perf_counter()
                sampled.append((now_s, len(piece.ids_T)))
                if is_first and asked_s >= began_s:
                    waits_s.append(now_s - asked_s)
                is_first = False

    began_s = time.perf_counter() + SETTLING_S
    talking = [asyncio.create_task(talk(number)) for number in range(streams)]
    await asyncio.sleep(SETTLING_S + seconds)
    for task in talking:
        task.cancel()
    results = await asyncio.gather(*talking, return_exceptions=True)
    for result in results:
        if not isinstance(result, asyncio.CancelledError):
            raise RuntimeError(f"a request failed: {result!r}")
    rate = sum(count for at_s, count in sampled if at_s >= began_s) / seconds
    return rate, waits_s


async def measure(
    users: int, streams: int, seconds: float, slots: int, folder: Path
) -> dict[str, object]:
    form = AdapterConfig(rank=16)
    config = PolicyConfig(dtype="float32", max_model_len=1024, max_adapters=slots)
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
    waits_s: dict[str, list[float]] = {name: [] for name in cases}
    try:
        (client,) = servers.fleet(2 * streams).policies
        await servers.start_adapters()
        for name in ["", *names]:
            await servers.publish_adapter(1, source, user=name)
        for case in [*cases, *reversed(cases)]:
            rate, waits = await tokens_a_second(client, cases[case], streams, seconds)
            rates[case].append(rate)
            waits_s[case] += waits
    finally:
        await servers.stop()
        await servers.close_clients()
    means = {name: sum(rate) / len(rate) for name, rate in rates.items()}
    return {
        "users": users,
        "streams": streams,
        "slots": slots,
        "tokens_a_second": {name: round(rate) for name, rate in means.items()},
        "runs": {name: [round(rate) for rate in rate] for name, rate in rates.items()},
        "first_token_s": {
            name: {"median": round(statistics.median(waits), 2), "longest": round(max(waits), 2)}
            for name, waits in waits_s.items()
            if waits
        },
        "many_of_one": round(means["many"] / means["one"], 2),
        "one_of_none": round(means["one"] / means["none"], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--users", type=int, default=32)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--slots", type=int, help="policy.max_adapters; one more than users")
    options = parser.parse_args()
    users, slots = options.users, options.slots or options.users + 1
    with tempfile.TemporaryDirectory() as folder:
        measured = asyncio.run(
            measure(users, options.streams, options.seconds, slots, Path(folder))
        )
    sys.stdout.write(json.dumps(measured) + "\n")


if __name__ == "__main__":
    main()
