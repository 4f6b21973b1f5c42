"""Holds a listening socket and keeps the process that serves on it alive.

While that process is down, the kernel accepts connections into the backlog: clients wait and none
is refused. Imports nothing heavy, so that there is nothing here that could die.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence

from clawrl_gym.config import GatewayConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.processes.interrupt import EXIT_CODES, PATIENCE_S, restore_terminal
from clawrl_gym.core.processes.pauses import growing_pauses_s

SOCKET_VARIABLE = "CLAWRL_SERVE_SOCKET"
"""Environment variable with the number of the open socket that the child serves on."""
STOP_S = PATIENCE_S + 0.7
"""Seconds that the child may take to close everything and to end."""
NO_ROOM = 4
"""Exit code of a child whose disk was full: it is started again until there is room."""
_FINAL = (0, 1, 2, *EXIT_CODES.values())
"""Exit codes that the child chose: done, an error, a wrong configuration, a signal."""
_LONGEST_PAUSE_S = 30.0
_HEALTHY_S = 300.0
"""A child that lived so long starts the count of deaths afresh."""


def listen(config: GatewayConfig) -> socket.socket:
    """The gateway's socket. Raises ConfigError when the port is taken."""
    host = "127.0.0.1" if config.host == "localhost" else config.host
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, config.port))
        sock.listen(max(128, config.max_waiting))
    except OSError as error:
        sock.close()
        raise ConfigError(
            f"port {config.port} is taken or cannot be used on {host!r} ({error.strerror}): "
            "give another gateway.port, or 0 for a free one"
        ) from error
    return sock


async def supervise(arguments: Sequence[str], sock: socket.socket) -> int:
    """Run the child until it ends on purpose; returns its exit code.

    A child that is killed or crashes is started again, at once and then after growing pauses.
    Cancelled (Ctrl-C, SIGTERM), it has the child close everything first.
    """
    pauses_s = restart_pauses_s()
    while True:
        started_s = time.monotonic()
        code = await _one_life(arguments, sock)
        if code in _FINAL:
            return code
        if time.monotonic() - started_s > _HEALTHY_S:
            pauses_s = restart_pauses_s()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        if code == NO_ROOM:
            how = "found no room on its disk"
        restore_terminal()
        sys.stderr.write(f"the serving process {how}; starting it again, connections wait\n")
        await asyncio.sleep(next(pauses_s))


def restart_pauses_s() -> Iterator[float]:
    """Before each start after a death: the first comes at once."""
    return itertools.chain([0.0], growing_pauses_s(2.0, _LONGEST_PAUSE_S))


async def _one_life(arguments: Sequence[str], sock: socket.socket) -> int:
    child = await asyncio.create_subprocess_exec(
        *arguments,
        pass_fds=(sock.fileno(),),
        env={**os.environ, SOCKET_VARIABLE: str(sock.fileno())},
        start_new_session=True,  # Ctrl-C reaches this process alone, which passes it on
    )
    try:
        return await child.wait()
    except asyncio.CancelledError:
        await _end(child)
        raise


async def _end(child: asyncio.subprocess.Process) -> None:
    if child.returncode is None:
        child.send_signal(signal.SIGTERM)
    try:
        await asyncio.wait_for(child.wait(), STOP_S)
    except TimeoutError:
        child.kill()
        await child.wait()
