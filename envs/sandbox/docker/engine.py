"""This process's client of the Docker engine."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from clawrl_gym.core.errors import EnvError, SandboxError
from clawrl_gym.core.installation import how_to_install
from clawrl_gym.envs.sandbox.docker.addresses import EngineAddress, cure, find_engine

if TYPE_CHECKING:
    import docker

_CALL_S = 60.0
"""Seconds for any one call; starting a container on a busy engine takes seconds."""
_OLDEST_API = (1, 41)
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
        from docker.errors import DockerException
    except ImportError as error:
        raise SandboxError(
            f"Docker sandboxes need the package docker: {how_to_install('swe')}"
        ) from error
    search = find_engine()
    address = search.address
    if address is None:
        raise SandboxError(search.refusal())
    try:
        client = _client_of(address)
    except (DockerException, OSError, ValueError) as error:
        raise SandboxError(f"no Docker engine answers: {address}: {error}; {cure()}") from error
    version = str(client.api.api_version)
    if tuple(int(part) for part in version.split(".")) < _OLDEST_API:
        client.close()
        oldest = ".".join(map(str, _OLDEST_API))
        raise SandboxError(f"{address} speaks Docker's API {version}, expected {oldest} or newer")
    return client


def _client_of(address: EngineAddress) -> docker.DockerClient:
    import docker

    environment = {**address.environment, "DOCKER_HOST": address.url}
    return docker.DockerClient(
        **docker.utils.kwargs_from_env(environment=environment),
        timeout=_CALL_S,
        max_pool_size=64,
    )


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
