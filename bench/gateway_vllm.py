"""The gateway before a real vLLM, against that vLLM asked directly.

    python bench/gateway_vllm.py latency [--phases 6]    # first token at 8 streams, speed at 64
    python bench/gateway_vllm.py swaps [--chats 1000] [--swaps 20]

Gateway and store run in a process of their own, vLLM in its own, the clients here. Both sides are
asked in turn, in one run, with the same prompts. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import aiohttp

from clawrl_gym.config import GatewayConfig, PolicyConfig, SamplingConfig
from clawrl_gym.gateway.server import Gateway
from clawrl_gym.inference.models.resolve import resolve_model
from clawrl_gym.inference.servers import PolicyServers
from clawrl_gym.inference.vllm.engine import VllmEngine
from clawrl_gym.store import Store, StoreReader

REPLY_TOKENS = 64
LIMIT_S = 900


# --- the process under test --------------------------------------------------------------------


async def host(folder: Path) -> None:
    """Serve; each line `swap` on standard input publishes the weights as a new version."""
    config = PolicyConfig(dtype="float32", max_model_len=2048)
    model = resolve_model("tiny")
    servers = PolicyServers(config, model, folder / "serving", folder, lambda _: None)
    store = Store.open(folder / "run")
    gateway = Gateway(
        GatewayConfig(),
        SamplingConfig(max_tokens=REPLY_TOKENS),
        store,
        servers.fleet(1024),
        servers.model_name,
    )
    servers.hold_with(gateway.hold_requests)
    url = await gateway.start()
    try:
        await servers.start()
        vllm = cast(VllmEngine, servers.engines[0]).server
        tell({"url": url, "key": gateway.key, "vllm": vllm.base_url, "vllm_key": vllm.key})
        lines = await stdin()
        version = 0
        while (await lines.readline()).strip() == b"swap":
            version += 1
            pause_s = await servers.publish(version, model / "model.safetensors")
            gateway.version = version
            tell({"pause_s": pause_s})
        used = resource.getrusage(resource.RUSAGE_SELF)
        stats = gateway.stats
        tell({
            "rss_mb": used.ru_maxrss / 1e3,
            "cpu_s": used.ru_utime + used.ru_stime,
            "failed": stats.failed,
            "refused": stats.refused,
            "turns": stats.turns,
        })  # fmt: skip
    finally:
        await gateway.stop()
        await servers.close_clients()
        await servers.stop()
        await store.close()


def tell(value: Any) -> None:
    print(json.dumps(value), flush=True)


async def stdin() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


class Host:
    """The process under test, from outside."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child

    async def line(self) -> Any:
        assert self._child.stdout is not None
        async with asyncio.timeout(LIMIT_S):
            raw = await self._child.stdout.readline()
        return json.loads(raw)

    async def order(self, word: str) -> Any:
        """Send a word; returns what it answers."""
        assert self._child.stdin is not None
        self._child.stdin.write(f"{word}\n".encode())
        await self._child.stdin.drain()
        return await self.line()


@asynccontextmanager
async def hosting(folder: Path) -> AsyncIterator[tuple[Host, dict[str, str]]]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "host", "--folder", str(folder),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield (host := Host(child)), await host.line()
        await asyncio.wait_for(child.wait(), 60)
    finally:
        if child.returncode is None:
            child.kill()


# --- clients -----------------------------------------------------------------------------------


@dataclass
class Traffic:
    """Measurements of one phase's clients."""

    first_s: list[float] = field(default_factory=list)
    """Seconds from sending a request to its first text."""
    gaps_s: list[float] = field(default_factory=list)
    """The longest silence of each stream after its first text."""
    tokens: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    wall_s: float = 0.0


@dataclass(frozen=True)
class Target:
    """Address of requests."""

    http: aiohttp.ClientSession
    path: Callable[[int], str]


