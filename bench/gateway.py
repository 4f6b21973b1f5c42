"""Load on the gateway: many conversations at once against a policy that only sleeps.

Measures what the gateway adds to a generation (HTTP, sessions, next states, SQLite on disk), with
the clients in a process of their own.

    python bench/gateway.py [--sessions 2000] [--turns 3] [--delay 1.0]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp

from clawrl_gym.config import GatewayConfig, SamplingConfig
from clawrl_gym.live.gateway import Gateway
from clawrl_gym.policy.client import Generation, Sampling
from clawrl_gym.store import Store, StoreReader
from clawrl_gym.types import Message

LIMIT_S = 300
REPLY_TOKENS = 48
PROMPT_TOKENS = 600


class SleepingPolicy:
    """Takes `delay_s` for a generation and no time for anything else."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self.inside = 0
        self.most_inside = 0

    async def render(self, body: dict[str, Any]) -> list[int]:
        turns = (len(body["messages"]) - 2) // 2
        return list(range(PROMPT_TOKENS + turns * (REPLY_TOKENS + 20)))

    async def generate(
        self,
        prompt_ids: list[int],
        sampling: Sampling,
        *,
        version: int,
        request_id: str | None = None,
    ) -> Generation:
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        await asyncio.sleep(self._delay_s)
        self.inside -= 1
        start = len(prompt_ids)
        return Generation(
            prompt_ids_T=prompt_ids,
            sampled_ids_T=list(range(start, start + REPLY_TOKENS)),
            logprobs_T=[-random.random() for _ in range(REPLY_TOKENS)],
            versions_T=[version] * REPLY_TOKENS,
            finish_reason="stop",
        )

    async def parse(self, body: dict[str, Any], generation: Generation) -> Message:
        return {"role": "assistant", "content": "```bash\nls -la | wc -l\n```"}

    async def metrics(self) -> dict[str, float]:
        return {}


async def converse(http: aiohttp.ClientSession, name: str, turns: int, out: list[float]) -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You work in a shell."},
        {"role": "user", "content": "Count the files. " * 20},
    ]
    for turn in range(turns):
        began_s = time.perf_counter()
        path = f"/sessions/{name}/v1/chat/completions"
        async with http.post(path, json={"messages": messages}) as answer:
            answer.raise_for_status()
            reply = (await answer.json())["choices"][0]["message"]
        out.append(time.perf_counter() - began_s)
        messages += [reply, {"role": "user", "content": f"{turn} total 24\n" * 8}]
    async with http.post(f"/sessions/{name}/end", json={"reward": 1.0}) as answer:
        answer.raise_for_status()


async def clients(url: str, key: str, sessions: int, turns: int) -> None:
    """The load; prints each request's latency as JSON."""
    latencies: list[float] = []
    connector = aiohttp.TCPConnector(limit=0)
    headers = {"Authorization": f"Bearer {key}"}
    timeout = aiohttp.ClientTimeout(total=LIMIT_S)
    began_s = time.perf_counter()
    async with (
        aiohttp.ClientSession(url, connector=connector, headers=headers, timeout=timeout) as http,
        asyncio.TaskGroup() as group,
    ):
        for number in range(sessions):
            group.create_task(converse(http, f"s{number}", turns, latencies))
    print(json.dumps({"wall_s": time.perf_counter() - began_s, "latencies_s": latencies}))


async def measure(folder: Path, sessions: int, turns: int, delay_s: float) -> None:
    store = Store.open(folder)
    policy = SleepingPolicy(delay_s)
    gateway = Gateway(GatewayConfig(), SamplingConfig(), store, policy, "tiny")
    url = await gateway.start()
    command = [sys.executable, __file__, "--sessions", str(sessions)]
    command += ["--turns", str(turns), "--client", url, gateway.key]
    cpu_s = time.process_time()
    child = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    try:
        async with asyncio.timeout(LIMIT_S):
            told, _ = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
    cpu_s = time.process_time() - cpu_s
    commits = store.commits
    await gateway.stop()
    await store.close()
    report(json.loads(told), policy, gateway, commits, cpu_s, delay_s)
    count_on_disk(folder, sessions, turns)


def report(
    told: Any, policy: SleepingPolicy, gateway: Gateway, commits: int, cpu_s: float, delay_s: float
) -> None:
    over_ms = sorted((latency - delay_s) * 1e3 for latency in told["latencies_s"])
    requests = len(over_ms)
    print(f"requests              {requests}, most inside at once {policy.most_inside}")
    print(f"requests/s            {requests / told['wall_s']:.0f} (wall {told['wall_s']:.1f} s)")
    print(f"gateway CPU a request {cpu_s / requests * 1e3:.2f} ms")
    print(
        f"added latency         p50 {statistics.median(over_ms):.0f} ms, "
        f"p95 {over_ms[int(0.95 * requests)]:.0f} ms (generation takes {delay_s * 1e3:.0f} ms)"
    )
    print(f"commits               {commits}")
    print(f"prompts               {dict(gateway.stats.fits)}, failed {gateway.stats.failed}")


def count_on_disk(folder: Path, sessions: int, turns: int) -> None:
    reader = StoreReader(folder)
    found = sum(len(reader.turns_of(row.id)) for row in reader.sessions())
    reader.close()
    size_kb = (folder / "run.db").stat().st_size / 1e3
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"turns in SQLite       {found} of {sessions * turns}, {size_kb / found:.2f} KB a turn")
    print(f"peak memory           {peak_mb:.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--delay", type=float, default=1.0, help="seconds of a generation")
    parser.add_argument("--client", nargs=2, metavar=("URL", "KEY"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.client:
        asyncio.run(clients(*given.client, given.sessions, given.turns))
        return
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(Path(folder), given.sessions, given.turns, given.delay))


if __name__ == "__main__":
    main()
