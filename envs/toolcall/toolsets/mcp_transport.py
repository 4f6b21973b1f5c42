"""Streams of messages to an MCP server: a process of ours, or a URL, each with bounds.

A process speaks JSON lines on its pipes. Where bubblewrap works, it gets a process namespace (not a
sandbox: it sees the host's files and network as its user wants it to), so that all it ever started
ends with it, also when its owner is killed. Elsewhere its process group is killed. Lines that are
no messages are left out, endless ones and a flood end the connection. Results that the SDK would
refuse are repaired on their way (`mcp_repair.py`).

A URL is reached by the SDK's streamable HTTP, without proxies: a key in the headers goes to the
address that was configured and nowhere else.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING

from clawrl_gym.envs.toolcall.toolsets.mcp_repair import read_line, repaired_result, say_once

if TYPE_CHECKING:
    from typing import Self

    import httpx2
    from anyio.abc import ByteReceiveStream, ByteSendStream, ObjectSendStream, Process
    from mcp.client._transport import ReadStream, TransportStreams
    from mcp.shared.message import SessionMessage

MAX_LINE_BYTES = 8 * 2**20
MAX_UNASKED_BYTES = 32 * 2**20
"""Most bytes that a server may send between two messages to it."""
MAX_STDERR_CHARS = 500
_GRACE_S = 1.0
"""Seconds that a server has to exit after its input was closed."""
_KILL_S = 5.0
MAX_ANSWER_BYTES = 32 * 2**20
"""Most bytes of one HTTP answer; a stream of events counts as one."""
_TIMEOUT_S = 30.0
_READ_TIMEOUT_S = 300.0


@dataclass(slots=True)
class Ending:
    """Known reasons why a connection ended."""

    why: str = ""
    stderr: bytes = b""
    """The end of what the server said there."""
    unasked_bytes: int = 0
    """Bytes received since the last message to it."""

    def in_words(self) -> str:
        """In words; empty when nothing is known."""
        output = self.stderr.decode(errors="replace").strip()[-MAX_STDERR_CHARS:]
        return "; ".join(part for part in (self.why, output and f"it said: {output}") if part)


@asynccontextmanager
async def process_transport(
    server: str, command: str, args: Sequence[str], env: Mapping[str, str], ending: Ending
) -> AsyncIterator[TransportStreams]:
    """Streams of messages from and to a new process. Raises OSError when it cannot start."""
    import anyio
    from mcp.shared.message import SessionMessage

    path = shutil.which(command, path=env.get("PATH"))
    if path is None:
        raise FileNotFoundError(f"there is no program {command!r} in PATH")
    contained = _contains()
    process = await anyio.open_process(
        [*(_CONTAINED if contained else ()), path, *args], env=dict(env), start_new_session=True
    )
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    assert stdin is not None
    assert stdout is not None
    assert stderr is not None
    to_read, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, to_send = anyio.create_memory_object_stream[SessionMessage](0)

    async def send() -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            async for message in to_send:
                ending.unasked_bytes = 0
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await stdin.send(f"{text}\n".encode())
        await to_read.aclose()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(send)
        tasks.start_soon(_receive, server, stdout, to_read, ending)
        tasks.start_soon(_keep_stderr, stderr, ending)
        try:
            yield read, write
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process, stdin, contained, 0.0 if ending.why else _GRACE_S)
            tasks.cancel_scope.cancel()
            for stream in (to_read, read, write, to_send):
                stream.close()


_CONTAINED = (
    "bwrap", "--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--die-with-parent", "--",
)  # fmt: skip


@cache
def _contains() -> bool:
    """Whether bubblewrap can give a process namespace here."""
    if shutil.which("bwrap") is None:
        return False
    try:
        tried = subprocess.run([*_CONTAINED, "true"], capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return tried.returncode == 0


async def _receive(
    server: str,
    stdout: ByteReceiveStream,
    to_read: ObjectSendStream[SessionMessage | Exception],
    ending: Ending,
) -> None:
    """Hand on what comes, line by line, until the end or too much."""
    import anyio

    rest = bytearray()
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        while not ending.why:
            chunk = await stdout.receive()
            ending.unasked_bytes += len(chunk)
            *lines, last = chunk.split(b"\n")
            for line in lines:
                message = _message(bytes(rest) + line, server)
                rest.clear()
                if message is not None:
                    await to_read.send(message)
            rest += last
            if len(rest) > MAX_LINE_BYTES:
                ending.why = f"it sent a line of more than {MAX_LINE_BYTES} bytes"
            elif ending.unasked_bytes > MAX_UNASKED_BYTES:
                ending.why = f"it sent more than {MAX_UNASKED_BYTES} bytes at once"
    ending.why = ending.why or "it closed its output"
    await to_read.aclose()


def _message(line: bytes, server: str) -> SessionMessage | None:
    """A line's message; None for what is none."""
    import mcp_types
    from mcp.shared.message import SessionMessage

    message = read_line(line, server)
    if message is None:
        return None
    try:
        return SessionMessage(
            mcp_types.jsonrpc_message_adapter.validate_python(message, by_name=False)
        )
    except ValueError as error:
        say_once(server, f"a message that is none of the protocol's is left out: {error}")
        return None


