"""An engine's process on a node, and its way to get chunks of files: Ray's object store."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from clawrl_gym.cluster.actors import last_line
from clawrl_gym.cluster.placement import EngineNeeds
from clawrl_gym.config import PolicyConfig
from clawrl_gym.core.errors import ClawError, PolicyError
from clawrl_gym.core.files.transfer import Handle
from clawrl_gym.inference.engine_classes import make_engine
from clawrl_gym.inference.engine_host import EngineHost, MakeEngine

T = TypeVar("T")
_FETCH_S = 300.0


class EngineActor:
    """An EngineHost in a process of a node, with an event loop that lives as long as the process:
    what an engine starts may die with the thread that started it."""

    def __init__(self, config: PolicyConfig, key: str, make: MakeEngine, cache: str | None) -> None:
        import ray.util

        self._address = str(ray.util.get_node_ip_address())
        asyncio.set_event_loop_policy(None)  # Ray's choice, uvloop, starts no processes in threads
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="engine", daemon=True).start()
        self._host = self._run(
            self._make_host(config, key, make, None if cache is None else Path(cache))
        )

    def place(self) -> tuple[str, str]:
        """The node's address, which is the engine's too, and its id."""
        import ray

        return self._address, ray.get_runtime_context().get_node_id()

    def call(self, method: str, *arguments: object) -> object:
        return self._run(getattr(self._host, method)(*arguments))

    async def _make_host(
        self, config: PolicyConfig, key: str, make: MakeEngine, cache: Path | None
    ) -> EngineHost:
        return EngineHost(config, key, self._address, fetch_chunk, make=make, cache=cache)

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


class RayProcess:
    """An EngineActor, from the driver's side."""

    def __init__(
        self,
        config: PolicyConfig,
        key: str,
        needs: EngineNeeds,
        *,
        make: MakeEngine = make_engine,
        cache: str | None = None,
    ) -> None:
        import ray

        actor = ray.remote(EngineActor).options(
            num_cpus=0,
            num_gpus=needs.gpus,
            resources=needs.resources,
            max_concurrency=8,
            max_restarts=0,
            scheduling_strategy="SPREAD",
        )
        self._actor = actor.remote(config, key, make, cache)

    async def place(self) -> tuple[str, str]:
        return await _answer(self._actor.place.remote())

    async def call(self, method: str, *arguments: object) -> object:
        return await _answer(self._actor.call.remote(method, *arguments))

    def kill(self) -> None:
        import ray

        ray.kill(self._actor)


class Lost(ClawError):
    """An engine's process ended, or its node."""


async def _answer(reference: Awaitable[T]) -> T:
    """An actor's answer; its own errors as they were raised, its end as Lost."""
    import ray.exceptions

    try:
        return await reference
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ClawError):
            raise error.cause from None
        raise PolicyError(last_line(error)) from error
    except ray.exceptions.RayError as error:
        raise Lost(last_line(error)) from error


def put_chunk(chunk: bytes) -> Handle:
    """Into Ray's object store."""
    import numpy as np
    import ray

    handle: Handle = ray.put(np.frombuffer(chunk, np.uint8))  # read where it lies, not copied
    return handle


def fetch_chunk(handle: Handle) -> memoryview:
    """Out of Ray's object store, from whichever node has it."""
    import ray

    return memoryview(ray.get(handle, timeout=_FETCH_S))
