"""One user who floods the service beside two honest ones: what do these notice?

    python bench/stress.py --policy sleeping --minutes 0.5     the gateway alone, no engine
    python bench/stress.py --minutes 2                         with vLLM and the tiny policy

All on loopback, in a folder that is deleted afterwards. First the honest users are measured alone,
then beside the flood: bodies as large as may be, many requests at a time, sessions without end, and
bad marks for every reply. Printed are ratios of the two, the longest waits of `/healthz`, the
status codes, what the flood left on the disk, and how many greedy replies to fixed prompts, which
nobody learns from, are others than before. Clients run in a process of their own; the machine's own
noise stands in the figures, so that the first line says how long `/healthz` takes when nobody asks.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from bench.gateway import SleepingPolicy
from bench.users import Served
from clawrl_gym.config import GatewayConfig, PolicyConfig, SamplingConfig
from clawrl_gym.core.processes.garbage import collected_by_the_clock
from clawrl_gym.dialogue.prompts import HistoryRule
from clawrl_gym.gateway.bodies.bodies import BodyLimit
from clawrl_gym.gateway.server import Gateway
from clawrl_gym.inference.fleet import Fleet
from clawrl_gym.store import Store
from clawrl_gym.store.users import Users

HONEST = ("anna", "bert")
FLOODING = "mallory"
LIMIT_S = 7200.0
PROBE_EVERY_S = 0.05
PAUSE_S = 0.3
"""Between two turns of an honest user."""
TURNS = 9
"""Of an honest user's conversation."""
REPLY_TOKENS = 24
FLOOD_TOKENS = 200
TARGET_PROBE_S = 0.05
TARGET_RATIO = 2.0
MOST_ALONE_S = 300.0
"""The honest users alone are measured no longer."""
PROMPTS = (
    *(f"What is {number} plus {3 * number + 4}?" for number in range(1, 16)),
    "Hello!", "Who are you?", "Count to three.", "Thank you very much.", "Say hello to Ada.",
)  # fmt: skip
WORDS = "the quick brown fox jumps over a lazy dog and tells a story about it "


@dataclass
class Heard:
    """Replies that some clients got."""

    first_token_s: list[float] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    """Number of answers by status."""


# The clients.


class Client:
    """One user's requests."""

    def __init__(self, http: aiohttp.ClientSession, key: str) -> None:
        self._http = http
        self._headers = {"Authorization": f"Bearer {key}"}

    async def reply(self, session: str, body: dict[str, Any]) -> tuple[float | None, str, str]:
        """Seconds to the first token, the status, and the text of a streamed reply."""
        began_s, first_s, text = time.perf_counter(), None, ""
        path = f"/sessions/{session}/v1/chat/completions"
        body = body | {"stream": True}
        async with self._http.post(path, json=body, headers=self._headers) as answer:
            async for line in answer.content:
                if line.startswith(b"data: {"):
                    choices = json.loads(line[6:]).get("choices") or [{}]
                    content = choices[0].get("delta", {}).get("content")
                    if content and first_s is None:
                        first_s = time.perf_counter() - began_s
                    text += content or ""
            return first_s, str(answer.status), text

    async def greedy(self, prompt: str) -> str:
        """A reply that is measured, and no part of what is learned from."""
        messages = [{"role": "user", "content": prompt}]
        body = {"messages": messages, "max_tokens": REPLY_TOKENS, "temperature": 0}
        headers = self._headers | {"X-Clawrl-Evaluation": "1"}
        async with self._http.post("/v1/chat/completions", json=body, headers=headers) as answer:
            answer.raise_for_status()
            told = await answer.json()
            return str(told["choices"][0]["message"]["content"])

    async def post(self, path: str, raw: bytes) -> str:
        """The status of an answer to a body."""
        headers = {**self._headers, "Content-Type": "application/json"}
        async with self._http.post(path, data=raw, headers=headers) as answer:
            await answer.read()
            return str(answer.status)


