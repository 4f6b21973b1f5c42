"""One MCP server's connection, for callers on any thread: the `mcp` SDK on a loop of its own.

A process has one loop thread for all its connections. Only this file and `mcp_transport.py` know of
asyncio; everything outside is blocking and has a time limit.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import threading
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, TypeVar

from clawrl_gym.core.errors import EnvError
from clawrl_gym.envs.toolcall.config import McpServerConfig
from clawrl_gym.envs.toolcall.toolset import ToolFailure
from clawrl_gym.envs.toolcall.toolsets.mcp_repair import say_once
from clawrl_gym.envs.toolcall.toolsets.mcp_transport import Ending, process_transport

if TYPE_CHECKING:
    import mcp_types
    from mcp.client import Transport
    from mcp.client.client import Client
    from mcp.shared.exceptions import MCPError

CONNECT_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 10.0
_PING_TIMEOUT_S = 2.0
_SLACK_S = 5.0
"""Seconds that the loop may need beyond a call's own limit."""
MAX_TOOLS = 512
MAX_PAGES = 50

T = TypeVar("T")


class Connection:
    """A server that was started or reached, its tools listed."""

    def __init__(self, config: McpServerConfig) -> None:
        self._config = config
        self._ending = Ending()
        self._client: Client | None = None
        self.tools: list[mcp_types.Tool] = []
        """Tools as the server lists them, in the form that `mcp_repair.py` gives them."""
        self._loop = _loop()
        self._ready: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._stop = asyncio.Event()
        self._served = asyncio.run_coroutine_threadsafe(self._serve(), self._loop)

    @classmethod
    def open(cls, config: McpServerConfig, timeout_s: float = CONNECT_TIMEOUT_S) -> Connection:
        """Raises EnvError when the server cannot be used within the time."""
        import mcp.client.client  # noqa: F401 (a second of work that the loop must not do)

        connection = cls(config)
        try:
            connection._ready.result(timeout_s)
        except BaseException as error:
            connection.close()
            if not isinstance(error, Exception):
                raise
            late = isinstance(error, TimeoutError)
            why = f"no answer within {timeout_s:g} s" if late else _in_words(error)
            raise connection._failed("could not be used", why) from error
        return connection

    def call(
        self, name: str, arguments: dict[str, object], timeout_s: float
    ) -> mcp_types.CallToolResult:
        """The result of one call. Raises ToolFailure for what the server refuses or takes too
        long for, EnvError when the server is gone or no longer answers."""
        from mcp.shared.exceptions import MCPError

        client = self._client
        if client is None or self._served.done():
            raise self._failed("is gone", "")
        try:
            return self._run(client.call_tool(name, arguments), timeout_s)
        except TimeoutError:
            if not self._answers(client):
                raise self._failed("hangs", f"no answer within {timeout_s:g} s") from None
            raise ToolFailure(f"it took longer than {timeout_s:g} s") from None
        except MCPError as error:
            if self._is_over(error):
                raise self._failed("is gone", "") from None
            raise ToolFailure(error.message) from None
        except (RuntimeError, ValueError) as error:
            raise ToolFailure(f"the result cannot be read: {error}") from None
        except Exception as error:
            raise self._failed("failed", _in_words(error)) from error

    def close(self) -> None:
        """End the connection, and the server when it was started for it; idempotent."""
        if self._served.done() or self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        if not self._ready.done():  # it may wait for an answer that never comes
            self._served.cancel()
        with suppress(Exception, concurrent.futures.CancelledError):
            self._served.result(CLOSE_TIMEOUT_S)

    def _run(self, work: Coroutine[object, None, T], timeout_s: float) -> T:
        running = asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, timeout_s), self._loop)
        try:
            return running.result(timeout_s + _SLACK_S)
        except TimeoutError:
            running.cancel()
            raise

    def _answers(self, client: Client) -> bool:
        """Whether the server still says anything; a refusal is an answer too."""
        from mcp.shared.exceptions import MCPError

        try:
            self._run(client.session.send_ping(), _PING_TIMEOUT_S)
        except MCPError as error:
            return not self._is_over(error)
        except (TimeoutError, OSError, RuntimeError):
            return False
        return True

    def _is_over(self, error: MCPError) -> bool:
        from mcp_types import CONNECTION_CLOSED

        return bool(error.code == CONNECTION_CLOSED or self._served.done())

    async def _serve(self) -> None:
        """Holds everything open; entered and left in one task, as the SDK wants it."""
        try:
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(_client(self._config, self._ending))
                self._client = client
                self.tools = await _list_tools(client, self._config.name)
                self._ready.set_result(None)
                await self._stop.wait()
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(error)
            raise

    def _failed(self, predicate: str, why: str) -> EnvError:
        reasons = "; ".join(part for part in (why, self._ending.in_words()) if part)
        return EnvError(
            f"the MCP server {self._config.name!r} {predicate}{reasons and ': '}{reasons}"
        )


def _client(config: McpServerConfig, ending: Ending) -> Client:
    """A client of the SDK that is not entered yet."""
    from mcp.client.client import Client

    return Client(_transport(config, ending), cache=None)


def _transport(config: McpServerConfig, ending: Ending) -> Transport:
    if config.command is not None:
        variables = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        return process_transport(
            config.name, config.command, config.args, {**variables, **config.env}, ending
        )
    from clawrl_gym.envs.toolcall.toolsets.mcp_transport import http_transport

    assert config.url is not None
    return http_transport(config.name, config.url, config.headers)


async def _list_tools(client: Client, server: str) -> list[mcp_types.Tool]:
    """All pages, or as many as can be read."""
    from mcp.shared.exceptions import MCPError

    tools: dict[str, mcp_types.Tool] = {}
    cursors: list[str | None] = [None]
    while len(cursors) <= MAX_PAGES and len(tools) <= MAX_TOOLS:
        try:
            page = await client.list_tools(cursor=cursors[-1])
        except MCPError as error:
            if not tools:
                raise
            say_once(server, f"a further page of its tools cannot be read: {error.message}")
            break
        for tool in page.tools:
            tools.setdefault(tool.name, tool)
        if page.next_cursor in cursors:
            break
        cursors.append(page.next_cursor)
    else:
        say_once(server, f"it lists more than {MAX_TOOLS} tools or {MAX_PAGES} pages; the rest is "
                 "left out")  # fmt: skip
    return list(tools.values())[:MAX_TOOLS]


def _in_words(error: BaseException) -> str:
    """An error in words; of a group its first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


_lock = threading.Lock()
_running: tuple[int, asyncio.AbstractEventLoop] | None = None
"""The process that made the loop (a fork has none), and the loop."""


def _loop() -> asyncio.AbstractEventLoop:
    """The process's loop, its thread started with the first connection."""
    global _running
    with _lock:
        if _running is None or _running[0] != os.getpid() or _running[1].is_closed():
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=loop.run_forever, name="mcp", daemon=True)
            thread.start()
            atexit.register(_stop, loop, thread, os.getpid())
            _running = (os.getpid(), loop)
        return _running[1]


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread, pid: int) -> None:
    """Leave nothing behind at a regular exit: cancelled connections end their servers."""
    if pid != os.getpid():
        return

    async def cancel_all() -> None:
        pending = asyncio.all_tasks() - {asyncio.current_task()}
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=CLOSE_TIMEOUT_S) if pending else None

    with suppress(Exception):
        asyncio.run_coroutine_threadsafe(cancel_all(), loop).result(CLOSE_TIMEOUT_S + _SLACK_S)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(_SLACK_S)
    if not thread.is_alive():
        loop.close()