async def _keep_stderr(stderr: ByteReceiveStream, ending: Ending) -> None:
    import anyio

    with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        while True:
            ending.stderr = (ending.stderr + await stderr.receive())[-4 * MAX_STDERR_CHARS :]


async def _end(process: Process, stdin: ByteSendStream, contained: bool, grace_s: float) -> None:
    """Close its input, give it a moment, then kill what is left."""
    import anyio

    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        await stdin.aclose()
    await _exit(process, grace_s)
    if process.returncode is None or not contained:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    await _exit(process, _KILL_S)
    await process.aclose()


async def _exit(process: Process, timeout_s: float) -> None:
    """Wait for the process alone: wait() would wait for its pipes too, which a child may hold."""
    import anyio

    with anyio.move_on_after(timeout_s):
        while process.returncode is None:  # noqa: ASYNC110
            await anyio.sleep(0.005)


@asynccontextmanager
async def http_transport(
    server: str, url: str, headers: Mapping[str, str]
) -> AsyncIterator[TransportStreams]:
    """Streams of messages from and to the server at the URL."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    client = httpx2.AsyncClient(
        headers=dict(headers),
        timeout=httpx2.Timeout(_TIMEOUT_S, read=_READ_TIMEOUT_S),
        transport=_bounded_transport(),
        trust_env=False,
    )
    async with client, streamable_http_client(url, http_client=client) as (read, write):
        yield _RepairedStream(read, server), write


class _RepairedStream:
    """A stream of the SDK's, each result repaired on its way."""

    def __init__(self, stream: ReadStream[SessionMessage | Exception], server: str) -> None:
        self._stream = stream
        self._server = server

    @property
    def last_context(self) -> object:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return self._repaired(await self._stream.receive())

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._repaired(await self._stream.__anext__())

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._stream.__aexit__(kind, error, trace)

    def _repaired(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        from mcp_types import JSONRPCResponse

        if not isinstance(item, Exception) and isinstance(item.message, JSONRPCResponse):
            item.message.result = repaired_result(item.message.result, self._server)
        return item


def _bounded_transport() -> httpx2.AsyncBaseTransport:
    """The usual transport, whose answers end with an error where they are too long."""
    import httpx2

    class BoundedStream(httpx2.AsyncByteStream):
        def __init__(self, stream: httpx2.AsyncByteStream) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            count = 0
            async for chunk in self._stream:
                count += len(chunk)
                if count > MAX_ANSWER_BYTES:
                    raise httpx2.ReadError(f"the answer is longer than {MAX_ANSWER_BYTES} bytes")
                yield chunk

        async def aclose(self) -> None:
            await self._stream.aclose()

    class BoundedTransport(httpx2.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            answer = await super().handle_async_request(request)
            assert isinstance(answer.stream, httpx2.AsyncByteStream)
            answer.stream = BoundedStream(answer.stream)
            return answer

    return BoundedTransport()
