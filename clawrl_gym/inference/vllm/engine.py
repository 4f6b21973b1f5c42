"""VllmEngine: a vLLM on this machine, and the swaps of its weights."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from clawrl_gym.config import PolicyConfig
from clawrl_gym.inference.capabilities import EngineCapabilities
from clawrl_gym.inference.device import ConfiguredDevice, Device
from clawrl_gym.inference.engine import Connection, Engine, EngineSetup
from clawrl_gym.inference.interface import MODEL_NAME
from clawrl_gym.inference.vllm.adapter_load import AdapterLoad
from clawrl_gym.inference.vllm.build import vllm_device
from clawrl_gym.inference.vllm.client import PolicyClient
from clawrl_gym.inference.vllm.launch import ADAPTER_RANKS, compile_cache
from clawrl_gym.inference.vllm.publisher import WeightPublisher
from clawrl_gym.inference.vllm.servable import architecture_problems, parser_problems
from clawrl_gym.inference.vllm.server import PolicyServer
from clawrl_gym.inference.weights.adapters import Adapter, Adapters
from clawrl_gym.inference.weights.serving_folder import Take


class VllmEngine(Engine):
    """See `Engine`."""

    label = "vLLM"
    capabilities = EngineCapabilities(
        token_ids=True, logprobs=True, weights=True, adapter_ranks=ADAPTER_RANKS, probe=True,
        tools=True, pictures=True, nodes=True, compiles=True,
    )  # fmt: skip

    def __init__(
        self, setup: EngineSetup, make: Callable[..., PolicyServer] = PolicyServer
    ) -> None:
        assert setup.model is not None  # it loads one
        self._setup = setup
        self.server = make(
            setup.config,
            setup.model,
            setup.folder,
            setup.log,
            setup.on_phase,
            gpu=setup.gpu,
            host=setup.host,
            key=setup.key,
            adapter=setup.adapter,
            adapters=setup.adapters,
        )
        self._publisher = WeightPublisher(self.server, hold=setup.hold)
        self._adapter_load = AdapterLoad(self.server)

    @classmethod
    def problems(cls, config: PolicyConfig, model: Path | None) -> Iterator[str]:
        if model is not None:
            yield from architecture_problems(model)
        yield from parser_problems(config)

    @classmethod
    def device(cls, configured: ConfiguredDevice) -> Device:
        return vllm_device(configured)

    @classmethod
    def has_compiled(cls) -> bool:
        return any(compile_cache().glob("torch_compile_cache/*"))

    @property
    def alive(self) -> bool:
        return self.server.alive

    @property
    def secrets(self) -> Sequence[str]:
        return (self.server.key,)

    @property
    def base_url(self) -> str:
        return self.server.base_url

    def reserve(self) -> None:
        self.server.reserve()

    def connect(self, connection: Connection) -> PolicyClient:
        server, setup = self.server, self._setup
        return _client(
            setup.config, lambda: server.base_url, server.key, connection, setup.adapters
        )

    @classmethod
    def client_at(
        cls, config: PolicyConfig, base_url: Callable[[], str], key: str, connection: Connection
    ) -> PolicyClient:
        return _client(config, base_url, key, connection)

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
        return await self._publisher.switch(version)

    async def settle(self) -> None:
        await self._publisher.settle()

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


def _client(
    config: PolicyConfig,
    base_url: Callable[[], str],
    key: str,
    connection: Connection,
    adapters: Adapters | None = None,
) -> PolicyClient:
    return PolicyClient(
        base_url,
        key,
        MODEL_NAME,
        config.request_timeout_s,
        connection.max_connections,
        always_parse=config.reasoning_parser is not None,
        unspoken=connection.unspoken,
        with_pictures=connection.with_pictures,
        adapters=adapters,
    )
