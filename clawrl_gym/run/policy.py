"""A policy that is served: engines behind the gateway, and the store that records every turn.

    async with ServedPolicy(config) as policy:
        print(policy.address.base_url, policy.address.key)

Requests that come before an engine answers wait in the gateway. New weights are swapped in while it
serves; none is refused.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from clawrl_gym.config import AdapterConfig, GatewayConfig, LiveConfig, PolicyConfig
from clawrl_gym.core import redact
from clawrl_gym.core.files.scratch import Scratch
from clawrl_gym.core.ownership import OWNER
from clawrl_gym.core.processes.garbage import collected_by_the_clock
from clawrl_gym.dialogue.prompts import HistoryRule
from clawrl_gym.gateway.admission.admission import is_loopback
from clawrl_gym.gateway.hooks import Hooks
from clawrl_gym.gateway.server import Gateway
from clawrl_gym.inference.engine_classes import engine_class, make_engine
from clawrl_gym.inference.models.resolve import checkpoint_dtype, picture_ids, sees
from clawrl_gym.inference.servers import MakeEngine, PolicyServers, Verify
from clawrl_gym.inference.weights.adapter_files import ADAPTER
from clawrl_gym.inference.weights.adapters import adapter_slots
from clawrl_gym.inference.weights.checkpoints import WEIGHTS, checkpoint_dir
from clawrl_gym.inference.weights.serving_folder import Take
from clawrl_gym.inference.weights.whole_model import holds_adapter, write_whole
from clawrl_gym.rollout.episodes.chat import PolicyAddress
from clawrl_gym.run_folder.folder import RunFolder
from clawrl_gym.run_folder.kept_model import model_of
from clawrl_gym.store import Store, UpdateRow
from clawrl_gym.store.users import Users

OnPhase = Callable[[str, str], None]
"""Reports what a part is doing: its name, and what."""


class ServingConfig(Protocol):
    """The parts of a command's configuration that serving a policy takes."""

    @property
    def policy(self) -> PolicyConfig: ...
    @property
    def gateway(self) -> GatewayConfig: ...
    @property
    def live(self) -> LiveConfig: ...


def quiet(part: str, phase: str) -> None:
    pass


def reachable(config: GatewayConfig, host: str) -> GatewayConfig:
    """A gateway that machines beside this one, `host` to them, reach; it has a key in any case."""
    if is_loopback(host) or not is_loopback(config.host):
        return config
    return config.model_copy(update={"host": host, "key": config.key or secrets.token_urlsafe(32)})


def url_for(url: str, host: str) -> str:
    """The address for those machines, of a gateway that listens on every address."""
    if is_loopback(host):
        return url
    name = f"[{host}]" if ":" in host else host
    return url.replace("//0.0.0.0:", f"//{name}:").replace("//[::]:", f"//{name}:")


