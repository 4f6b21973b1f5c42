"""OpenAiEngine: a server of the OpenAI API that somebody else runs, at `policy.options.base_url`.

It serves what it has: no ids in, no weights in, no versions. So it is good to evaluate and to serve
without learning; turns that it answered are stored, and never trained on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

from clawrl_gym.config import EndpointConfig, PolicyConfig
from clawrl_gym.core.reach import silence
from clawrl_gym.inference.capabilities import EngineCapabilities
from clawrl_gym.inference.engine import Connection, Engine, EngineSetup
from clawrl_gym.inference.openai.client import OpenAiClient


class OpenAiEngine(Engine):
    """See `Engine`."""

    label = "openai"
    capabilities = EngineCapabilities(logprobs=True, tools=True, model=False)

    class Options(EndpointConfig):
        """`policy.options`."""

        base_url: str
        """Its address with /v1, such as http://127.0.0.1:8000/v1."""
        logprobs: bool = True
        """Whether it is asked for log-probs; false for servers that refuse to be asked."""

    def __init__(self, setup: EngineSetup, options: Options) -> None:
        self._setup = setup
        self._options = options
        self._is_up = False
        self._ended = asyncio.Event()

    @classmethod
    def problems(cls, config: PolicyConfig, model: Path | None) -> Iterator[str]:
        yield from silence("policy.options.base_url", str(config.options.get("base_url")))
        if config.servers > 1:
            yield (
                f"got policy.servers={config.servers} with policy.engine={config.engine}, expected "
                "policy.servers=1: it is one address, whatever is behind it"
            )

    @property
    def alive(self) -> bool:
        return self._is_up

    @property
    def secrets(self) -> Sequence[str]:
        return () if self._options.key == "none" else (self._options.key,)

    def connect(self, connection: Connection) -> OpenAiClient:
        return OpenAiClient(
            self._options,
            self._setup.config.request_timeout_s,
            connection.max_connections,
            logprobs=self._options.logprobs,
        )

    async def start(self, version: int, weights: Path | None) -> None:
        """Ask it what it has. Raises PolicyError where nobody answers, or the key is refused."""
        self._ended.clear()
        client = self.connect(Connection(1))
        try:
            names = await client.models()
        finally:
            await client.close()
        if names and self._options.model not in names:
            listed = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
            self._setup.on_phase(
                f"{self._options.base_url} does not list policy.options.model="
                f"{self._options.model!r}; it lists {listed}"
            )
        self._is_up = True
        self._setup.on_phase("ready")

    async def stop(self) -> None:
        """The server is somebody else's."""
        self._is_up = False
        self._ended.set()

    async def watch(self) -> None:
        """Requests wait while it does not answer; nobody here can start it."""
        await self._ended.wait()