def body_of(number: int, stream: bool) -> dict[str, Any]:
    draw = random.Random(number)
    words = " ".join(str(draw.randrange(1000)) for _ in range(24))
    return {
        "model": "policy",
        "messages": [{"role": "user", "content": f"{number}: sort these: {words}"}],
        "max_tokens": REPLY_TOKENS,
        "temperature": 1.0,
        "stream": stream,
        **({"stream_options": {"include_usage": True}} if stream else {}),
    }


async def ask(target: Target, number: int, traffic: Traffic, *, stream: bool = True) -> None:
    began_s = time.perf_counter()
    async with target.http.post(target.path(number), json=body_of(number, stream)) as answer:
        traffic.statuses[answer.status] += 1
        if not stream or answer.status != 200:
            reply = await answer.json()
            traffic.tokens += reply.get("usage", {}).get("completion_tokens", 0)
            return
        raw, last_s, longest_s = b"", None, 0.0
        async for data in answer.content.iter_any():
            now_s = time.perf_counter()
            raw += data
            if last_s is not None:
                longest_s = max(longest_s, now_s - last_s)
                last_s = now_s
            elif has_text(raw):
                traffic.first_s.append(now_s - began_s)
                last_s = now_s
    traffic.gaps_s.append(longest_s)
    last = events_of(raw)[-1]
    if "usage" not in last:
        raise RuntimeError(f"a stream broke off: {last}")
    traffic.tokens += last["usage"]["completion_tokens"]


def has_text(raw: bytes) -> bool:
    deltas = [event["choices"][0]["delta"] for event in events_of(raw) if event["choices"]]
    return any(delta.get("content") for delta in deltas)


def events_of(raw: bytes) -> list[Any]:
    """The whole events so far, without comments and the end mark."""
    parts = raw.split(b"\n\n")[:-1]
    return [json.loads(part[6:]) for part in parts if part.startswith(b"data: {")]


async def phase(target: Target, numbers: range, streams: int) -> Traffic:
    """All these requests, so many at a time."""
    traffic, left = Traffic(), iter(numbers)
    began_s = time.perf_counter()

    async def worker() -> None:
        for number in left:
            await ask(target, number, traffic)

    await asyncio.gather(*(worker() for _ in range(streams)))
    traffic.wall_s = time.perf_counter() - began_s
    return traffic


@asynccontextmanager
async def clients(addresses: dict[str, str]) -> AsyncIterator[tuple[Target, Target]]:
    """Both sides: vLLM itself, and the gateway before it."""
    timeout = aiohttp.ClientTimeout(total=LIMIT_S)
    async with (
        _session(addresses["vllm"], addresses["vllm_key"], timeout) as direct,
        _session(addresses["url"], addresses["key"], timeout) as gateway,
    ):
        yield (
            Target(direct, lambda _: "/v1/chat/completions"),
            Target(gateway, lambda number: f"/sessions/s{number}/v1/chat/completions"),
        )


def _session(url: str, key: str, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        url,
        headers={"Authorization": f"Bearer {key}"},
        timeout=timeout,
        connector=aiohttp.TCPConnector(limit=0),
    )


# --- the two measurements ----------------------------------------------------------------------


async def latency(folder: Path, phases: int) -> dict[str, Any]:
    """First tokens at 8 streams, tokens a second at 64; the sides take turns."""
    few: dict[str, list[Traffic]] = {"direct": [], "gateway": []}
    many: dict[str, list[Traffic]] = {"direct": [], "gateway": []}
    async with hosting(folder) as (host, addresses), clients(addresses) as (direct, gateway):
        sides = {"direct": direct, "gateway": gateway}
        number = 0
        for at in range(-1, phases):  # the first one warms both sides up
            for streams, count, traffic_by_side in ((8, 64, few), (64, 192, many)):
                order = list(sides) if at % 2 else list(reversed(sides))
                for side in order:
                    traffic = await phase(sides[side], range(number, number + count), streams)
                    if at >= 0:
                        traffic_by_side[side].append(traffic)
                number += count
        end = await host.order("end")
    first_ms = {
        side: statistics.median(s for traffic in traffics for s in traffic.first_s) * 1e3
        for side, traffics in few.items()
    }
    speed = {
        side: sum(traffic.tokens for traffic in traffics)
        / sum(traffic.wall_s for traffic in traffics)
        for side, traffics in many.items()
    }
    by_phase = [
        statistics.median(g.first_s) * 1e3 - statistics.median(d.first_s) * 1e3
        for d, g in zip(few["direct"], few["gateway"], strict=True)
    ]
    return {
        "first_token_ms": {side: round(value, 2) for side, value in first_ms.items()},
        "added_ms_p50": round(first_ms["gateway"] - first_ms["direct"], 2),
        "added_ms_by_phase": [round(value, 2) for value in by_phase],
        "tokens_per_s_at_64": {side: round(value) for side, value in speed.items()},
        "throughput_ratio": round(speed["gateway"] / speed["direct"], 3),
        "throughput_ratio_by_phase": [
            round((g.tokens / g.wall_s) / (d.tokens / d.wall_s), 3)
            for d, g in zip(many["direct"], many["gateway"], strict=True)
        ],
        "gateway": end,
    }


