"""A gateway on loopback before a fake policy, and a client: what the gateway's tests share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from clawrl_gym.config import GatewayConfig, ImagesConfig, LiveConfig, SamplingConfig
from clawrl_gym.core.types import Message, Turn, Verdict
from clawrl_gym.dialogue.prompts import HistoryRule
from clawrl_gym.gateway.hooks import Hooks
from clawrl_gym.gateway.server import Gateway
from clawrl_gym.gateway.wire.sse import Pace
from clawrl_gym.inference.fleet import Fleet
from clawrl_gym.inference.interface import Versions
from clawrl_gym.store import Store
from clawrl_gym.store.users import Users
from tests.support.fakes import FakePolicy

SAMPLING = SamplingConfig(temperature=0.7, top_p=1.0, max_tokens=33)
HELLO: list[Message] = [{"role": "user", "content": "hello"}]


def user(text: str) -> Message:
    return {"role": "user", "content": text}


@dataclass
class Told:
    """What the hooks were told, in order."""

    turns: list[Turn] = field(default_factory=list)
    next_states: list[Turn] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)

    def hooks(self) -> Hooks:
        return Hooks(
            self.turns.append,
            self.next_states.append,
            self.verdicts.append,
            self.ended.append,
            self.deleted.append,
        )


class Bench:
    """A gateway on loopback, its fake policies, its store and a client."""

    def __init__(self, folder: Path, **gateway: Any) -> None:
        self.folder = folder
        self.policy = FakePolicy()
        self.others: list[FakePolicy] = []
        self.config = GatewayConfig(**gateway)
        self.live = LiveConfig()
        self.pace = Pace(open_after_s=0.2, keep_alive_s=0.1, stall_s=0.5)
        self.timeout_s = 5.0
        self.told = Told()
        self.films: Path | None = None
        self.film_files: list[Path] = []
        self.images: ImagesConfig | None = None
        self.history: HistoryRule | None = None
        self.users: Users | None = None
        self.versions: Versions | None = None
        self.allowances: Path | None = None

    async def start(self) -> None:
        self.store = Store.open(self.folder, record=self.live.record)
        self.fleet = Fleet([self.policy, *self.others])
        self.gateway = Gateway(
            self.config,
            SAMPLING,
            self.store,
            self.fleet,
            "tiny",
            self.timeout_s,
            live=self.live,
            hooks=self.told.hooks(),
            pace=self.pace,
            films=self.films,
            on_film=self.film_files.append,
            images=self.images,
            history=self.history,
            users=self.users,
            versions=self.versions,
            allowances=self.allowances,
        )
        self.url = await self.gateway.start()
        self.http = aiohttp.ClientSession(
            self.url, headers={"Authorization": f"Bearer {self.gateway.key}"}
        )

    async def stop(self) -> None:
        await self.http.close()
        await self.gateway.stop()
        await self.store.close()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """A bare connection, for what no client would send."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def ask(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, Any, Any]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.http.request(method, path, json=body, headers=named) as answer:
            return answer.status, await answer.json(), answer.headers

    async def get(self, path: str) -> tuple[int, Any, Any]:
        return await self.ask("GET", path)

    async def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any, Any]:
        return await self.ask("POST", path, body, **headers)

    async def chat(
        self, messages: list[Message], session: str = "s1", **fields: Any
    ) -> tuple[int, Any, Any]:
        path = f"/sessions/{session}/v1/chat/completions"
        return await self.post(path, {"model": "tiny", "messages": messages, **fields})

    async def say(self, messages: list[Message], session: str = "s1", **fields: Any) -> Message:
        status, answer, _ = await self.chat(messages, session, **fields)
        assert status == 200, answer
        reply: Message = answer["choices"][0]["message"]
        return reply

    @asynccontextmanager
    async def stream(
        self, messages: list[Message], session: str = "s1", **fields: Any
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A streamed chat, its status checked."""
        path = f"/sessions/{session}/v1/chat/completions"
        body = {"model": "tiny", "messages": messages, "stream": True, **fields}
        async with self.http.post(path, json=body) as answer:
            assert answer.status == 200, await answer.text()
            yield answer

    async def events(
        self, messages: list[Message], session: str = "s1", **fields: Any
    ) -> list[Any]:
        """All events of a streamed chat; comments are left out, `[DONE]` is the last."""
        async with self.stream(messages, session, **fields) as answer:
            return parse_events(await answer.read())


def parse_events(raw: bytes) -> list[Any]:
    """Server-sent events as JSON; comments are left out."""
    lines = [part for part in raw.decode().split("\n\n") if part and not part.startswith(":")]
    assert all(line.startswith("data: ") for line in lines), raw
    told = [line.removeprefix("data: ") for line in lines]
    return [line if line == "[DONE]" else json.loads(line) for line in told]


def text_of(events: list[Any]) -> str:
    """The content that a stream's deltas make together."""
    choices = [event["choices"][0] for event in events if event != "[DONE]" and event["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)
