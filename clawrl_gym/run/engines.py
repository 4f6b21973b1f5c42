"""Engines on the nodes of a cluster: each in a Ray actor, watched from the driver.

An engine whose process or node is gone is begun again on a node that has room, with the current
weights; its sessions go to the others meanwhile. With the driver or its node's raylet the actor
ends, and what it started with the actor.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol, cast

from clawrl_gym.cluster.engine_actor import Lost, RayProcess
from clawrl_gym.cluster.placement import EngineNeeds
from clawrl_gym.config import PolicyConfig
from clawrl_gym.core.errors import ClawError, ConfigError, PolicyError, PolicyUnavailable
from clawrl_gym.core.files.log_files import rotate_program_log
from clawrl_gym.core.files.transfer import Transfer
from clawrl_gym.inference.engine import Connection, Engine, EngineSetup, Hold, OnPhase
from clawrl_gym.inference.engine_classes import engine_class
from clawrl_gym.inference.engine_host import News
from clawrl_gym.inference.interface import EngineClient
from clawrl_gym.inference.transfer_store import TransferStore
from clawrl_gym.inference.weights.adapters import Adapter
from clawrl_gym.inference.weights.serving_folder import Take

_PLACING_S = 60.0
"""Seconds that a cluster may take to place an engine, before a message says that it waits."""
_JOINING_S = 300.0
"""Seconds that a lost engine waits for a node that takes it, before that is a failure."""
_CALL_S = 300.0
_SWITCH_S = 90.0
_UNRESPONSIVE_S = 10.0
_FORGIVEN_S = 300.0
"""An engine that was healthy for so long starts the count of deaths afresh."""
_PAUSE_S = 1.0
_REFUSED_PAUSE_S = 5.0
"""After a node that takes no engine: it is the one with room, and would be asked at once again."""
_STOP_S = 10.0


class Process(Protocol):
    """An EngineHost in a process of some node."""

    async def place(self) -> tuple[str, str]:
        """The node's address and its id, once it has one."""
        ...

    async def call(self, method: str, *arguments: object) -> object:
        """Call a method. Raises Lost when the process or the node is gone, and what the host
        raised, a ClawError as it was."""
        ...

    def kill(self) -> None: ...


Spawn = Callable[[PolicyConfig, str, EngineNeeds], Process]
"""Begins a process for an engine with this configuration and key."""
Admit = Callable[[str], Awaitable[None]]
"""Admits a node by its id. Raises ConfigError for one that cannot take an engine."""


async def _anybody(node_id: str) -> None:
    pass