async def swaps(folder: Path, chats: int, count: int) -> dict[str, Any]:
    """Mixed chats without and with swaps; nobody may notice more than a short pause."""
    async with hosting(folder) as (host, addresses), clients(addresses) as (_, gateway):
        await phase(gateway, range(10**6, 10**6 + 32), 32)  # warm
        calm = await mixed(gateway, range(chats))
        pauses_s: list[float] = []
        all_swapped = asyncio.Event()

        async def swapping() -> None:
            for _ in range(count):
                pauses_s.append((await host.order("swap"))["pause_s"])
                await asyncio.sleep(0.2)
            all_swapped.set()

        task = asyncio.create_task(swapping())
        busy = await mixed(gateway, range(chats, 2 * chats), until=all_swapped)
        await task
        end = await host.order("end")
    reader = StoreReader(folder / "run")
    turns = [turn for row in reader.sessions() for turn in reader.turns_of(row.id)]
    reader.close()
    inexact = sum(
        len(turn.versions_T) != len(turn.sampled_ids_T) or -1 in turn.versions_T for turn in turns
    )
    return {
        "chats": sum(busy.statuses.values()),
        "swaps": len(pauses_s),
        "answers": {str(status): n for status, n in (calm.statuses + busy.statuses).items()},
        "longest_gap_s": {
            "without swaps": round(max(calm.gaps_s), 3),
            "with swaps": round(max(busy.gaps_s), 3),
        },
        "added_gap_s": round(max(busy.gaps_s) - max(calm.gaps_s), 3),
        "swap_pause_s": {
            "p50": round(statistics.median(pauses_s), 3),
            "max": round(max(pauses_s), 3),
        },
        "turns": len(turns),
        "turns_without_exact_versions": inexact,
        "turns_with_several_versions": sum(len(set(turn.versions_T)) > 1 for turn in turns),
        "versions": len({version for turn in turns for version in turn.versions_T}),
        "gateway": end,
    }


async def mixed(target: Target, numbers: range, until: asyncio.Event | None = None) -> Traffic:
    """Half streamed, half whole, 32 at a time; goes on until the event when it is not set yet."""
    traffic, left = Traffic(), iter(numbers)
    extra = iter(range(numbers.stop + 10**7, numbers.stop + 2 * 10**7))

    async def worker() -> None:
        while (number := next(left, None)) is not None or (until and not until.is_set()):
            number = next(extra) if number is None else number
            await ask(target, number, traffic, stream=number % 2 == 0)

    await asyncio.gather(*(worker() for _ in range(32)))
    return traffic


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["latency", "swaps", "host"])
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--phases", type=int, default=6)
    parser.add_argument("--chats", type=int, default=1000)
    parser.add_argument("--swaps", type=int, default=20)
    options = parser.parse_args()
    if options.what == "host":
        return asyncio.run(host(options.folder))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.what == "latency":
            figures = asyncio.run(latency(folder, options.phases))
        else:
            figures = asyncio.run(swaps(folder, options.chats, options.swaps))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
