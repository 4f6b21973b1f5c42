"""AdapterLoad: an adapter into a running server, beside those that answer. Nobody pauses."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from clawrl_gym.core.errors import PolicyError
from clawrl_gym.inference.vllm.client import PolicyClient
from clawrl_gym.inference.vllm.publisher import PublishTarget, until_taken
from clawrl_gym.inference.weights.adapters import Adapter


class AdapterLoad:
    """Loads and unloads adapters of one server."""

    def __init__(self, server: PublishTarget, timeout_s: float = 60.0) -> None:
        """`timeout_s` is of each call."""
        self._server = server
        self._timeout_s = timeout_s

    async def load(self, adapter: Adapter) -> None:
        """One that is down loads what is alive when it comes back. Raises PolicyError."""

        async def take() -> float:
            with contextlib.suppress(PolicyError):  # a start, or an attempt, may have it already
                await client.unload_adapter(adapter.name, self._timeout_s)
            folder = str(adapter.folder.absolute())  # the server runs in another one
            await client.load_adapter(adapter.name, folder, self._timeout_s)
            return 0.0

        async with self._client() as client:
            await until_taken(self._server, client, take)

    async def unload(self, adapter: Adapter) -> None:
        """A server that is away has forgotten it."""
        async with self._client() as client:
            with contextlib.suppress(PolicyError):
                if self._server.alive:
                    await client.unload_adapter(adapter.name, self._timeout_s)

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[PolicyClient]:
        """With a connection of its own, which queues behind no requests; no start meanwhile."""
        server = self._server
        client = PolicyClient(server.base_url, server.key, server.model_name, self._timeout_s, 1)
        try:
            async with server.changing:
                yield client
        finally:
            await client.close()
