"""Requests written byte by byte, for what no client library would send."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.gateway_rig import Bench
from tests.support.waiting import PATIENCE_S

Header = tuple[str, bytes]


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    body: bytes

    @property
    def error(self) -> Any:
        """The OpenAI error that it is."""
        return json.loads(self.body)["error"]


def request(method: str, target: bytes, headers: Sequence[Header], body: bytes = b"") -> bytes:
    """The bytes of a request; nothing is added to its headers but a host."""
    head = [method.encode() + b" " + target + b" HTTP/1.1", b"Host: x", b"Connection: close"]
    head += [name.encode() + b": " + value for name, value in headers]
    return b"\r\n".join([*head, b"", body])


async def send(bench: Bench, raw: bytes) -> Answer:
    """Raises TimeoutError when nothing comes, IncompleteReadError when the connection ends."""
    method = raw.partition(b" ")[0]
    async with bench.connection() as (reader, writer), asyncio.timeout(PATIENCE_S):
        writer.write(raw)
        head = await reader.readuntil(b"\r\n\r\n")
        while head.startswith(b"HTTP/1.1 100 "):
            head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        named = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
        status = int(lines[0].split(" ")[1])
        if status == 101 or method == b"HEAD":
            return Answer(status, b"")
        if "content-length" in named:
            return Answer(status, await reader.readexactly(int(named["content-length"])))
        return Answer(status, await reader.read())
