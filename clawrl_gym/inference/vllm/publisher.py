"""WeightPublisher: a new weight version into the running server, between two tokens.

Requests in flight wait and resume; none is refused. Tokens before and after carry their own
version, and each is drawn from these weights alone: what older ones have read of a reply is read
again. When new weights cannot be loaded, the old ones are put back before requests resume, and the
error is raised. Whatever happens, the server is resumed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol

from clawrl_gym.core.errors import PolicyError, PolicyUnavailable
from clawrl_gym.core.processes.pauses import growing_pauses_s
from clawrl_gym.inference.vllm.client import PolicyClient
from clawrl_gym.inference.weights.serving_folder import ServingFolder

_ATTEMPTS = 3
_RESUME_ATTEMPTS = 5
RECOVERY_S = 300.0


class PublishTarget(Protocol):
    """The part of the server that a swap needs."""

    @property
    def base_url(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def model_name(self) -> str: ...
    @property
    def folder(self) -> ServingFolder: ...
    @property
    def changing(self) -> asyncio.Lock: ...
    @property
    def alive(self) -> bool: ...


async def until_taken(
    server: PublishTarget,
    client: PolicyClient,
    take: Callable[[], Awaitable[float]],
    recovery_s: float = RECOVERY_S,
) -> float:
    """Have a server take what is current by `take`; what that returns.

    0 from a server that died: it does so by itself when it is started again. One that is away for
    a moment is asked again once it is back.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        if not server.alive:
            return 0.0
        try:
            return await take()
        except PolicyError as error:
            refused = not isinstance(error, PolicyUnavailable) and await client.healthy()
            if refused or attempt == _ATTEMPTS:
                raise
            await _until_healthy(server, client, recovery_s)
    raise AssertionError("unreachable")


async def _until_healthy(server: PublishTarget, client: PolicyClient, limit_s: float) -> None:
    deadline_s = time.monotonic() + limit_s
    while server.alive and not await client.healthy():
        if time.monotonic() > deadline_s:
            return
        await asyncio.sleep(0.5)


class WeightPublisher:
    """Publishes full weights. Publications are queued, never interleaved."""

    def __init__(
        self,
        server: PublishTarget,
        *,
        hold: Callable[[], AbstractContextManager[None]] = nullcontext,
        timeout_s: float = 60.0,
        recovery_s: float = RECOVERY_S,
    ) -> None:
        """`hold` keeps new requests away from a server that is paused, which shortens the pause;
        `timeout_s` is of each call; `recovery_s` how long a server may take to come back."""
        self._server = server
        self._hold = hold
        self._folder = server.folder
        self._timeout_s = timeout_s
        self._recovery_s = recovery_s
        self._lock = asyncio.Lock()
        self._is_between = False
        """True while the loaded weights are not those of the name: nothing may be sampled."""

    async def publish(self, version: int, weights: Path) -> float:
        """Serve `weights` (a safetensors file, or a folder of shards) as `version`.

        Returns the seconds for which requests were paused. The file is copied: it may be
        overwritten afterwards. A caller that is cancelled leaves a swap that completes.
        """
        async with self._lock:
            await asyncio.to_thread(self._folder.stage, version, weights)
            return await asyncio.shield(asyncio.ensure_future(self._publish(version, settles=True)))

    async def switch(self, version: int) -> float:
        """Serve a version whose weights are already staged in the server's folder; those before it
        stay there until `settle`."""
        async with self._lock:
            return await asyncio.shield(asyncio.ensure_future(self._publish(version)))

    async def settle(self) -> None:
        """Make the current version final: nothing else has to be kept."""
        async with self._lock:
            await asyncio.to_thread(self._folder.settle)

    async def _publish(self, version: int, *, settles: bool = False) -> float:
        server = self._server
        # connections of its own: a swap must not queue behind the requests that it pauses
        client = PolicyClient(server.base_url, server.key, server.model_name, self._timeout_s, 2)
        try:
            async with server.changing:
                previous = self._folder.version
                self._folder.switch(version)
                try:
                    paused_s = await self._load(client, version)
                except PolicyError as error:
                    await self._put_back(client, previous, version, error)
                    raise
                finally:  # the last resort
                    if self._is_between:
                        self._is_between = False
                        if server.alive:
                            await self._resume(client)
        finally:
            await client.close()
        if settles:
            await asyncio.to_thread(self._folder.settle)
        return paused_s

    async def _load(self, client: PolicyClient, version: int) -> float:
        """Load what is current."""
        return await until_taken(
            self._server, client, lambda: self._load_once(client, version), self._recovery_s
        )

    async def _load_once(self, client: PolicyClient, version: int) -> float:
        with self._hold():
            started_s = time.monotonic()
            try:
                await client.pause(self._timeout_s)
                await client.drop_cache(self._timeout_s)
                self._is_between = True
                await client.reload_weights(self._timeout_s)
                await client.set_version(version, self._timeout_s)
                self._is_between = False
            finally:  # else requests wait for another attempt, or for the old weights
                if not self._is_between:
                    await self._resume(client)
            return time.monotonic() - started_s

    async def _resume(self, client: PolicyClient) -> None:
        """Resume, again and again: a server that stays paused would hold every request."""
        pauses_s = growing_pauses_s(0.1, 1.0)
        for attempt in range(1, _RESUME_ATTEMPTS + 1):
            try:
                return await client.resume(self._timeout_s)
            except PolicyError:
                if attempt == _RESUME_ATTEMPTS:
                    raise
                await asyncio.sleep(next(pauses_s))

    async def _put_back(
        self, client: PolicyClient, previous: int, version: int, error: PolicyError
    ) -> None:
        self._folder.switch(previous)
        await asyncio.to_thread(self._folder.discard, version)
        if not self._server.alive:
            return
        try:
            await self._load_once(client, previous)
        except PolicyError as second:
            raise PolicyError(
                f"the weights of version {version} could not be loaded ({error}), "
                f"nor those of version {previous} put back ({second}): restart the server"
            ) from error
