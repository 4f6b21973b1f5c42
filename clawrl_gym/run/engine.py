"""What training and serving have in common: store, policy, gateway, learner, and their order.

Each part gets its own piece of the configuration. What was started is on the exit stack even when
a later part fails.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from clawrl_gym.config import CommandConfig
from clawrl_gym.core import redact
from clawrl_gym.core.errors import StoreError
from clawrl_gym.core.metrics import Metrics, Timeline
from clawrl_gym.gateway.hooks import Hooks
from clawrl_gym.gateway.requests import renderable
from clawrl_gym.gateway.server import Gateway
from clawrl_gym.judge.base import Judge
from clawrl_gym.judge.enhance import Enhancer
from clawrl_gym.policy.client import PolicyUnavailable
from clawrl_gym.policy.models import picture_ids, resolve_device, resolve_model, sees
from clawrl_gym.policy.servers import PolicyServers
from clawrl_gym.rollout.chat import PolicyAddress
from clawrl_gym.run import cluster
from clawrl_gym.run.folder import RunFolder
from clawrl_gym.run.judge import JudgeMaker
from clawrl_gym.store import Store, UpdateRow
from clawrl_gym.trainers.loop import Update
from clawrl_gym.trainers.pictures import Images
from clawrl_gym.ui.live_page import LivePage
from clawrl_gym.ui.view import View

_TEACHER = "teacher"
"""Who renders enhanced prompts, to the fleet: not a session."""
_RENDER_PAUSE_S = 0.5
_log = logging.getLogger(__name__)


class Engine:
    """The shared parts of one run, alive."""

    def __init__(self, config: CommandConfig, folder: RunFolder, view: View) -> None:
        """Raises ConfigError when the model or the device cannot be used."""
        self._config = config
        self._view = view
        self.folder = folder
        self.model = resolve_model(config.policy.model)
        self.device = resolve_device(config.policy.device)
        self.version = 0
        """The newest published weight version."""

    async def open(self, stack: AsyncExitStack, *, resume: bool) -> UpdateRow | None:
        """Open the run's folder; returns the update to go on from."""
        config, folder = self._config, self.folder
        self.metrics = Metrics(folder.path, config.logger, config.model_dump())
        stack.callback(self.metrics.close)
        self.timeline = Timeline(folder.path)
        stack.callback(self.timeline.close)
        self.store = Store.open(folder.path, record=config.live.record)
        stack.push_async_callback(self.store.close)
        resumed = await self.store.rollback_to_checkpoint() if resume else None
        self.version = 0 if resumed is None else resumed.version
        self.servers = PolicyServers(
            config.policy, self.model, folder.serving, folder.logs, self._vllm_phase
        )
        stack.push_async_callback(self.servers.stop)
        self.fleet = self.servers.fleet(
            config.gateway.max_waiting,
            shown=self.store.album.shown,
            unspoken=picture_ids(self.model),
        )
        stack.push_async_callback(self.servers.close_clients)
        return resumed

    async def start_gateway(
        self, stack: AsyncExitStack, hooks: Hooks, sock: socket.socket | None = None
    ) -> None:
        """Listen; requests wait inside until the policy is ready."""
        config = self._config
        self.gateway = Gateway(
            config.gateway,
            config.policy.sampling,
            self.store,
            self.fleet,
            self.servers.model_name,
            config.policy.request_timeout_s,
            live=config.live,
            hooks=hooks,
            images=config.policy.images if sees(self.model) else None,
            films=self.folder.films,
            on_film=LivePage(self.folder.path, self._view.message).add,
        )
        redact.install([self.gateway.key, *(one.key for one in self.servers.servers)])
        self.gateway.version = self.version
        self.servers.hold_with(self.gateway.held)
        self.gateway_url = await self.gateway.start(sock)
        stack.push_async_callback(self.gateway.stop)
        self._view.phase("gateway", f"ready at {self.gateway_url}")

    @property
    def address(self) -> PolicyAddress:
        """Where episodes reach the policy."""
        return PolicyAddress(self.gateway_url, self.gateway.key, self.servers.model_name)

    def judging(self, stack: AsyncExitStack, *, hints: bool) -> Judge | None:
        """The configured judge; None when nobody judges."""
        maker = JudgeMaker(self._config.judge, self.fleet, lambda: self.version, stack, hints=hints)
        return maker.make()

    def enhancer(self) -> Enhancer:
        """Makes the prompts that a teacher reads."""
        config = self._config
        return Enhancer(self._render, config.judge.hints, config.policy.max_model_len)

    async def _render(self, body: dict[str, Any]) -> list[int]:
        """Ids of a chat request as the gateway has them rendered; asked again while none is up."""
        readable = body | {"messages": [renderable(message) for message in body["messages"]]}
        while True:
            policy = self.fleet.of(_TEACHER)
            try:
                return await policy.render(readable)
            except PolicyUnavailable:  # whoever asks has a deadline
                self.fleet.failed(policy)
                await asyncio.sleep(_RENDER_PAUSE_S)

    async def start_policy(self, resumed: UpdateRow | None) -> None:
        """Start vLLM with the model's own weights, or with those of a checkpoint."""
        if resumed is None or resumed.checkpoint is None:
            await self.servers.start()
        else:
            weights = Path(resumed.checkpoint) / "model.safetensors"
            await self.servers.start(resumed.version, weights)

    async def start_cluster(self) -> None:
        """Start Ray on this machine."""
        self._view.phase("Ray", "starting")
        await asyncio.to_thread(cluster.start_cluster)
        self._view.phase("Ray", "ready")

    async def start_learner(self, resumed: UpdateRow | None) -> None:
        """Load the model into the learner, with the checkpoint's optimizer."""
        self._view.phase("learner", "loading the model")
        config = self._config
        self.learner = cluster.RayLearner(
            config.trainer,
            config.learner,
            str(self.model),
            config.seed,
            self.device,
            config.policy.sampling.temperature,
            self._images(),
        )
        await self.learner.ready()
        if resumed is not None and resumed.checkpoint is not None:
            await self.learner.load_checkpoint(resumed.checkpoint)
        self._view.phase("learner", "ready")

    def _images(self) -> Images | None:
        """What the learner must know to see what the policy saw; None for one that sees nothing."""
        if not sees(self.model):
            return None
        return Images(str(self.store.album.folder), self._config.policy.images.processor)

    async def publish(self, version: int) -> float:
        """Serve the learner's weights as `version`; returns the seconds that requests waited."""
        weights = self.folder.path / "weights"
        await self.learner.save_weights(str(weights))
        pause_s = await self.servers.publish(version, weights / "model.safetensors")
        self.version = self.gateway.version = version
        return pause_s

    async def record(self, update: Update) -> None:
        """Store an update that serves, with its batch."""
        row = UpdateRow(
            update.version,
            tokens=update.stats.tokens if update.stats else 0,
            duration_s=update.stats.duration_s if update.stats else 0.0,
            groups=update.batch.groups,
            metrics=update.stats.metrics if update.stats else {},
        )
        samples = [sample.id for sample in update.batch.samples if sample.id is not None]
        await self.store.add_update(row, samples, update.checkpoint)
        if update.stats and update.stats.taught:
            try:
                await self.store.add_taught(update.version, update.stats.taught)
            except StoreError as error:  # only for people to read
                _log.warning("what update %d distilled is not logged: %s", update.version, error)

    def _vllm_phase(self, phase: str) -> None:
        self._view.phase("vLLM", phase)
