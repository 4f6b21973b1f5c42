"""Load on the gateway, against a policy that only sleeps; clients in a process of their own.

    python bench/gateway.py [--sessions 2000] [--turns 3]    many conversations at once
    python bench/gateway.py --idle 10000 --streams 500       memory, and what streams cost

The first measures what the gateway adds to a generation (HTTP, sessions, next states, SQLite on
disk). The second lets sessions rest, opens streams beside them and reads the process' memory.
`bench/gateway_vllm.py` measures against a real vLLM.
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
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from clawrl_gym.config import GatewayConfig, SamplingConfig
from clawrl_gym.core.types import ChatBody, Message
from clawrl_gym.gateway.server import Gateway
from clawrl_gym.inference.fleet import Fleet
from clawrl_gym.inference.generation import Generation, Piece, Sampling
from clawrl_gym.store import Store, StoreReader
from tests.support.stepped_policy import SteppedPolicy

LIMIT_S = 300
REPLY_TOKENS = 48
PROMPT_TOKENS = 600
STREAM_TOKENS = 40
STREAM_PAUSE_S = 0.5


class SleepingPolicy(SteppedPolicy):
    """Takes `delay_s` for a generation and no time for anything else."""

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s
        self.inside = 0
        self.most_inside = 0

    async def render(self, body: ChatBody) -> list[int]:
        turns = sum(message["role"] == "assistant" for message in body["messages"])
        return list(range(PROMPT_TOKENS + turns * (REPLY_TOKENS + 20)))

    async def generate(
        self, prompt_ids: list[int], sampling: Sampling, *, version: int
    ) -> Generation:
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        self.inside -= 1
        start = len(prompt_ids)
        return Generation(
            prompt_ids_T=prompt_ids,
            sampled_ids_T=list(range(start, start + REPLY_TOKENS)),
            logprobs_T=[-random.random() for _ in range(REPLY_TOKENS)],
            versions_T=[version] * REPLY_TOKENS,
            finish_reason="stop",
        )

    async def stream(
        self,
        prompt_ids: list[int],
        sampling: Sampling,
        body: ChatBody | None,
        *,
        version: int,
        user: str = "",
        request_id: str | None = None,
        resume_from: Sequence[Piece] = (),
    ) -> AsyncGenerator[Piece, None]:
        """`sampling.max_tokens` pieces, `delay_s` apart."""
        ids_T: list[int] = []
        for token in range(sampling.max_tokens):
            await asyncio.sleep(self.delay_s)
            ids_T.append(token)
            logprobs_T: list[float | None] = [-0.5] * len(ids_T)
            versions_T = [version] * len(ids_T)
            generation = (
                Generation(prompt_ids, ids_T, logprobs_T, versions_T, "length")
                if token + 1 == sampling.max_tokens
                else None
            )
            yield Piece([token], [-0.5], {"content": " word"}, generation, [version])

    async def tokenize(self, text: str) -> list[int]:
        return list(range(len(text)))

    async def parse(self, body: ChatBody, generation: Generation) -> Message:
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
    gateway = Gateway(GatewayConfig(), SamplingConfig(), store, Fleet([policy]), "tiny")
    url = await gateway.start()
    command = [sys.executable, __file__, "--sessions", str(sessions)]
    command += ["--turns", str(turns), "--client", url, gateway.key]
    cpu_s = time.process_time()
    child = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    try:
        async with asyncio.timeout(LIMIT_S):
            output, _ = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
    cpu_s = time.process_time() - cpu_s
    commits = store.commits
    await gateway.stop()
    await store.close()
    report(json.loads(output), policy, gateway, commits, cpu_s, delay_s)
    count_on_disk(folder, sessions, turns)


def report(
    client: dict[str, Any],
    policy: SleepingPolicy,
    gateway: Gateway,
    commits: int,
    cpu_s: float,
    delay_s: float,
) -> None:
    over_ms = sorted((latency - delay_s) * 1e3 for latency in client["latencies_s"])
    requests, wall_s = len(over_ms), client["wall_s"]
    print(f"requests              {requests}, most inside at once {policy.most_inside}")
    print(f"requests/s            {requests / wall_s:.0f} (wall {wall_s:.1f} s)")
    print(f"gateway CPU a request {cpu_s / requests * 1e3:.2f} ms")
    print(
        f"added latency         p50 {statistics.median(over_ms):.0f} ms, "
        f"p95 {over_ms[int(0.95 * requests)]:.0f} ms (generation takes {delay_s * 1e3:.0f} ms)"
    )
    print(f"commits               {commits}")
    print(f"prompts               {dict(gateway.stats.fits)}, failed {gateway.stats.failed}")


def count_on_disk(folder: Path, sessions: int, turns: int) -> None:
    reader = StoreReader(folder)
    stored = sum(len(reader.turns_of(row.id)) for row in reader.sessions())
    reader.close()
    size_kb = (folder / "run.db").stat().st_size / 1e3
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"turns in SQLite       {stored} of {sessions * turns}, {size_kb / stored:.2f} KB a turn")
    print(f"peak memory           {peak_mb:.0f} MB")


async def rest(url: str, key: str, sessions: int, streams: int) -> None:
    """Talk once in each session, then hold streams open; waits for a line before they are read."""
    headers = {"Authorization": f"Bearer {key}"}
    timeout = aiohttp.ClientTimeout(total=LIMIT_S)
    connector = aiohttp.TCPConnector(limit=0)
    system = {"role": "system", "content": "You are a helpful assistant. " * 500}  # 14 kB
    async with aiohttp.ClientSession(
        url, connector=connector, headers=headers, timeout=timeout
    ) as http:
        left = iter(range(sessions))

        async def talk() -> None:
            for number in left:
                message = {"role": "user", "content": f"I am number {number}. " * 20}
                body = {"messages": [system, message]}
                path = f"/sessions/idle{number}/v1/chat/completions"
                async with http.post(path, json=body) as answer:
                    answer.raise_for_status()
                    await answer.read()

        await asyncio.gather(*(talk() for _ in range(32)))
        print("idle", flush=True)
        began_s = time.perf_counter()
        pieces = await asyncio.gather(*(read_stream(http, n, system) for n in range(streams)))
        wall_s = time.perf_counter() - began_s
        print(json.dumps({"pieces": sum(pieces), "wall_s": wall_s}), flush=True)


async def read_stream(http: aiohttp.ClientSession, number: int, system: dict[str, str]) -> int:
    """Number of received pieces."""
    messages = [system, {"role": "user", "content": f"stream {number}"}]
    body = {"messages": messages, "stream": True, "max_tokens": STREAM_TOKENS}
    pieces = 0
    path = f"/sessions/open{number}/v1/chat/completions"
    async with http.post(path, json=body) as answer:
        answer.raise_for_status()
        async for data in answer.content.iter_any():
            pieces += data.count(b"data: {")
    return pieces


async def measure_memory(folder: Path, idle: int, streams: int) -> None:
    """Sessions that rest, streams that are open, and what the process takes of memory."""
    store, policy = Store.open(folder), SleepingPolicy(0.0)
    config = GatewayConfig(max_sessions=idle + streams)
    fleet = Fleet([policy])
    gateway = Gateway(config, SamplingConfig(), store, fleet, "tiny", request_timeout_s=LIMIT_S)
    url = await gateway.start()
    start_mb = memory_mb()
    command = [sys.executable, __file__, "--idle", str(idle), "--streams", str(streams)]
    child = await asyncio.create_subprocess_exec(
        *command, "--client", url, gateway.key, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    try:
        async with asyncio.timeout(LIMIT_S):
            await child.stdout.readline()
            policy.delay_s = STREAM_PAUSE_S
            idle_mb, cpu_s = memory_mb(), time.process_time()
            most_open, most_mb = 0, 0.0
            reading = asyncio.ensure_future(child.stdout.readline())
            while not reading.done():
                most_open = max(most_open, gateway.stats.inside)
                most_mb = max(most_mb, memory_mb())
                await asyncio.wait([reading], timeout=0.5)
            client = json.loads(reading.result())
            cpu_s = time.process_time() - cpu_s
            await child.wait()
    finally:
        if child.returncode is None:
            child.kill()
    print(f"open sessions         {gateway.sessions.open_count}")
    print(f"open streams at once  {most_open}")
    print(f"memory                {start_mb:.0f} MB empty, {idle_mb:.0f} MB with {idle} idle")
    print(f"                      sessions, {most_mb:.0f} MB with {most_open} streams beside them")
    pieces = client["pieces"]
    print(f"pieces                {pieces}, {pieces / client['wall_s']:.0f} a second")
    print(f"CPU a piece           {cpu_s / pieces * 1e6:.0f} us")
    await gateway.stop()
    await store.close()


def memory_mb() -> float:
    """Resident memory of this process now."""
    with open("/proc/self/statm") as file:  # noqa: PTH123
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sessions", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--delay", type=float, default=1.0, help="seconds of a generation")
    parser.add_argument("--idle", type=int, default=0, help="idle sessions")
    parser.add_argument("--streams", type=int, default=500, help="streams beside idle sessions")
    parser.add_argument("--client", nargs=2, metavar=("URL", "KEY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        url, key = options.client
        if options.idle:
            return asyncio.run(rest(url, key, options.idle, options.streams))
        return asyncio.run(clients(url, key, options.sessions, options.turns))
    with tempfile.TemporaryDirectory() as folder:
        if options.idle:
            asyncio.run(measure_memory(Path(folder), options.idle, options.streams))
        else:
            asyncio.run(measure(Path(folder), options.sessions, options.turns, options.delay))


if __name__ == "__main__":
    main()
