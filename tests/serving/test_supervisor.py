"""The supervisor keeps a serving process alive on a socket that never closes."""

import asyncio
import errno
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice, repeat
from pathlib import Path

import pytest

from clawrl_gym.config import GatewayConfig
from clawrl_gym.core.errors import (
    ConfigError,
    DiskFull,
    StoreError,
    TrainerError,
    lacks_room,
)
from clawrl_gym.serving import supervisor
from clawrl_gym.serving.supervisor import SOCKET_VARIABLE, listen, restart_pauses_s, supervise

ECHO = f"""
import os, socket, sys
sock = socket.socket(fileno=int(os.environ[{SOCKET_VARIABLE!r}]))
while True:
    connection, _ = sock.accept()
    with connection:
        word = connection.recv(100)
        if word == b"die":
            os.kill(os.getpid(), 9)
        if word == b"end":
            sys.exit(0)
        connection.sendall(str(os.getpid()).encode())
"""


async def ask(port: int, word: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(word.encode())
    async with asyncio.timeout(60):
        answer = await reader.read()
    writer.close()
    return answer.decode()


async def test_a_killed_child_is_started_again_and_connections_wait_meanwhile() -> None:
    with listen(GatewayConfig()) as sock:
        port = sock.getsockname()[1]
        running = asyncio.create_task(supervise([sys.executable, "-c", ECHO], sock))
        first = await ask(port, "who")
        with suppress(ConnectionResetError):
            assert await ask(port, "die") == ""
        second = await ask(port, "who")  # nobody accepts yet: it waits in the backlog
        assert first != second
        await ask(port, "end")
        assert await running == 0


def test_a_child_that_dies_again_and_again_is_started_at_longer_and_longer_intervals() -> None:
    assert list(islice(restart_pauses_s(), 6)) == [0.0, 2.0, 4.0, 8.0, 16.0, 30.0]


async def test_only_a_long_life_starts_the_count_of_deaths_afresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deaths at once: the pauses are those of one series, which the test gives no length."""
    begun: list[int] = []

    def pauses_s() -> Iterator[float]:
        begun.append(1)
        return repeat(0.0)

    monkeypatch.setattr(supervisor, "restart_pauses_s", pauses_s)
    lives = tmp_path / "lives"
    script = f"""
import os
with open({str(lives)!r}, "a") as file:
    file.write("x")
os._exit(0 if os.path.getsize({str(lives)!r}) == 3 else 77)
"""
    with listen(GatewayConfig()) as sock:
        assert await supervise([sys.executable, "-S", "-c", script], sock) == 0
    assert lives.read_text() == "xxx"
    assert len(begun) == 1


async def test_a_child_that_ends_on_purpose_is_not_started_again() -> None:
    with listen(GatewayConfig()) as sock:
        assert await supervise([sys.executable, "-c", "raise SystemExit(2)"], sock) == 2


def until_up(told: Path) -> None:
    while not told.exists() or told.read_text() != "up":
        time.sleep(0.02)


async def test_cancelling_has_the_child_close_everything_first(tmp_path: Path) -> None:
    told = tmp_path / "told"
    script = (
        "import signal, time, pathlib, sys\n"
        f"path = pathlib.Path({str(told)!r})\n"
        "def end(*_):\n    path.write_text('closed')\n    sys.exit(130)\n"
        "signal.signal(signal.SIGTERM, end)\npath.write_text('up')\ntime.sleep(60)\n"
    )
    with listen(GatewayConfig()) as sock:
        running = asyncio.create_task(supervise([sys.executable, "-c", script], sock))
        async with asyncio.timeout(60):
            await asyncio.to_thread(until_up, told)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert told.read_text() == "closed"


async def test_a_taken_port_is_told_in_one_line() -> None:
    with listen(GatewayConfig()) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} is taken.*gateway.port"):
            listen(GatewayConfig(port=port))


@pytest.mark.parametrize(
    ("host", "listens_at"),
    [("127.0.0.1", "127.0.0.1"), ("127.0.0.2", "127.0.0.2"), ("localhost", "127.0.0.1")],
)
def test_the_gateway_listens_where_it_shall(host: str, listens_at: str) -> None:
    with listen(GatewayConfig(host=host)) as sock:
        assert sock.getsockname()[0] == listens_at
        with socket.create_connection((listens_at, sock.getsockname()[1]), timeout=5):
            pass


async def test_the_child_does_not_share_the_terminals_signals() -> None:
    script = "import os, sys; sys.exit(0 if os.getsid(0) == os.getpid() else 1)"
    with listen(GatewayConfig()) as sock:
        assert await supervise([sys.executable, "-c", script], sock) == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=10m", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.root
def test_serving_without_room_on_its_disk_is_begun_again(small_disk: Path) -> None:
    with listen(GatewayConfig()) as sock:
        done = subprocess.run(
            [sys.executable, "-m", "clawrl_gym.serve", f"run.dir={small_disk}/run", "ui=line"],
            env=os.environ | {SOCKET_VARIABLE: str(sock.fileno())},
            pass_fds=(sock.fileno(),),
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == supervisor.NO_ROOM, done.stderr
    assert done.returncode not in supervisor._FINAL
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert "MB of free disk" in line


def test_what_came_of_a_full_disk_is_known_however_it_was_wrapped() -> None:
    words = "the learner failed: I/O error: No space left on device (os error 28)"
    wrapped = StoreError("the log cannot be written")
    wrapped.__cause__ = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for error in (TrainerError(words), wrapped, DiskFull("full")):
        assert lacks_room(error)
        assert lacks_room(ExceptionGroup("several", [ValueError("other"), error]))
    assert not lacks_room(TrainerError("the learner failed: no memory"))
    assert not lacks_room(ExceptionGroup("several", [ValueError("other")]))