class RemoteEngine(Engine):
    """One engine on some node; the driver's side of it."""

    def __init__(
        self,
        config: PolicyConfig,
        needs: Callable[[], Awaitable[EngineNeeds]],
        transfer_store: TransferStore,
        log: Path,
        on_phase: OnPhase,
        hold: Hold,
        *,
        spawn: Spawn,
        on_node: Callable[[str], None] = lambda _: None,
        admit: Admit = _anybody,
        unresponsive_s: float = _UNRESPONSIVE_S,
        refused_pause_s: float = _REFUSED_PAUSE_S,
    ) -> None:
        """`needs` answers once the cluster is there; `log` is where its own log is kept;
        `on_node` is told the id of each node that it comes to, once `admit` has let it. A node that
        is refused is told once, and another one is waited for. After `unresponsive_s` without a
        word from its node, nobody waits for its answers any more."""
        self.key = secrets.token_urlsafe(32)
        self._config = config.model_copy(update={"port": 0})
        self._needs = needs
        self._transfer_store = transfer_store
        self._log = log
        self._on_phase = on_phase
        self._hold = hold
        self._on_node = on_node
        self._admit = admit
        self._refused: set[str] = set()
        self._refused_pause_s = refused_pause_s
        self._unresponsive_s = unresponsive_s
        self._spawn = spawn
        self._process: Process | None = None
        self._node = "no node yet"
        self._base_url: str | None = None
        self._stopping = False
        self._is_unresponsive = False
        self._staged = -1
        self._served = -1
        self._phases_heard = self._log_bytes = 0
        self._well_since_s = 0.0
        self._close: list[Callable[[], Awaitable[None]]] = []
        self._changing = asyncio.Lock()
        """A start and a swap must not mix."""

    @property
    def base_url(self) -> str:
        if self._base_url is None:
            raise PolicyUnavailable("the engine has not started yet: no node of the cluster has it")
        if self._is_unresponsive:
            raise PolicyUnavailable(f"the node {self._node} has not been heard of for a while")
        return self._base_url

    @property
    def alive(self) -> bool:
        return self._base_url is not None and not self._is_unresponsive

    @property
    def secrets(self) -> Sequence[str]:
        return (self.key,)

    def connect(self, connection: Connection) -> EngineClient:
        kind = engine_class(self._config)
        return kind.client_at(self._config, lambda: self.base_url, self.key, connection)

    def when_lost(self, close: Callable[[], Awaitable[None]]) -> None:
        self._close.append(close)

    async def start(self, version: int, weights: Path | None) -> None:
        await self._transfer_store.open(version, weights)
        self._stopping = False
        try:
            await self._begin(_PLACING_S)
        except Lost as error:
            raise PolicyError(f"the engine's process ended while it started: {error}") from error

    async def stop(self) -> None:
        self._stopping = True
        await self._let_go()

    async def watch(self) -> None:
        failures = 0
        while not self._stopping:
            try:
                if self._process is None:
                    await self._begin(_JOINING_S)
                await self._listen()
            except (Lost, PolicyError, ConfigError) as error:
                if self._stopping:
                    return
                failures = 1 if self._lived_s() > _FORGIVEN_S else failures + 1
                await self._let_go()
                if failures > self._config.max_restarts:
                    raise PolicyError(f"{error}, after {failures - 1} restarts in a row") from error
                self._on_phase(f"{error}; starting another")
                await asyncio.sleep(_PAUSE_S)

    async def stage(self, version: int, weights: Path, take: Take) -> None:
        transfer = await self._transfer_store.stage(version, weights, take)
        if self.alive:
            with contextlib.suppress(Lost, PolicyError):  # `switch` tries again
                await self._give_weights(version, transfer)

    def of_version(self, version: int) -> Path:
        return self._transfer_store.of_version(version)

    async def switch(self, version: int) -> float:
        async with self._changing:
            paused_s = 0.0
            with contextlib.suppress(Lost):  # it takes what is current when it is there again
                if self.alive and self._staged != version:
                    here = self.of_version(version)
                    await self._give_weights(
                        version, await self._transfer_store.stage(version, here, "share")
                    )
                if self.alive:
                    with self._hold():
                        answer = await self._ask("switch", version, limit_s=_SWITCH_S)
                    paused_s, self._served = cast(float, answer), version
            await self._transfer_store.commit(version)
            return paused_s

    async def settle(self) -> None:
        if self.alive:
            with contextlib.suppress(Lost, PolicyError):  # it has room for both until the next
                await self._ask("settle")
        await self._transfer_store.settle()

    async def renew(self, version: int, weights: Path) -> None:
        await self._let_go()

    async def load_adapter(self, adapter: Adapter) -> None:
        raise PolicyError("engines on nodes take merged weights alone: policy.serve=weights")

    async def _give_weights(self, version: int, transfer: Transfer) -> None:
        await self._ask("stage", version, transfer)
        self._staged = version

    async def _begin(self, placing_s: float) -> None:
        """Place it and start it with what is current; it answers then, and has missed nothing."""
        await self._place(placing_s)
        listening = asyncio.create_task(self._listen())
        try:
            await self._give_model()
            version = self._transfer_store.version
            weights = await self._transfer_store.weights()
            url = cast(str, await self._ask("start", version, weights, limit_s=None))
            self._served = version
            await self._catch_up()
            self._base_url, self._well_since_s = url, time.monotonic()
        except BaseException:
            await self._let_go()
            raise
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def _catch_up(self) -> None:
        """Serve what has become current while nobody could tell it."""
        async with self._changing:
            if self._served != self._transfer_store.version:
                version, weights = (
                    self._transfer_store.version,
                    await self._transfer_store.weights(),
                )
                assert weights is not None  # the model's own are only ever the first
                await self._give_weights(version, weights)
                await self._ask("switch", version, limit_s=_SWITCH_S)
                self._served = version

    async def _place(self, limit_s: float) -> None:
        """Have a process on some node; waits for one that joins."""
        needs = await self._needs()
        self._on_phase("waiting for a node")
        refusal: ConfigError | None = None
        try:
            async with asyncio.timeout(limit_s):
                while (refusal := await self._try_a_node(needs)) is not None:
                    await self._let_go()
                    await asyncio.sleep(self._refused_pause_s)
        except BaseException as error:
            await self._let_go()
            if isinstance(error, TimeoutError):
                why = "" if refusal is None else f" ({refusal})"
                raise PolicyError(
                    f"no node of the cluster had room for an engine within {limit_s:g} s{why}"
                ) from None
            raise
        self._on_phase(f"on the node {self._node}")

    async def _try_a_node(self, needs: EngineNeeds) -> ConfigError | None:
        """Have a process on whichever node has room first; why that one takes no engine."""
        self._phases_heard = self._log_bytes = 0
        self._process = self._spawn(self._config, self.key, needs)
        self._node, node_id = await self._process.place()
        try:
            await self._admit(node_id)
        except ConfigError as error:
            refusal = ConfigError(f"the node {self._node} takes no engine: {error}")
            if node_id not in self._refused:
                self._refused.add(node_id)
                self._on_phase(f"{refusal}; waiting for another node")
            return refusal
        self._on_node(node_id)
        return None

    async def _give_model(self) -> None:
        if not await self._ask("find_model", await self._transfer_store.source(), limit_s=None):
            self._on_phase("sending the model")
            await self._ask("take_model", await self._transfer_store.model(), limit_s=None)

    async def _listen(self) -> None:
        """Pass on what the engine tells, until it has nothing more to tell: that is an error."""
        while True:
            news = await self._news()
            self._phases_heard += len(news.phases)
            self._log_bytes += len(news.log)
            for phase in news.phases:
                self._on_phase(phase)
            if news.log:
                await asyncio.to_thread(self._keep_log, news.log)

    async def _news(self) -> News:
        """While none comes, nobody waits for the engine, and it is not told of new weights."""
        asking = asyncio.ensure_future(
            self._ask("news", self._phases_heard, self._log_bytes, limit_s=None)
        )
        try:
            while not (await asyncio.wait({asking}, timeout=self._unresponsive_s))[0]:
                self._is_unresponsive = True
                await self._close_connections()
            news = cast(News, await asking)
            if self._is_unresponsive:
                await self._catch_up()
                self._is_unresponsive = False
            return news
        finally:
            asking.cancel()

    def _lived_s(self) -> float:
        return 0.0 if self._base_url is None else time.monotonic() - self._well_since_s

    def _keep_log(self, log: bytes) -> None:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as file:
            file.write(log)
        with contextlib.suppress(OSError):  # a full disk: it is tried again
            rotate_program_log(self._log)

    async def _let_go(self) -> None:
        """End the process, if it is there; connections that wait for it are closed."""
        process, self._process, self._base_url = self._process, None, None
        self._is_unresponsive = False
        self._staged = -1  # the next process has other files
        try:
            await self._close_connections()
            with contextlib.suppress(Exception):  # it has ended, or Ray itself with it
                async with asyncio.timeout(_STOP_S):
                    if process is not None:
                        await process.call("stop")
        finally:  # also when nobody waits any more
            with contextlib.suppress(Exception):
                if process is not None:
                    process.kill()

    async def _close_connections(self) -> None:
        """Those that wait for an answer which may never come; who waits asks elsewhere."""
        for close in self._close:
            await close()

    async def _ask(
        self, method: str, *arguments: object, limit_s: float | None = _CALL_S
    ) -> object:
        """Raises Lost when the process or the node is gone, else what the method raised there."""
        if self._process is None:
            raise Lost("it was let go")
        try:
            async with asyncio.timeout(limit_s):
                return await self._process.call(method, *arguments)
        except TimeoutError:
            raise PolicyError(
                f"the engine on {self._node} did not answer {method} within {limit_s:g} s"
            ) from None
        except Lost:
            raise
        except ClawError as error:
            kind = ConfigError if isinstance(error, ConfigError) else PolicyError
            raise kind(f"{error} (on the node {self._node})") from error


