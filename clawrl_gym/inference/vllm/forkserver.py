"""ForkServer: a process that has imported vLLM, and forks a server whenever one is needed.

Importing takes most of a start: a server that died comes back in a fraction of the time. What is
imported is shared between the fork server and its servers; when it dies, they die with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from clawrl_gym.inference.vllm.process import FORKSERVER_VARIABLE


class ServerProcess:
    """One server: forked, or about to be."""

    def __init__(
        self, fork_server: asyncio.subprocess.Process, reader: asyncio.StreamReader
    ) -> None:
        self._fork_server = fork_server
        self._forked: int | None = None
        self.returncode: int | None = None
        self._living = asyncio.ensure_future(self._live(reader))

    @property
    def pid(self) -> int:
        """The server's pid and process group; the fork server's while that still imports."""
        return self._forked or self._fork_server.pid

    @property
    def forked(self) -> bool:
        return self._forked is not None

    async def wait(self) -> int:
        """The exit code, negative for a signal. May be cancelled and called again."""
        return await asyncio.shield(self._living)

    async def _live(self, reader: asyncio.StreamReader) -> int:
        """Read the server's pid, then its exit code; else the fork server itself has died."""
        try:
            self._forked = int(await reader.readline())
            self.returncode = int(await reader.readline())
        except (ValueError, OSError):
            self.returncode = await self._fork_server.wait()
        return self.returncode


class ForkServer:
    """One process with imports done, for servers that are started in the same way."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(
        cls, argv: Sequence[str], environment: Mapping[str, str], output: BinaryIO, folder: Path
    ) -> ForkServer:
        """Start it in a folder, from a thread that lives as long as it shall."""
        parent_socket, child_socket = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=parent_socket)
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**environment, FORKSERVER_VARIABLE: str(child_socket.fileno())},
                pass_fds=(child_socket.fileno(),),
                start_new_session=True,
                cwd=folder,
            )
        except BaseException:
            writer.close()
            raise
        finally:
            child_socket.close()
        return cls(process, reader, writer)

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def server(self) -> ServerProcess:
        """Have it fork a server, as soon as it has imported what it needs."""
        with contextlib.suppress(OSError):  # it has died: the server will say so
            self._writer.write(b"\n")
            await self._writer.drain()
        return ServerProcess(self._process, self._reader)

    async def close(self) -> None:
        """End it, and a server that is still its own; idempotent."""
        self._writer.close()
        signal_group(self._process.pid, signal.SIGKILL)
        await self._process.wait()


def signal_group(group: int, number: signal.Signals) -> None:
    """Send a signal to a process group, if there is one."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)
