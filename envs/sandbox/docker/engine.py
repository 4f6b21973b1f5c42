"""This process's client of the Docker engine."""

from __future__ import annotations

import functools
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from clawrl_gym.core.errors import EnvError, SandboxError

if TYPE_CHECKING:
    import docker

_CALL_S = 60.0
"""For any one call; starting a container on a busy engine takes seconds."""
_KNOCK_S = 10.0
_OLDEST_API = (1, 41)
CURE = (
    "start one (apt-get install -y docker.io && systemctl start docker; without systemd, as root:"
    " docker/engine.sh start .docker), or set DOCKER_HOST to one that runs. Without Docker the"
    " terminal and toolcall environments and the SWE corpus work with sandbox=bubblewrap"
)
_lock = threading.Lock()
_clients: dict[int, docker.DockerClient] = {}


def engine() -> docker.DockerClient:
    """The client, made when first asked for (again in a forked child); safe in many threads.

    Raises SandboxError with the cure where the package or the engine is missing.
    """
    with _lock:
        client = _clients.get(os.getpid())
        if client is None:
            _clients.clear()  # those of the parent: its connections are not ours to use
            client = _clients[os.getpid()] = _connect()
        return client


def _connect() -> docker.DockerClient:
    try:
        import docker
        from docker.errors import DockerException
    except ImportError as error:
        raise SandboxError(
            "Docker sandboxes need the package docker: pip install 'clawrl-gym[swe]'"
        ) from error
    address = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    try:
        _knock(address)
        client = docker.from_env(timeout=_CALL_S, max_pool_size=64)
    except (DockerException, OSError, ValueError) as error:
        raise SandboxError(f"no Docker engine answers at {address}: {error}; {CURE}") from error
    version = str(client.api.api_version)
    if tuple(int(part) for part in version.split(".")) < _OLDEST_API:
        client.close()
        oldest = ".".join(map(str, _OLDEST_API))
        raise SandboxError(
            f"the Docker engine at {address} speaks API {version}, expected {oldest}"
        )
    return client


def _knock(address: str) -> None:
    """Raises OSError where nobody listens; the client itself would leave a socket open."""
    if address.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(_KNOCK_S)
            probe.connect(address.removeprefix("unix://"))


@functools.cache
def _engine_errors() -> tuple[type[Exception], ...]:
    import requests
    from docker.errors import DockerException

    return DockerException, requests.RequestException, OSError


@contextmanager
def engine_call(operation: str) -> Iterator[None]:
    """The border to the engine: what it or the way to it says goes wrong is a SandboxError."""
    try:
        yield
    except EnvError:
        raise
    except _engine_errors() as error:
        raise SandboxError(f"{operation}: {error_text(error)}") from error


def error_text(error: Exception) -> str:
    """The engine's own words, without the address of the call."""
    return str(getattr(error, "explanation", None) or error)