class ClusterEngines:
    """Makes the engines of a run that are on a cluster, and knows where they are."""

    def __init__(
        self,
        config: PolicyConfig,
        transfer_store: TransferStore,
        needs: Callable[[], Awaitable[EngineNeeds]],
        *,
        spawn: Spawn = RayProcess,
        admit: Admit = _anybody,
    ) -> None:
        """`needs` answers once the cluster is there; `admit` is asked about each node that an
        engine comes to."""
        self._config = config
        self._transfer_store = transfer_store
        self._ask_needs = needs
        self._needs: EngineNeeds | None = None
        self._spawn = spawn
        self._admit = admit
        self._nodes: list[str] = []
        self._placed = asyncio.Event()

    def __call__(self, setup: EngineSetup) -> RemoteEngine:
        return RemoteEngine(
            self._config,
            self._needs_at_start,
            self._transfer_store,
            setup.log,
            setup.on_phase,
            setup.hold,
            spawn=self._spawn,
            on_node=self._on_node,
            admit=self._admit,
        )

    async def a_node(self) -> str:
        """The id of the node where the last engine was placed; waits for a first one."""
        await self._placed.wait()
        return self._nodes[-1]

    async def _needs_at_start(self) -> EngineNeeds:
        """Nodes that are lost later come back, or others do: an engine waits for them."""
        if self._needs is None:
            self._needs = await self._ask_needs()
        return self._needs

    def _on_node(self, node_id: str) -> None:
        self._nodes.append(node_id)
        self._placed.set()