class ServedPolicy:
    """One model behind one gateway; an asynchronous context manager."""

    def __init__(
        self,
        config: ServingConfig,
        folder: Path | str | None = None,
        *,
        on_phase: OnPhase = quiet,
        on_film: Callable[[Path], None] = lambda _: None,
        users: Users | None = None,
    ) -> None:
        """`folder` keeps run.db, logs and weights; None takes one that ends with the policy.
        `users`: who has a key beside the owner; None: nobody.

        Raises ConfigError when the model or the device cannot be used.
        """
        self._config = config
        self._on_phase = on_phase
        self._on_film = on_film
        self._users = users
        self._own_folder = Scratch("policy") if folder is None else None
        self.folder = RunFolder(Path(self._own_folder.path if self._own_folder else folder or ""))
        engine = engine_class(config.policy)
        self.capabilities = engine.capabilities
        self._label = engine.label
        self.model: Path | None = None
        """Folder of the model; None where the engine has one of its own elsewhere."""
        if engine.capabilities.model:
            self.model = model_of(self.folder.path, config.policy.model)
        self.device = engine.device(config.policy.device)
        self.version = 0
        """The newest published weight version."""
        self.make_engine: MakeEngine = make_engine
        """Makes its engines, perhaps elsewhere than on this machine. Taken when it is opened."""
        self.adapter: AdapterConfig | None = None
        """The form of the adapters that are published; None: weights are. Taken when it is
        opened."""
        self.gpus: tuple[str, ...] | None = None
        """This machine's GPUs for the engines; None: all. Taken when it is opened."""
        self.adapters_of_users: dict[str, tuple[int, Path]] = {}
        """Version and folder of each user's own that serves from the start."""

    @property
    def own_model(self) -> Path:
        """Folder of the model, of an engine that loads one."""
        assert self.model is not None
        return self.model

    @property
    def sees(self) -> bool:
        """Whether it is shown pictures."""
        return self.model is not None and sees(self.model)

    async def open(self, stack: AsyncExitStack, *, resume: bool = False) -> UpdateRow | None:
        """Open the store; returns the update to resume. What is opened is closed by `stack`."""
        config, folder = self._config, self.folder
        folder.logs.mkdir(parents=True, exist_ok=True)
        self.store = Store.open(folder.path, record=config.live.record)
        stack.push_async_callback(self.store.close)
        resumed = self._at_home(await self.store.rollback_to_checkpoint() if resume else None)
        self.version = 0 if resumed is None else resumed.version
        users = 0 if self._users is None else len(self._users.all())
        slots = adapter_slots(config.policy, users)
        self.servers = PolicyServers(
            config.policy.model_copy(update={"max_adapters": slots}),
            self.model,
            folder.serving,
            folder.logs,
            lambda phase: self._on_phase(self._label, phase),
            make=self.make_engine,
            adapter=self.adapter,
            gpus=self.gpus,
        )
        stack.callback(self._drop_served_weights)
        stack.push_async_callback(self.servers.stop)
        self.fleet = self.servers.fleet(
            config.gateway.max_waiting,
            with_pictures=self.store.pictures.inline,
            unspoken=() if self.model is None else picture_ids(self.model),
        )
        stack.push_async_callback(self.servers.close_clients)
        return resumed

    async def listen(
        self,
        stack: AsyncExitStack,
        hooks: Hooks,
        sock: socket.socket | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        """Start the gateway; requests wait inside until the policy is ready.

        `host`: where workers reach this machine. If that is not loopback, the gateway listens
        there, with its key, instead of on loopback alone.
        """
        config = self._config
        self.gateway = Gateway(
            reachable(config.gateway, host),
            config.policy.sampling,
            self.store,
            self.fleet,
            self.servers.model_name,
            config.policy.request_timeout_s,
            live=config.live,
            hooks=hooks,
            images=config.policy.images if self.sees else None,
            history=HistoryRule(config.policy.keep_thoughts, config.policy.max_model_len),
            films=self.folder.films,
            on_film=self._on_film,
            users=self._users,
            versions=self.servers.adapters,
            allowances=self.folder.path,
        )
        redact.install([self.gateway.key, *self.servers.secrets])
        self.gateway.version = self.version
        self.servers.hold_with(self.gateway.hold_requests)
        url = url_for(await self.gateway.start(sock), host)
        stack.push_async_callback(self.gateway.stop)
        await stack.enter_async_context(collected_by_the_clock())
        self.address = PolicyAddress(url, self.gateway.key, self.servers.model_name)
        self._on_phase("gateway", f"ready at {url}")

    async def start(self, resumed: UpdateRow | None = None) -> None:
        """Start the engines with the model's own weights, or with those of a checkpoint."""
        checkpoint = None
        if resumed is not None and resumed.checkpoint is not None:
            checkpoint = Path(resumed.checkpoint)
        if self.adapter is not None:
            folder = None if checkpoint is None else checkpoint / ADAPTER
            return await self.servers.start_adapters(self.version, folder, self.adapters_of_users)
        if resumed is None or checkpoint is None:
            return await self.servers.start()
        if not holds_adapter(checkpoint):
            return await self.servers.start(resumed.version, checkpoint / WEIGHTS)
        model, whole = self.own_model, self.folder.serving / "whole"
        try:
            shutil.rmtree(whole, ignore_errors=True)
            whole.mkdir(parents=True)
            await asyncio.to_thread(
                write_whole, checkpoint, lambda _: model, whole, checkpoint_dtype(model)
            )
            await self.servers.start(resumed.version, whole)
        finally:
            shutil.rmtree(whole, ignore_errors=True)

    def _drop_served_weights(self) -> None:
        """Delete the weights of servers that ended, unless no checkpoint has them."""
        if checkpoint_dir(self.folder.checkpoints, self.version).is_dir():
            for folder in self.folder.serving.glob("*/v[0-9]*"):
                shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(self.folder.serving / "adapters", ignore_errors=True)

    def _at_home(self, resumed: UpdateRow | None) -> UpdateRow | None:
        """The update with its checkpoint in this folder, wherever it was written."""
        if resumed is None or resumed.checkpoint is None:
            return resumed
        place = self.folder.checkpoints / Path(resumed.checkpoint).name
        return replace(resumed, checkpoint=str(place))

    async def publish(
        self,
        weights: Path | str,
        version: int | None = None,
        take: Take = "copy",
        verify: Verify | None = None,
    ) -> float:
        """Serve a folder's `model.safetensors` as the next version, or as a later one.

        `copy` lets the file be overwritten afterwards, `move` takes it away. Returns the longest
        pause of a server in seconds; requests wait meanwhile. Raises PolicyError when no server
        takes the weights, NotServed when what is served is not what `verify` expects: the old ones
        serve on.
        """
        version = self.version + 1 if version is None else version
        pause_s = await self.servers.publish(version, Path(weights) / WEIGHTS, take, verify)
        self.version = self.gateway.version = version
        return pause_s

    async def withdraw_adapters(self, user: str) -> None:
        """Answer a user whose requests have ended with the run's own adapter; nothing of theirs
        stays."""
        self.servers.withdraw_adapters(user)
        for folder in (self.folder.serving / "adapters").glob(f"{user}@*"):
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def publish_adapter(
        self,
        folder: Path | str,
        version: int,
        take: Take = "copy",
        user: str = OWNER,
        verify: Verify | None = None,
    ) -> None:
        """Answer requests of `user` that begin from now on with version `version` of their
        adapter, a folder of PEFT; `""` is the run's own, for all who have none.

        Nobody pauses, and requests that have begun keep their version. Raises PolicyError when a
        server does not take it, NotServed when it is not what `verify` expects: the older version
        goes on.
        """
        await self.servers.publish_adapter(version, Path(folder), take, user, verify)
        if user == OWNER:
            self.version = self.gateway.version = version

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        try:
            await self.open(self._stack)
            await self.listen(self._stack, Hooks())
            await self.start()
        except BaseException:
            await self.close()
            raise
        self._watching = asyncio.create_task(self.servers.watch())
        self._stack.callback(self._watching.cancel)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End engines and gateway, and close the store; for what `async with` opened."""
        await self._stack.aclose()
        if self._own_folder is not None:
            self._own_folder.remove()