async def talk(client: Client, name: str, heard: Heard) -> None:
    """An honest user, one request at a time: in an hour, fewer sessions than a user has a day."""
    number = 0
    while True:
        number += 1
        messages: list[dict[str, str]] = []
        for turn in range(TURNS):
            said = f"What is {number} plus {turn}?" if turn % 3 < 2 else "Perfect, thanks!"
            messages.append({"role": "user", "content": said})
            body = {"messages": messages, "max_tokens": REPLY_TOKENS}
            first_s, status, text = await client.reply(f"{name}-{number}", body)
            heard.answers[status] += 1
            if first_s is not None:
                heard.first_token_s.append(first_s)
            messages.append({"role": "assistant", "content": text})
            await asyncio.sleep(PAUSE_S)


def probes(url: str, duration_s: float) -> list[float]:
    """Seconds that `/healthz` took, each on a connection of its own; of the last one, seconds until
    the deadline if it had no answer by then."""
    address, until_s = urlsplit(url), time.monotonic() + duration_s
    took_s: list[float] = []
    while time.monotonic() < until_s:
        began_s = time.perf_counter()
        left_s = max(0.001, until_s - time.monotonic())
        connection = HTTPConnection(address.hostname or "", address.port, timeout=left_s)
        with contextlib.suppress(TimeoutError):
            connection.request("GET", "/healthz")
            connection.getresponse().read()
        connection.close()
        took_s.append(time.perf_counter() - began_s)
        time.sleep(PROBE_EVERY_S)
    return took_s


