"""Everything that clients do to a gateway, for long: do memory, descriptors or threads grow?

    PYTHONPATH=. python bench/soak.py                 # an hour
    PYTHONPATH=. python bench/soak.py --seconds 180   # a short one, as `make nightly` has it

The gateway runs in a process of its own before a policy that answers at once, with its store on
disk; the load comes from this one: new sessions, long ones, old ones that return, streams that are
read to their end and such that are left, clients that vanish in the middle of a request, and bad
input. After a quarter of the time each measure is fitted with a line, with the errors of means of
blocks. It ends with 1 when one grows by more than chance and a tolerance allow.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from bench.gateway import SleepingPolicy
from clawrl_gym.config import GatewayConfig, LiveConfig, SamplingConfig
from clawrl_gym.gateway.server import Gateway
from clawrl_gym.inference.fleet import Fleet
from clawrl_gym.store import Store

CLIENTS = 16
EVERY_S = 1.0
BLOCKS = 12
IDLE_S = 5.0
"""A session without a request for so long has ended."""
WARM_SESSIONS = 64
"""Kept in memory: full long before the measurement begins."""
RETURNING = 300
"""Sessions that clients come back to, the newest: those that grow for ever would be no leak."""
REPLY_TOKENS = 12
LIMIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The gateway's process at one moment."""

    at_s: float
    memory_mb: float
    descriptors: float
    threads: float


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth of one measure, over the time that was measured."""

    name: str
    mean: float
    grown: float
    error: float
    """Standard error of `grown`."""
    allowed: float

    @property
    def is_flat(self) -> bool:
        """Whether chance and the tolerance explain it."""
        return self.grown - 2 * self.error <= self.allowed


def growths(samples: Sequence[Sample]) -> list[Growth]:
    """A line through each measure after the first quarter of the time."""
    began_s = samples[0].at_s
    measured = [s for s in samples if s.at_s - began_s >= (samples[-1].at_s - began_s) / 4]
    times_s = [sample.at_s for sample in measured]
    memory_mb = [sample.memory_mb for sample in measured]
    return [
        _growth("memory, MB", times_s, memory_mb, max(3.0, 0.03 * statistics.fmean(memory_mb))),
        _growth("descriptors", times_s, [sample.descriptors for sample in measured], 3.0),
        _growth("threads", times_s, [sample.threads for sample in measured], 1.0),
    ]


def _growth(name: str, times_s: Sequence[float], values: Sequence[float], allowed: float) -> Growth:
    """Least squares through the means of blocks: neighbours resemble each other."""
    if len(values) < 2 * BLOCKS:
        raise ValueError(f"got {len(values)} samples, expected at least {2 * BLOCKS}")
    size = len(values) // BLOCKS
    parts = [slice(at * size, (at + 1) * size) for at in range(BLOCKS)]
    ts = [statistics.fmean(times_s[part]) for part in parts]
    ys = [statistics.fmean(values[part]) for part in parts]
    slope, intercept = statistics.linear_regression(ts, ys)
    rest = sum((y - intercept - slope * t) ** 2 for t, y in zip(ts, ys, strict=True))
    spread = sum((t - statistics.fmean(ts)) ** 2 for t in ts)
    span_s = times_s[-1] - times_s[0]
    error = math.sqrt(rest / (BLOCKS - 2) / spread)
    return Growth(name, statistics.fmean(values), slope * span_s, error * span_s, allowed)


def sample_of(pid: int) -> Sample:
    """Read from /proc."""
    folder = Path("/proc") / str(pid)
    fields = dict(
        line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line
    )
    return Sample(
        time.monotonic(),
        int(fields["VmRSS"].split()[0]) / 1024,
        float(len(os.listdir(folder / "fd"))),  # noqa: PTH208 (thousands of names, no paths)
        float(fields["Threads"]),
    )


class Load:
    """Clients that do what clients do."""

    def __init__(self, http: aiohttp.ClientSession, url: str, key: str, per_s: float) -> None:
        self._http = http
        self._port = int(url.rpartition(":")[2])
        self._key = key
        self._pause_s = CLIENTS / per_s
        self._random = random.Random(0)
        self._numbers = 0
        self._left: deque[str] = deque(maxlen=RETURNING)
        """Sessions that were not ended."""
        self.did: Counter[str] = Counter()
        self.statuses: Counter[int] = Counter()
        self._kinds: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self._conversation, 6), (self._returns, 4), (self._stream, 4), (self._leaves, 3),
            (self._vanishes, 2), (self._bad_input, 4), (self._looks, 2), (self._unnamed, 2),
        ]  # fmt: skip

    async def run(self) -> None:
        """One client, until cancelled."""
        kinds, weights = zip(*self._kinds, strict=True)
        while True:
            (does,) = self._random.choices(kinds, weights)
            self.did[does.__name__.strip("_")] += 1
            began_s = time.monotonic()
            with suppress(aiohttp.ClientError, TimeoutError, ConnectionError):
                await does()
            await asyncio.sleep(max(0.0, self._pause_s - time.monotonic() + began_s))

    def _new(self) -> str:
        self._numbers += 1
        return f"soak-{self._numbers}"

    def _body(self, turns: int = 0, **more: object) -> dict[str, object]:
        messages = [{"role": "system", "content": "You work in a shell. " * 20}]
        for turn in range(turns):
            messages += [
                {"role": "user", "content": f"step {turn} {'x' * self._random.randrange(200)}"},
                {"role": "assistant", "content": "```bash\nls -la | wc -l\n```"},
            ]
        messages.append({"role": "user", "content": f"go on {self._random.random()}"})
        return {"messages": messages, "max_tokens": REPLY_TOKENS, **more}

    async def _post(self, path: str, body: object, **headers: str) -> int:
        async with self._http.post(path, json=body, headers=headers) as answer:
            await answer.read()
            self.statuses[answer.status] += 1
            return answer.status

    async def _conversation(self) -> None:
        """A new session of some turns, which is ended, deleted, or left as it is."""
        name = self._new()
        for turn in range(self._random.randrange(1, 5)):
            await self._post(f"/sessions/{name}/v1/chat/completions", self._body(turn))
        end = self._random.random()
        if end < 0.6:
            await self._post(f"/sessions/{name}/end", {"reward": 1.0})
        elif end < 0.8:
            async with self._http.delete(f"/sessions/{name}") as answer:
                self.statuses[answer.status] += 1
        else:
            self._left.append(name)

    async def _returns(self) -> None:
        """A turn of a session that has been there for long."""
        name = self._random.choice(self._left or [self._new()])
        await self._post(f"/sessions/{name}/v1/chat/completions", self._body(3))

    async def _unnamed(self) -> None:
        """A conversation that the gateway has to recognise."""
        await self._post("/v1/chat/completions", self._body(self._random.randrange(4)))

    async def _stream(self) -> None:
        path = f"/sessions/{self._new()}/v1/chat/completions"
        await self._post(path, self._body(stream=True))

    async def _leaves(self) -> None:
        """A stream that is left after its first pieces."""
        body = self._body(stream=True, max_tokens=10_000)
        path = f"/sessions/{self._new()}/v1/chat/completions"
        async with self._http.post(path, json=body) as answer:
            await answer.content.readany()
            answer.close()
        self.statuses[499] += 1

    async def _vanishes(self) -> None:
        """A connection that is gone before its request is whole, or before its answer comes."""
        _, writer = await asyncio.open_connection("127.0.0.1", self._port)
        body = json.dumps(self._body())
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self._key}"
            f"\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        whole = (head + body).encode()
        writer.write(whole[: self._random.randrange(len(whole) + 1)])
        await writer.drain()
        writer.transport.abort()

    async def _bad_input(self) -> None:
        path = "/v1/chat/completions"
        bodies: list[object] = [
            None, [], {"messages": "x"}, {"messages": []}, {"messages": [{"role": "nobody"}]},
            self._body(max_tokens=-1), self._body(model="another"), self._body(n=1_000_000),
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            self._body(temperature="hot"), {"messages": [{"role": "user"}] * 500},
        ]  # fmt: skip
        chance = self._random.random()
        if chance < 0.6:
            await self._post(path, self._random.choice(bodies))
        elif chance < 0.7:
            await self._post(path, self._body(), Authorization="Bearer wrong")
        elif chance < 0.8:
            await self._post(f"/sessions/{'x' * 5000}/v1/chat/completions", self._body())
        elif chance < 0.9:
            await self._post(f"/no/such/{self._new()}", {})
        else:
            async with self._http.post(path, data=os.urandom(2000)) as answer:
                await answer.read()
                self.statuses[answer.status] += 1

    async def _looks(self) -> None:
        for path in ("/metrics", "/v1/models", "/readyz"):
            async with self._http.get(path) as answer:
                await answer.read()
                self.statuses[answer.status] += 1


async def soak(seconds: float, per_s: float = math.inf) -> tuple[list[Sample], Load]:
    """Load a gateway for so long, at most so often; its samples and what was done."""
    with tempfile.TemporaryDirectory(prefix="clawrl-soak-") as folder:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.soak", "--serve", folder,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert child.stdout is not None
        assert child.stdin is not None
        try:
            async with asyncio.timeout(60):
                url, key = (await child.stdout.readline()).decode().split()
            samples, load = await _loaded(url, key, child.pid, seconds, per_s)
            child.stdin.close()
            async with asyncio.timeout(60):
                await child.wait()
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
    return samples, load


async def _loaded(
    url: str, key: str, pid: int, seconds: float, per_s: float
) -> tuple[list[Sample], Load]:
    samples: list[Sample] = []
    timeout = aiohttp.ClientTimeout(total=LIMIT_S)
    headers = {"Authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession(url, headers=headers, timeout=timeout) as http:
        load = Load(http, url, key, per_s)
        clients = [asyncio.create_task(load.run()) for _ in range(CLIENTS)]
        ends_s = time.monotonic() + seconds
        while time.monotonic() < ends_s:
            await asyncio.sleep(EVERY_S)
            samples.append(sample_of(pid))
            for client in clients:
                if client.done():
                    client.result()
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
    return samples, load


async def serve(folder: Path) -> None:
    """The gateway, until standard input is closed."""
    store = Store.open(folder)
    live = LiveConfig(idle_end_s=IDLE_S, warm_sessions=WARM_SESSIONS)
    fleet = Fleet([SleepingPolicy(0.002)], remembered=WARM_SESSIONS)
    gateway = Gateway(GatewayConfig(), SamplingConfig(), store, fleet, "tiny", live=live)
    with_small_caches(store, gateway)
    print(await gateway.start(), gateway.key, flush=True)
    reaping = asyncio.create_task(gateway.sessions.reap())
    await asyncio.to_thread(sys.stdin.read)
    reaping.cancel()
    await gateway.stop()
    await store.close()


def with_small_caches(store: Store, gateway: Gateway) -> None:
    """Caches that are full in seconds: they hold up to 128 MB of last turns and 262,144 keys of
    conversations otherwise, which takes longer than a short soak lasts and is no leak."""
    store._bases._max_bytes = 2**20
    gateway.sessions._identifier._index._max_keys = 4096


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--per-s", type=float, default=math.inf, help="conversations and the like")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.serve))
        return 0
    if options.seconds < 4 * BLOCKS * EVERY_S:
        parser.error(f"got --seconds {options.seconds:g}, expected at least {4 * BLOCKS}")
    if not options.per_s > 0:
        parser.error(f"got --per-s {options.per_s:g}, expected a number above 0")
    samples, load = asyncio.run(soak(options.seconds, options.per_s))
    print(f"{sum(load.statuses.values()):,} answers: {dict(sorted(load.statuses.items()))}")
    print(f"done: {dict(load.did.most_common())}")
    tenths = [samples[at * len(samples) // 10].memory_mb for at in range(10)]
    print(f"memory, MB, at each tenth: {', '.join(f'{memory_mb:.0f}' for memory_mb in tenths)}")
    measured = growths(samples)
    for growth in measured:
        print(
            f"{growth.name:12} mean {growth.mean:.1f}, grown by {growth.grown:+.2f} "
            f"(standard error {growth.error:.2f}, allowed {growth.allowed:.1f}): "
            f"{'flat' if growth.is_flat else 'GROWS'}"
        )
    broken = sum(n for status, n in load.statuses.items() if status >= 500)
    if broken:
        print(f"{broken} answers of 500 and above: a fault of the gateway")
    return int(broken > 0 or not all(growth.is_flat for growth in measured))


if __name__ == "__main__":
    sys.exit(main())
