"""Ports of this machine's own addresses, taken before whoever is to listen there is started."""

from __future__ import annotations

import socket

from clawrl_gym.core.errors import ConfigError

LOOPBACK = "127.0.0.1"
_LAST_PORT = 65535


def reserve_port(port: int, host: str = LOOPBACK) -> socket.socket:
    """A socket bound to a free port on loopback or another own address, `port` itself unless it
    is 0.

    While it is open, no other program is given the port, but an engine can listen there: also after
    a restart. ConfigError when the port is taken, or there is none of this number.
    """
    if port > _LAST_PORT:  # of one of several servers
        raise ConfigError(
            f"policy.port={port} cannot be used: the last port is {_LAST_PORT}, and each server "
            "takes the next one; choose a smaller policy.port, or 0 for free ones"
        )
    probe = socket.socket()
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind((host, port))
    except OSError as error:
        probe.close()
        raise ConfigError(
            f"policy.port={port} cannot be used ({error.strerror}): "
            "another program has it; choose another port, or 0 for a free one"
        ) from error
    return probe
