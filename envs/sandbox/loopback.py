"""An agent's way out of a sandbox: a socket on the sandbox's loopback, held outside.

A socket belongs for ever to the network that it was made in. One that is made in a sandbox's
network and handed to this process takes connections from inside and from nowhere else, and nothing
inside can close, replace or look behind it.
"""

from __future__ import annotations

import os
import socket
import threading

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox import kernel

_BACKLOG = 64


def loopback_listener() -> socket.socket:
    """A listening socket on a free port of this thread's loopback."""
    return socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)


def listener_in(pid: int) -> socket.socket:
    """A listening socket in the network of a process; as root only. Raises SandboxError.

    Made on a thread of its own, which ends in that network.
    """
    made: list[socket.socket] = []
    failures: list[OSError] = []

    def make() -> None:
        try:
            network_fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                kernel.setns(network_fd, kernel.CLONE_NEWNET)
            finally:
                os.close(network_fd)
            made.append(loopback_listener())
        except OSError as error:
            failures.append(error)

    thread = threading.Thread(target=make, name="sandbox-listener")
    thread.start()
    thread.join()
    if not made:
        raise SandboxError(f"no socket in the sandbox's network: {failures[0]}") from failures[0]
    return made[0]
