"""One real server that the tests of a module share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import cast

import psutil

from clawrl_gym.config import PolicyConfig
from clawrl_gym.inference.servers import PolicyServers
from clawrl_gym.inference.vllm.client import PolicyClient
from clawrl_gym.inference.vllm.engine import VllmEngine
from clawrl_gym.inference.vllm.server import PolicyServer

CONFIG = PolicyConfig(max_model_len=1024, kv_cache_gb=0.125, start_timeout_s=240)


def processes_of(servers: PolicyServers) -> list[PolicyServer]:
    """Processes of its engines, which are vLLMs of this machine."""
    return [cast(VllmEngine, engine).server for engine in servers.engines]


class Served:
    """A server with what its tests share."""

    def __init__(self, model: Path, folder: Path, config: PolicyConfig = CONFIG) -> None:
        self.phases: list[str] = []
        self.model = model
        self.folder = folder
        self.config = config
        self.server = PolicyServer(
            config, model, folder / "serving", folder / "vllm.log", self.phases.append
        )
        self.version = 0

    def client(self) -> PolicyClient:
        server = self.server
        return PolicyClient(
            server.base_url,
            server.key,
            server.model_name,
            60.0,
            256,
            always_parse=self.config.reasoning_parser is not None,
        )


def tree(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


async def until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110
        await asyncio.sleep(0.05)
