"""The fork server with a server that imports nothing: forking, telling, dying together."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from clawrl_gym.inference.vllm.forkserver import ForkServer, ServerProcess, signal_group
from tests.support.waiting import until

CHILD = """
import os, socket, sys, time
from clawrl_gym.core.processes.descendants import forks_die_with_parent
from clawrl_gym.inference.vllm.process import FORKSERVER_VARIABLE, forked_for
if sys.argv[1] == "broken":
    sys.exit(7)
forks_die_with_parent()
if forked_for(socket.socket(fileno=int(os.environ[FORKSERVER_VARIABLE]))):
    print("serving", flush=True)
    if sys.argv[1] == "ends":
        sys.exit(3)
    time.sleep(60)
"""


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[list[ForkServer]]:
    fork_servers: list[ForkServer] = []
    yield fork_servers
    for fork_server in fork_servers:
        await fork_server.close()


async def open_fork_server(
    opened: list[ForkServer], folder: Path, how: str = "serves"
) -> ForkServer:
    with (folder / "log").open("ab") as output:
        fork_server = await ForkServer.open(
            [sys.executable, "-c", CHILD, how], os.environ, output, folder
        )
    opened.append(fork_server)
    return fork_server


async def forked(server: ServerProcess) -> int:
    await until(lambda: server.forked)
    return server.pid


async def gone(pid: int) -> None:
    await until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie")


async def test_servers_come_one_after_the_other_from_one_fork_server(
    opened: list[ForkServer], tmp_path: Path
) -> None:
    fork_server = await open_fork_server(opened, tmp_path)
    server = await fork_server.server()
    assert not server.forked
    before = server.pid
    first = await forked(server)
    assert first != before
    assert os.getpgid(first) == first
    assert server.returncode is None
    signal_group(first, signal.SIGKILL)
    assert await server.wait() == server.returncode == -signal.SIGKILL
    again = await fork_server.server()
    second = await forked(again)
    assert second not in (first, before)
    assert psutil.Process(second).ppid() == psutil.Process(before).pid
    assert fork_server.alive


async def test_a_server_that_ends_tells_its_exit_code(
    opened: list[ForkServer], tmp_path: Path
) -> None:
    fork_server = await open_fork_server(opened, tmp_path, "ends")
    assert await (await fork_server.server()).wait() == 3
    assert await (await fork_server.server()).wait() == 3
    assert (tmp_path / "log").read_text() == "serving\n" * 2


async def test_waiting_may_be_given_up_and_begun_again(
    opened: list[ForkServer], tmp_path: Path
) -> None:
    server = await (await open_fork_server(opened, tmp_path)).server()
    pid = await forked(server)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(server.wait(), 0.01)
    signal_group(pid, signal.SIGTERM)
    assert await server.wait() == -signal.SIGTERM


async def test_a_server_dies_with_its_fork_server(opened: list[ForkServer], tmp_path: Path) -> None:
    fork_server = await open_fork_server(opened, tmp_path)
    server = await fork_server.server()
    nurse = server.pid
    pid = await forked(server)
    os.kill(nurse, signal.SIGKILL)
    assert await server.wait() == -signal.SIGKILL
    await gone(pid)
    assert not fork_server.alive
    assert await (await fork_server.server()).wait() == -signal.SIGKILL


async def test_closing_it_ends_its_server(opened: list[ForkServer], tmp_path: Path) -> None:
    fork_server = await open_fork_server(opened, tmp_path)
    server = await fork_server.server()
    pid = await forked(server)
    await fork_server.close()
    await fork_server.close()
    await gone(pid)
    assert server.returncode is not None or await server.wait() is not None


async def test_a_nursery_that_cannot_import_is_a_server_that_ended(
    opened: list[ForkServer], tmp_path: Path
) -> None:
    fork_server = await open_fork_server(opened, tmp_path, "broken")
    assert await (await fork_server.server()).wait() == 7
