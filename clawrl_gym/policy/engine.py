"""Engine: one vLLM of a run, here or on another machine, that serves what is current."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from clawrl_gym.policy.adapters import Adapter
from clawrl_gym.policy.serving_folder import Take
from clawrl_gym.policy.vllm.adapter_load import AdapterLoad
from clawrl_gym.policy.vllm.server import PolicyServer
from clawrl_gym.policy.vllm.swap import WeightSwap

Hold = Callable[[], AbstractContextManager[None]]
"""Keeps new requests away while it is entered."""


class Engine(Protocol):
    """What a run needs of each of its engines. Swaps of one are never interleaved."""

    @property
    def model_name(self) -> str: ...

    @property
    def key(self) -> str: ...

    @property
    def base_url(self) -> str:
        """Where it answers now. Raises PolicyUnavailable while that is nowhere."""
        ...

    @property
    def alive(self) -> bool: ...

    def reserve(self) -> None:
        """Take the port if it is on this machine. Raises ConfigError when it is taken."""
        ...

    def when_lost(self, close: Callable[[], Awaitable[None]]) -> None:
        """Have connections closed when the engine's machine is gone: they would wait for long."""
        ...

    async def start(self, version: int, weights: Path | None) -> None: ...

    async def stop(self) -> None: ...

    async def watch(self) -> None:
        """Start it again whenever it dies. Raises what it dies of when that is too often."""
        ...

    async def stage(self, version: int, weights: Path, take: Take) -> None:
        """Take weights of this machine in, not yet served."""
        ...

    def of_version(self, version: int) -> Path:
        """Where weights that it has taken in lie on this machine."""
        ...

    async def switch(self, version: int) -> float:
        """Serve staged weights; the seconds for which requests were paused. One that is down takes
        them when it comes back. The version before stays at hand, to be switched back to."""
        ...

    async def settle(self) -> None:
        """What is served stays so: older weights may go."""
        ...

    async def renew(self, version: int, weights: Path) -> None:
        """Start it anew with weights that it did not take."""
        ...

    async def load_adapter(self, adapter: Adapter) -> None:
        """Have an adapter beside the others. One that is down loads it when it comes back.

        Raises PolicyError when it does not take it.
        """
        ...

    async def unload_adapter(self, adapter: Adapter) -> None:
        """Forget one that answers nobody; harmless when it is not there."""
        ...


class LocalEngine:
    """A server on this machine, and its swaps."""

    def __init__(self, server: PolicyServer, hold: Hold) -> None:
        self.server = server
        self._swap = WeightSwap(server, hold=hold)
        self._adapter_load = AdapterLoad(server)

    @property
    def model_name(self) -> str:
        return self.server.model_name

    @property
    def key(self) -> str:
        return self.server.key

    @property
    def base_url(self) -> str:
        return self.server.base_url

    @property
    def alive(self) -> bool:
        return self.server.alive

    def reserve(self) -> None:
        self.server.reserve()

    def when_lost(self, close: Callable[[], Awaitable[None]]) -> None:
        """The system ends its connections."""

    async def start(self, version: int, weights: Path | None) -> None:
        await self.server.start(version, weights)

    async def stop(self) -> None:
        await self.server.stop()

    async def watch(self) -> None:
        await self.server.watch()

    async def stage(self, version: int, weights: Path, take: Take) -> None:
        await asyncio.to_thread(self.server.folder.stage, version, weights, take)

    def of_version(self, version: int) -> Path:
        return self.server.folder.of_version(version)

    async def switch(self, version: int) -> float:
        return await self._swap.switch(version)

    async def settle(self) -> None:
        await self._swap.settle()

    async def renew(self, version: int, weights: Path) -> None:
        server = self.server
        async with server.changing:
            await asyncio.to_thread(server.folder.stage, version, weights, "share")
            server.folder.switch(version)
            server.kill()

    async def load_adapter(self, adapter: Adapter) -> None:
        await self._adapter_load.load(adapter)

    async def unload_adapter(self, adapter: Adapter) -> None:
        await self._adapter_load.unload(adapter)
