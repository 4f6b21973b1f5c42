"""The only way out of a browser: an HTTP proxy in this process that knows which context asks.

The listening socket lies in the browser's own network namespace, where it is reached under every
address 127.x.y.z: each context is given one of these as its proxy, and the address that a
connection was connection to tells whose it is. Nothing else is there to connect to, so redirects,
sockets and name lookups of pages need no rule of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import http
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from clawrl_gym.core.errors import EnvError
from clawrl_gym.envs.gui.browser.network import Allowed, Network, addresses
from clawrl_gym.envs.gui.site import Response

_HEAD_BYTES = 1 << 18
_BODY_BYTES = 1 << 24
_CHUNK_BYTES = 1 << 16
_CONNECT_S = 10.0
_IDLE_S = 300.0
_PORTS = {"http": 80, "ws": 80}
_HOP_BY_HOP = ("proxy-", "connection", "keep-alive", "upgrade", "te")
_REFUSED = (
    "<!doctype html><title>Not reachable</title><h1>Not reachable</h1>"
    "<p>This address is outside of the task.</p>"
)


@dataclass(frozen=True, slots=True)
class Head:
    """The first lines of a request."""

    method: str
    target: str
    headers: dict[str, str]
    """Names in lower case; of repeated ones the last."""


class Proxy:
    """Serves every context of one browser. Lives on the loop."""

    def __init__(self, listener: socket.socket | None) -> None:
        """`listener` None: each context gets a socket of its own on this host's loopback."""
        self._listener = listener
        self._networks: dict[str, Network] = {}
        self._servers: dict[str, asyncio.Server] = {}
        self._connections: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        if self._listener is not None:
            self._servers[""] = await self._serve(self._shared, sock=self._listener)

    async def admit(self, network: Network) -> str:
        """An address for a context's `proxy`; until `dismiss`."""
        if self._listener is None:
            return await self._admit_alone(network)
        port = self._listener.getsockname()[1]
        while (host := f"127.{_byte()}.{_byte()}.{_byte()}") in self._networks:
            pass
        self._networks[host] = network
        return f"http://{host}:{port}"

    async def _admit_alone(self, network: Network) -> str:
        async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._talk(network, reader, writer)

        server = await self._serve(one, host="127.0.0.1", port=0)
        host, port = server.sockets[0].getsockname()
        self._servers[f"http://{host}:{port}"] = server
        return f"http://{host}:{port}"

    def dismiss(self, address: str) -> None:
        """The context is gone."""
        self._networks.pop(urlsplit(address).hostname or "", None)
        if (server := self._servers.pop(address, None)) is not None:
            server.close()

    def close(self) -> None:
        for server in self._servers.values():
            server.close()
        for writer in list(self._connections):
            writer.transport.abort()
        self._servers.clear()
        self._networks.clear()

    async def _serve(
        self,
        handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], object],
        **where: object,
    ) -> asyncio.Server:
        return await asyncio.start_server(handle, limit=_HEAD_BYTES, **where)  # type: ignore[arg-type]

    async def _shared(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        network = self._networks.get(writer.get_extra_info("sockname")[0])
        if network is None:
            writer.transport.abort()
            return
        await self._talk(network, reader, writer)

    async def _talk(
        self, network: Network, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer requests until the browser hangs up."""
        self._connections.add(writer)
        try:
            while await self._exchange(network, reader, writer):
                pass
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError, TimeoutError):
            pass  # the page went away, or the request is none: hanging up is the answer
        finally:
            self._connections.discard(writer)
            writer.transport.abort() if writer.transport.is_closing() else writer.close()

    async def _exchange(
        self, network: Network, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """One request; whether another may follow on this connection."""
        head = await _read_head(reader)
        if head.method == "CONNECT":
            await _tunnel(network, head, reader, writer)
            return False
        url = urlsplit(head.target)
        host, port = (url.hostname or "").lower(), url.port or _PORTS.get(url.scheme, 0)
        length = int(head.headers.get("content-length", "0"))
        if not 0 <= length <= _BODY_BYTES or "transfer-encoding" in head.headers:
            await _write(writer, Response("this request is too long", 413), head.method)
            return False
        body = await reader.readexactly(length)
        if network.is_site(host, port):
            path = head.target[head.target.index("/", len(url.scheme) + 3) :]
            response = await network.answer(host, head.method, path, head.headers, body)
            await _write(writer, response, head.method)
            return True
        entry = network.entry(host, port)
        if entry is None:
            network.refuse(head.target)
            await _write(writer, Response(_REFUSED, 403), head.method)
            return True
        await _forward(entry, host, port, head, body, writer)
        return False


async def _read_head(reader: asyncio.StreamReader) -> Head:
    async with asyncio.timeout(_IDLE_S):
        raw = await reader.readuntil(b"\r\n\r\n")
    first, *lines = raw[:-4].decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return Head(method, target, headers)


async def _write(writer: asyncio.StreamWriter, response: Response, method: str) -> None:
    body = response.body.encode() if isinstance(response.body, str) else response.body
    headers = {
        "Content-Type": response.content_type,
        "Content-Length": str(len(body)),
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
        **response.headers,
    }
    phrase = http.HTTPStatus(response.status).phrase
    lines = [f"HTTP/1.1 {response.status} {phrase}", *(f"{k}: {v}" for k, v in headers.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1", "replace"))
    if method != "HEAD":
        writer.write(body)
    await writer.drain()


async def _tunnel(
    network: Network, head: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """https and WebSockets: bytes both ways, to what is allowed only."""
    parts = urlsplit("//" + head.target)
    host, port = (parts.hostname or "").lower(), parts.port or 0
    entry = network.entry(host, port)
    if entry is None:
        scheme = "https" if port == 443 else "tcp"
        network.refuse(f"{scheme}://{host}" + ("" if port == 443 else f":{port}"))
        await _write(writer, Response(_REFUSED, 403), head.method)
        return
    async with _outside(entry, host, port) as (far_reader, far_writer):
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        back = asyncio.create_task(_pump(far_reader, writer))
        try:
            await _pump(reader, far_writer)
            await back
        finally:
            back.cancel()


async def _forward(
    entry: Allowed, host: str, port: int, head: Head, body: bytes, writer: asyncio.StreamWriter
) -> None:
    """Plain http: the request is forwarded with its path, the response comes back unchanged."""
    url = urlsplit(head.target)
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    headers = {k: v for k, v in head.headers.items() if not k.startswith(_HOP_BY_HOP)}
    lines = [f"{head.method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items())]
    try:
        async with _outside(entry, host, port) as (far_reader, far_writer):
            far_writer.write("\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1"))
            far_writer.write(body)
            await _pump(far_reader, writer)
    except (OSError, EnvError, TimeoutError) as error:
        await _write(writer, Response(f"not reachable: {error}", 502, "text/plain"), head.method)


@contextlib.asynccontextmanager
async def _outside(
    entry: Allowed, host: str, port: int
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with asyncio.timeout(_CONNECT_S):
        where = (await addresses(host, port, entry))[0]
        reader, writer = await asyncio.open_connection(sock=await _connected(where, port))
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _connected(address: str, port: int) -> socket.socket:
    """A connected socket. asyncio of Python 3.11 would leave a refused one open."""
    connection = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    connection.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(connection, (address, port))
    except BaseException:
        connection.close()
        raise
    return connection


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


def _byte() -> int:
    return 1 + secrets.randbelow(254)