def large_bodies(most_bytes: int) -> Iterator[bytes]:
    """Bodies of nearly the allowed size, one of each kind, again and again."""
    room = most_bytes - 200
    text = WORDS * (room // len(WORDS))
    message = {"role": "user", "content": WORDS * 30}
    part = {"type": "text", "text": "hello"}
    wrong = {"type": "txt", "text": "hello"}
    kinds: list[dict[str, Any]] = [
        {"messages": [{"role": "user", "content": text}]},
        {"messages": [message] * (room // (len(json.dumps(message)) + 2))},
        {"messages": [{"role": "user", "content": [part] * (room // 36)}]},
        {"messages": [{"role": "user", "content": [wrong] * (room // 36)}]},
        {"messages": [{"role": "user", "content": "hi"}], "metadata": [1] * (room // 3)},
        {"messages": [{"role": "user", "content": "[Mon 2026-01-01 10:10 " * (room // 22)}]},
    ]
    bodies = [json.dumps(kind).encode() for kind in kinds]
    while True:
        yield from bodies


async def flood(client: Client, most_bytes: int, at_once: int, heard: Heard) -> None:
    """Everything that one key allows, at the same time."""
    bodies = large_bodies(most_bytes)
    numbers = iter(range(10**9))
    replied: deque[str] = deque(maxlen=100)

    async def send_large() -> None:
        while True:
            path = f"/sessions/large{next(numbers)}/v1/chat/completions"
            heard.answers[f"large {await client.post(path, next(bodies))}"] += 1

    async def send_too_large() -> None:
        raw = b" " * (15 * 2**20)
        while True:
            heard.answers[f"15 MB {await client.post('/v1/chat/completions', raw)}"] += 1
            await asyncio.sleep(1.0)

    async def ask() -> None:
        while True:
            messages = [{"role": "user", "content": f"{random.random()} {WORDS}"}]
            body = {"messages": messages, "max_tokens": FLOOD_TOKENS}
            session = f"flood{next(numbers)}"
            _, status, _ = await client.reply(session, body)
            heard.answers[f"reply {status}"] += 1
            if status == "200":
                replied.append(session)
            else:
                await asyncio.sleep(0.2)

    async def give_feedback() -> None:
        while True:
            session = replied.popleft() if replied else "none"
            raw = json.dumps({"session_id": session, "thumb": "down"}).encode()
            heard.answers[f"feedback {await client.post('/v1/feedback', raw)}"] += 1
            await asyncio.sleep(0.2)

    asking = [ask() for _ in range(at_once)]
    await tolerant(send_large(), send_large(), send_too_large(), give_feedback(), *asking)


async def tolerant(*works: Coroutine[None, None, None]) -> None:
    """All of them; a connection that the server closed ends one."""
    for outcome in await asyncio.gather(*works, return_exceptions=True):
        if outcome is not None and not isinstance(outcome, aiohttp.ClientError):
            raise outcome


async def for_a_while(work: Coroutine[None, None, None], duration_s: float) -> None:
    """All ends at the deadline: requests that are under way then are cancelled, and not counted."""
    try:
        async with asyncio.timeout(duration_s) as limit:
            await work
    except TimeoutError:
        if not limit.expired():
            raise


async def honest(url: str, keys: dict[str, str], phase: str, duration_s: float) -> Heard:
    """All honest users, for so long."""
    heard = Heard()
    async with connected(url) as http:
        people = [(name, Client(http, keys[name])) for name in HONEST]
        talks = (talk(client, f"{name}-{phase}", heard) for name, client in people)
        await for_a_while(tolerant(*talks), duration_s)
    return heard


async def flooding(
    url: str, keys: dict[str, str], most_bytes: int, at_once: int, duration_s: float
) -> Heard:
    heard = Heard()
    async with connected(url) as http:
        client = Client(http, keys[FLOODING])
        await for_a_while(flood(client, most_bytes, at_once, heard), duration_s)
    return heard


async def fixed_replies(service: Service) -> list[str]:
    """Replies to an honest user, sampled greedily."""
    async with connected(service.url) as http:
        client = Client(http, service.keys[HONEST[0]])
        return [await client.greedy(prompt) for prompt in PROMPTS]


def connected(url: str) -> aiohttp.ClientSession:
    timeout = aiohttp.ClientTimeout(total=LIMIT_S)
    return aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=0), timeout=timeout)


def play(role: str, given: dict[str, Any]) -> object:
    """Play in a process of its own: what one role does must not count as another's wait."""
    if role == "probe":
        return probes(**given)
    work = honest if role == "honest" else flooding
    return vars(asyncio.run(work(**given)))


async def played(role: str, **given: object) -> Any:
    """Results of a role."""
    command = [sys.executable, __file__, "--role", role, json.dumps(given)]
    child = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    try:
        async with asyncio.timeout(LIMIT_S):
            output, _ = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
    return json.loads(output)


# The service.


@dataclass(frozen=True)
class Service:
    """The service under load."""

    url: str
    keys: dict[str, str]
    most_bytes: int
    folder: Path


@asynccontextmanager
async def sleeping_service(folder: Path, context: int) -> AsyncIterator[Service]:
    """The gateway and its store, before a policy that only sleeps."""
    users = Users(folder / "users")
    keys = {name: users.add(name) for name in (*HONEST, FLOODING)}
    store, config = Store.open(folder), GatewayConfig()
    gateway = Gateway(
        config,
        SamplingConfig(),
        store,
        Fleet([SleepingPolicy(0.01)]),
        "tiny",
        history=HistoryRule(context=context),
        users=users,
    )
    url = await gateway.start()
    try:
        async with collected_by_the_clock():  # as in every run
            yield Service(url, keys, BodyLimit.of(config, context).most_bytes, folder)
    finally:
        await gateway.stop()
        await store.close()


@asynccontextmanager
async def real_service(folder: Path, overrides: list[str]) -> AsyncIterator[Service]:
    """`python -m clawrl_gym.serve` with the tiny policy, which also learns."""
    users = Users(folder)
    keys = {name: users.add(name) for name in (*HONEST, FLOODING)}
    served = await asyncio.to_thread(Served, folder, ["judge=rule", *overrides])
    try:
        line = await asyncio.to_thread(served.wait_for, "gateway: ready at ")
        url = line.split("ready at ")[1].split()[0]
        await asyncio.to_thread(served.wait_for, "ready: talk to")
        limit = BodyLimit.of(GatewayConfig(), PolicyConfig().max_model_len)
        yield Service(url, keys, limit.most_bytes, folder)
    finally:
        await asyncio.to_thread(served.stop)


async def measure(service: Service, at_once: int, phase_s: float) -> None:
    before_mb, replies = size_mb(service.folder), [await fixed_replies(service)]
    alone_s = min(phase_s, MOST_ALONE_S)
    who: dict[str, Any] = {"url": service.url, "keys": service.keys}
    print_probes("idle", await played("probe", url=service.url, duration_s=min(phase_s, 5.0)))
    probed, alone = await asyncio.gather(
        played("probe", url=service.url, duration_s=alone_s),
        played("honest", phase="alone", duration_s=alone_s, **who),
    )
    print_probes("honest users alone", probed)
    replies.append(await fixed_replies(service))
    probed, beside, flooded = await asyncio.gather(
        played("probe", url=service.url, duration_s=phase_s),
        played("honest", phase="beside", duration_s=phase_s, **who),
        played("flood", most_bytes=service.most_bytes, at_once=at_once, duration_s=phase_s, **who),
    )
    print_probes("beside the flood", probed)
    replies.append(await fixed_replies(service))
    print_waits(alone, beside)
    print(f"honest users' answers   {alone['answers']} alone, {beside['answers']} beside")
    print(f"the flood's answers     {dict(sorted(flooded['answers'].items()))}")
    changed = [
        sum(one != other for one, other in zip(before, after, strict=True))
        for before, after in pairwise(replies)
    ]
    print(
        f"greedy replies changed  {changed[0]} of {len(PROMPTS)} while alone, {changed[1]} beside "
        f"the flood"
    )
    print(f"disk                    {size_mb(service.folder) - before_mb:.1f} MB more")


def print_waits(alone: dict[str, Any], beside: dict[str, Any]) -> None:
    for share in (0.5, 0.9):
        first, later = (at_share(heard["first_token_s"], share) for heard in (alone, beside))
        print(
            f"first token, p{100 * share:.0f}        alone {first * 1e3:.0f} ms, beside "
            f"{later * 1e3:.0f} ms: {later / first:.2f} times (target {TARGET_RATIO:g})"
        )


def print_probes(phase: str, took_s: list[float]) -> None:
    p50_ms, p99_ms, longest_ms = (1e3 * at_share(took_s, share) for share in (0.5, 0.99, 1.0))
    print(
        f"/healthz, {phase:18} p50 {p50_ms:.1f} ms, p99 {p99_ms:.1f} ms, longest "
        f"{longest_ms:.1f} ms ({len(took_s)} probes; target p99 {TARGET_PROBE_S * 1e3:.0f} ms)"
    )


def at_share(values: list[float], share: float) -> float:
    """A quantile; NaN of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else math.nan


def size_mb(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20


async def run(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        folder.mkdir()
        service = (
            sleeping_service(folder, options.context)
            if options.policy == "sleeping"
            else real_service(folder, options.overrides)
        )
        async with service as served:
            print(f"largest body            {served.most_bytes / 2**20:.2f} MB")
            await measure(served, options.at_once, 60 * options.minutes)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="duration of the flood")
    parser.add_argument("--policy", choices=("vllm", "sleeping"), default="vllm")
    parser.add_argument("--context", type=int, default=2048, help="tokens; of the sleeping one")
    parser.add_argument("--at-once", type=int, default=60, help="the flood's requests for replies")
    parser.add_argument("--role", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="keys of serve")
    options = parser.parse_args()
    if options.role:
        print(json.dumps(play(options.role[0], json.loads(options.role[1]))))
    else:
        asyncio.run(run(options))


if __name__ == "__main__":
    main()
