"""PolicyServers: all engines of a run, which serve the same weights behind one gateway.

Each has a folder and a port of its own, is watched for itself and comes back with what is
current. A swap reaches all of them at once. With several GPUs they are spread over them; on a
cluster each is an engine on some node.
"""

from __future__ import annotations

import asyncio
import math
import shutil
from collections import defaultdict
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from clawrl_gym.config import AdapterConfig, PolicyConfig
from clawrl_gym.core.errors import ConfigError, NotServed, PolicyError
from clawrl_gym.core.ownership import OWNER
from clawrl_gym.inference.device import visible_gpus
from clawrl_gym.inference.engine import (
    Connection,
    Engine,
    EngineSetup,
    Hold,
    OnPhase,
    WithPictures,
)
from clawrl_gym.inference.engine_classes import engine_class, make_engine
from clawrl_gym.inference.fleet import Fleet
from clawrl_gym.inference.interface import MODEL_NAME, EngineClient
from clawrl_gym.inference.weights.adapters import Adapter, Adapters
from clawrl_gym.inference.weights.serving_folder import Take

_AGAIN_S = 300.0
"""Seconds until a server that was given up is tried again, while others serve."""
_ROOM_S = 600.0
"""Seconds that a publication waits for the requests of older versions to end."""
_LINGER_S = 30.0
"""Seconds that an adapter's files outlive its last request: an engine may be just ending it."""

T = TypeVar("T")
MakeEngine = Callable[[EngineSetup], Engine]
"""Makes an engine, which is started later."""
Verify = Callable[[EngineClient], Awaitable[None]]
"""Looks whether an engine has what was published. Raises NotServed when it has not."""


class PolicyServers:
    """The run's engines: as many servers as `config.servers` says."""

    model_name = MODEL_NAME

    def __init__(
        self,
        config: PolicyConfig,
        model_dir: Path | str | None,
        serving_dir: Path,
        logs_dir: Path,
        on_phase: OnPhase,
        hold: Hold = nullcontext,
        *,
        make: MakeEngine = make_engine,
        adapter: AdapterConfig | None = None,
        gpus: Sequence[str] | None = None,
    ) -> None:
        """`model_dir` None: the engine loads no model of ours. `hold` keeps new requests away; it
        is entered while any server is paused.

        `make`: what engines are made by; of themselves they are those of `config.engine`.
        `adapter`: the form of the adapters that are published; None: weights are.
        `gpus`: those of this machine that are theirs; None: all.
        """
        self.adapters = None if adapter is None else Adapters(serving_dir / "adapters")
        """Adapters that are served; None: weights are."""
        self._publishing_for: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._leaving: set[asyncio.Task[None]] = set()
        if self.adapters is not None:
            self.adapters.when_over(self._leave)
        self._config = config
        self._on_phase = on_phase
        self._hold = hold
        self._holding: AbstractContextManager[None] | None = None
        self._paused = 0
        self._version = 0
        self._publishing = asyncio.Lock()
        self._clients: list[EngineClient] = []
        self._gpus = [] if config.placement == "nodes" else _gpus_of(gpus)
        is_bound = config.servers > 1 or gpus is not None
        """Whether each server sees one GPU alone."""
        name = engine_class(config).label.lower()
        self.engines: tuple[Engine, ...] = tuple(
            make(
                EngineSetup(
                    _config_of(config, at, len(self._gpus)),
                    None if model_dir is None else Path(model_dir),
                    serving_dir / str(at),
                    logs_dir / f"{name}{'' if at == 0 else f'-{at}'}.log",
                    self._phase_of(at),
                    self._while_paused,
                    gpu=self._gpus[at % len(self._gpus)] if is_bound and self._gpus else None,
                    adapter=adapter,
                    adapters=self.adapters,
                )
            )
            for at in range(config.servers)
        )

    @property
    def version(self) -> int:
        """The newest version that is served."""
        return self._version

    @property
    def secrets(self) -> list[str]:
        """Keys of all engines, which no log may show."""
        return [secret for engine in self.engines for secret in engine.secrets]

    def hold_with(self, hold: Hold) -> None:
        """Keep new requests away by `hold` from now on."""
        self._hold = hold

    def fleet(
        self,
        max_connections: int,
        *,
        with_pictures: WithPictures | None = None,
        unspoken: Sequence[int] = (),
    ) -> Fleet[EngineClient]:
        """Clients of all servers, which need not have been started yet; `with_pictures` and
        `unspoken` as they have them.

        Raises ConfigError when a port is taken.
        """
        for engine in self.engines:
            engine.reserve()
        connection = Connection(max_connections, with_pictures, unspoken)
        clients = [engine.connect(connection) for engine in self.engines]
        for engine, client in zip(self.engines, clients, strict=True):
            engine.when_lost(client.close)
        self._clients += clients
        return Fleet(clients)

    async def close_clients(self) -> None:
        """Close the connections of all fleets."""
        for client in self._clients:
            await client.close()

    async def start_adapters(
        self,
        version: int = 0,
        folder: Path | None = None,
        of_users: Mapping[str, tuple[int, Path]] = MappingProxyType({}),
    ) -> None:
        """Serve the model without an adapter as version 0, or with one as `version`, and those of
        users, by name, as their versions; as `start`."""
        assert self.adapters is not None
        if folder is not None:
            self.adapters.promote(await self.adapters.stage(OWNER, version, folder))
        for user, (own_version, own_folder) in of_users.items():
            self.adapters.promote(await self.adapters.stage(user, own_version, own_folder))
        await self.start()
        self._version = version

    async def start(self, version: int = 0, weights: Path | None = None) -> None:
        """Serve the model's own weights, or others, as `version`; returns when all answer.

        Raises ConfigError or PolicyError; what has been started is left to `stop`.
        """
        self._version = version
        if 0 < len(self._gpus) < len(self.engines):
            for engine in self.engines:  # each must see how much memory is left on a shared GPU
                await engine.start(version, weights)
        else:
            await _all([engine.start(version, weights) for engine in self.engines])

    async def stop(self) -> None:
        """End all servers and everything they started; idempotent."""
        for task in self._leaving:
            task.cancel()
        await asyncio.gather(*(engine.stop() for engine in self.engines))

    async def watch(self) -> None:
        """Start servers that died again, until `stop`.

        A server that dies too often is tried again later; the error is raised when no other
        server answers either.
        """
        await _all([self._keep(engine) for engine in self.engines])

    async def publish(
        self, version: int, weights: Path, take: Take = "copy", verify: Verify | None = None
    ) -> float:
        """Serve `weights` as `version` everywhere; the longest pause of a server, in seconds.

        The weights are taken once. PolicyError when no server takes them, NotServed when what one
        serves is not what `verify` expects: all serve the old ones then. A server that alone cannot
        take them is started again with them.
        """
        async with self._publishing:
            previous = self._version
            first, *rest = self.engines
            await first.stage(version, weights, take)
            await asyncio.gather(
                *(engine.stage(version, first.of_version(version), "share") for engine in rest)
            )
            swaps = (engine.switch(version) for engine in self.engines)
            results = await asyncio.gather(*swaps, return_exceptions=True)
            whole = [e for e, r in zip(self.engines, results, strict=True) if isinstance(r, float)]
            failed = [result for result in results if isinstance(result, BaseException)]
            if not whole:
                raise failed[0]
            for engine, result in zip(self.engines, results, strict=True):
                if isinstance(result, BaseException):
                    self._on_phase(
                        f"a server could not take version {version} ({result}): starting it again"
                    )
                    await engine.renew(version, whole[0].of_version(version))
            try:
                await self._verify(verify)
            except NotServed:
                await asyncio.gather(*(engine.switch(previous) for engine in self.engines))
                raise
            finally:
                await asyncio.gather(*(engine.settle() for engine in self.engines))
            self._version = version
            return max(result for result in results if isinstance(result, float))

    async def publish_adapter(
        self,
        version: int,
        folder: Path,
        take: Take = "copy",
        user: str = OWNER,
        verify: Verify | None = None,
    ) -> None:
        """Answer this user's requests that begin from now on with version `version` of their
        adapter, a folder of PEFT; `""` is the run's own, for all who have none.

        Nobody pauses: requests that have begun keep their version. Waits while too many older
        versions have requests. PolicyError when a server does not take it, NotServed when there is
        no room or what one serves is not what `verify` expects: the older version stays.
        """
        adapters = self.adapters
        assert adapters is not None
        async with self._publishing_for[user]:
            await adapters.room(user, _ROOM_S)
            adapter = await adapters.stage(user, version, folder, take)
            try:
                await _all([engine.load_adapter(adapter) for engine in self.engines])
                await self._verify(verify)
            except BaseException:
                adapters.discard(adapter)
                raise
            adapters.promote(adapter)
            if user == OWNER:
                self._version = version

    async def _verify(self, verify: Verify | None) -> None:
        """Check all engines that are there; one that is not takes the current weights by itself."""
        if verify is None:
            return
        for engine in self.engines:
            if not engine.alive:
                continue
            client = engine.connect(Connection(2))
            try:
                await verify(client)
            finally:
                await client.close()

    async def measure(self, ask: Callable[[EngineClient], Awaitable[T]]) -> T | None:
        """The answer of the first engine that is there; None when none is."""
        engine = next((engine for engine in self.engines if engine.alive), None)
        if engine is None:
            return None
        client = engine.connect(Connection(8))
        try:
            return await ask(client)
        finally:
            await client.close()

    def withdraw_adapters(self, user: str) -> None:
        """Answer a user with the run's own adapter; theirs leave with their last requests."""
        assert self.adapters is not None
        self.adapters.withdraw(user)

    def _leave(self, adapter: Adapter) -> None:
        """Remove an adapter that answers nobody any more."""
        task = asyncio.ensure_future(self._forget(adapter))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _forget(self, adapter: Adapter) -> None:
        await asyncio.gather(*(engine.unload_adapter(adapter) for engine in self.engines))
        await asyncio.sleep(_LINGER_S)
        alive = [] if self.adapters is None else self.adapters.alive
        if any(other.folder == adapter.folder for other in alive):
            return  # its number was used again: the files there are another's
        await asyncio.to_thread(shutil.rmtree, adapter.folder, ignore_errors=True)

    async def _keep(self, engine: Engine) -> None:
        while True:
            try:
                return await engine.watch()
            except (PolicyError, ConfigError) as error:
                if not any(sibling.alive for sibling in self.engines):
                    raise
                self._on_phase(f"{error}; the other servers continue")
            await asyncio.sleep(_AGAIN_S)

    @contextmanager
    def _while_paused(self) -> Iterator[None]:
        """Hold once, from the first server that is paused until the last one resumes."""
        self._paused += 1
        if self._paused == 1:
            self._holding = self._hold()
            self._holding.__enter__()
        try:
            yield
        finally:
            self._paused -= 1
            if self._paused == 0 and self._holding is not None:
                self._holding.__exit__(None, None, None)

    def _phase_of(self, at: int) -> Callable[[str], None]:
        if self._config.servers == 1:
            return self._on_phase
        return lambda phase: self._on_phase(f"{phase} (server {at + 1})")


def _gpus_of(gpus: Sequence[str] | None) -> list[str]:
    return list(visible_gpus() if gpus is None else gpus)


async def _all(coroutines: Iterable[Coroutine[None, None, None]]) -> None:
    """All at once; when one fails, its error is raised and the others are cancelled."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _config_of(config: PolicyConfig, at: int, gpus: int) -> PolicyConfig:
    """A server's own: the next port, and its part of a GPU that it shares."""
    sharing = math.ceil(config.servers / max(1, gpus))
    return config.model_copy(
        update={
            "port": config.port and config.port + at,
            "gpu_memory_utilization": config.gpu_memory_utilization / sharing,
        }
    )
