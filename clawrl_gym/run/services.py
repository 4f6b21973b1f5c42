"""Shared parts of training and serving: the served policy, the learner, judge and records.

Each part gets its own piece of the configuration. Started parts are on the exit stack even when a
later one fails.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from clawrl_gym.cluster.admission import compare_machine
from clawrl_gym.cluster.cluster import Cluster
from clawrl_gym.cluster.engine_actor import put_chunk
from clawrl_gym.cluster.learner_away import RayLearnerAway
from clawrl_gym.cluster.modules import foreign_modules
from clawrl_gym.cluster.placement import (
    EngineNeeds,
    apart,
    beside,
    engine_hosts,
    needs_of_engines,
    own_gpus,
)
from clawrl_gym.cluster.ray_learner import RayLearner
from clawrl_gym.config import CommandConfig, EnvConfig, JudgeConfig, RunConfig, ServeConfig
from clawrl_gym.core.errors import ConfigError, NotServed, PolicyUnavailable, StoreError
from clawrl_gym.core.metrics import Metrics, Timeline
from clawrl_gym.core.ownership import OWNER
from clawrl_gym.core.types import ChatBody, Comparison
from clawrl_gym.gateway.wire.requests import renderable
from clawrl_gym.inference.models.resolve import checkpoint_dtype
from clawrl_gym.inference.transfer_store import TransferStore
from clawrl_gym.inference.weights.adapter_files import ADAPTER
from clawrl_gym.inference.weights.probe import Reading
from clawrl_gym.judge.comparison import GroupJudge
from clawrl_gym.judge.enhance import Enhancer
from clawrl_gym.judge.interface import Judge
from clawrl_gym.preflight.adapters import served_adapter
from clawrl_gym.preflight.judge import JudgeMaker
from clawrl_gym.run.canary_prompts import CanaryPrompts
from clawrl_gym.run.engines import ClusterEngines
from clawrl_gym.run.policy import ServedPolicy
from clawrl_gym.run.weight_checks import WeightCheck, WeightChecks, computes_exactly, refused
from clawrl_gym.run_folder.folder import RunFolder
from clawrl_gym.run_folder.kept_model import keep_model
from clawrl_gym.store import UpdateRow
from clawrl_gym.store.users import Users
from clawrl_gym.trainers.capabilities import capabilities_of
from clawrl_gym.trainers.interface import AsyncLearner, RemoteLearner
from clawrl_gym.trainers.loop import Publication, Update
from clawrl_gym.trainers.models.pictures import Images
from clawrl_gym.trainers.objectives import objectives
from clawrl_gym.trainers.updates.actor import LearnerSetup, make_learner
from clawrl_gym.trainers.updates.canaries import CANARIES_FILE, Canaries
from clawrl_gym.trainers.updates.guard import Guard, guard_of
from clawrl_gym.trainers.updates.references import REFERENCES_FILE, References
from clawrl_gym.trainers.user_learners import UserLearner
from clawrl_gym.trainers.user_share import UserShare
from clawrl_gym.trainers.versions.retention import read_pins
from clawrl_gym.ui.live_page import LivePage
from clawrl_gym.ui.view import RunView

_TEACHER = "teacher"
"""Name of the renderer of enhanced prompts for the fleet: not a session."""
_RENDER_PAUSE_S = 0.5
_log = logging.getLogger(__name__)


class RunServices:
    """The shared parts of one run, alive."""

    def __init__(
        self,
        config: CommandConfig,
        folder: RunFolder,
        view: RunView,
        envs: Iterable[EnvConfig] = (),
        users: Users | None = None,
    ) -> None:
        """`envs`: those that workers hold; `users`: who has a key beside the owner. Raises
        ConfigError when the model or the device cannot be used."""
        self._config = config
        self._view = view
        self.folder = folder
        self._users = users
        self._able = capabilities_of(config.learner)
        self._cluster_is_up = asyncio.Event()
        self._compared: set[str] = set()
        """Ids of nodes whose versions are this machine's."""
        self.cluster = Cluster(
            config.ray, foreign_modules(config, envs), kept_logs=folder.logs / "ray"
        )
        films = LivePage(folder.path, view.message)
        self.policy = ServedPolicy(
            config, folder.path, on_phase=view.phase, on_film=films.add, users=users
        )

    async def open(self, stack: AsyncExitStack, *, resume: bool) -> UpdateRow | None:
        """Open the run's folder; returns the update to resume from."""
        if await asyncio.to_thread(self.folder.take) and resume:
            self._view.message(f"{self.folder.path}: others could read it; only you can now")
        if self.policy.model is not None:
            self.policy.model = await asyncio.to_thread(
                keep_model, self.folder.path, self.policy.model
            )
            self._transfer_store = TransferStore(
                self.policy.model, self._config.policy.model, self.folder.serving / "depot",
                put_chunk,
            )  # fmt: skip
        if self._config.policy.placement == "nodes":
            self._engines = ClusterEngines(
                self._config.policy,
                self._transfer_store,
                self._needs_of_engines,
                admit=self._admit_engine,
            )
            self.policy.make_engine = self._engines
        self._gpus = own_gpus(self._config, self.policy.device)
        self.policy.gpus = self._gpus.engines
        self.policy.adapter = served_adapter(
            self._config,
            self.policy.device,
            sees=self.policy.sees,
            has_users=self._users is not None and bool(self._users.all()),
        )
        resumed = await self.policy.open(stack, resume=resume)  # first: it holds the folder
        if resume and isinstance(self._config, RunConfig):
            await asyncio.to_thread(self.folder.lengthen, self._config.trainer.steps)
        self.metrics = Metrics(
            self.folder.path, self._config.logger, self._config.model_dump(mode="json")
        )
        stack.callback(self.metrics.close)
        self.timeline = Timeline(self.folder.path)
        stack.callback(self.timeline.close)
        return resumed

    def judging(self, stack: AsyncExitStack, config: JudgeConfig, *, hints: bool) -> Judge | None:
        """The configured judge; None when nobody judges."""
        maker = JudgeMaker(
            config, self.policy.fleet, lambda: self.policy.version, stack, hints=hints
        )
        return maker.make()

    def group_judge(
        self, stack: AsyncExitStack, config: JudgeConfig, comparisons: Sequence[Comparison]
    ) -> GroupJudge:
        """Compares the replies of groups, with the model that the judge's configuration names."""
        maker = JudgeMaker(
            config, self.policy.fleet, lambda: self.policy.version, stack, hints=False
        )
        return GroupJudge(maker.chat_model(config), comparisons, config)

    def enhancer(self, config: JudgeConfig) -> Enhancer:
        """Makes the prompts that a teacher reads."""
        return Enhancer(
            self._render,
            config.hints,
            self._config.policy.max_model_len,
            with_control=self._config.trainer.distillation.baseline == "control",
        )

    async def _render(self, body: ChatBody) -> list[int]:
        """Ids of a chat request as the gateway has them rendered; asked again while none is up."""
        readable = body | {"messages": [renderable(message) for message in body["messages"]]}
        while True:
            policy = self.policy.fleet.of(_TEACHER)
            try:
                return await policy.render(readable)
            except PolicyUnavailable:  # whoever asks has a deadline
                self.policy.fleet.failed(policy)
                if not self.policy.fleet.alive:
                    await asyncio.sleep(_RENDER_PAUSE_S)

    async def start_cluster(self) -> None:
        """Start Ray on this machine, or join the cluster that is given."""
        self._view.phase("Ray", "joining" if self.cluster.is_joined else "starting")
        await self.cluster.start()
        self._cluster_is_up.set()
        self._view.phase("Ray", "ready")
        if self.cluster.is_joined:
            nodes = "; ".join(node.words() for node in self.cluster.nodes)
            self._view.message(f"joined the cluster at {self.cluster.address}: {nodes}")

    def end_cluster_with(self, stack: AsyncExitStack) -> None:
        """Have `stack` end the cluster, and before it the engines that are on it."""
        stack.callback(self.cluster.stop)
        if self._config.policy.placement == "nodes":
            stack.push_async_callback(self.policy.servers.stop)

    async def start_learner(self, stack: AsyncExitStack, resumed: UpdateRow | None) -> AsyncLearner:
        """Load the model into the learner, with the checkpoint's optimizer. What it holds outside
        of the cluster is let go by `stack`."""
        self._view.phase("learner", "loading the model")
        config = self._config
        setup = LearnerSetup(
            config.trainer,
            config.learner,
            config.seed,
            self.policy.device,
            config.policy.sampling.temperature,
            self._images(),
            str(self.policy.own_model),
            objectives(config.trainer),
        )
        learner = self._learner(setup, stack)
        self.learner: AsyncLearner | UserLearner = learner
        """Learner of the run's own weights."""
        await learner.ready()
        if resumed is not None and resumed.checkpoint is not None:
            await learner.load_checkpoint(resumed.checkpoint)
        own = checkpoint_dtype(self.policy.own_model)
        is_exact = not self._able.remote and computes_exactly(
            config.policy, config.learner, own, self.policy.device
        )
        self._weight_checks = WeightChecks(
            self.policy.servers,
            self._view.message,
            is_exact=is_exact,
            can_probe=self.policy.capabilities.probe,
        )
        self._weight_checks.begin(await self._reading(learner))
        self._view.phase("learner", "ready")
        return learner

    def _learner(self, setup: LearnerSetup, stack: AsyncExitStack) -> AsyncLearner:
        if self._able.remote:
            learner: RemoteLearner = make_learner(setup)
            stack.push_async_callback(learner.close)
            return learner
        if self._config.learner.placement == "driver" or self._gpus.learner is not None:
            own_node = self.cluster.own_node
            return RayLearner(setup, own_node, self._gpus.learner)
        if setup.images is not None:
            raise ConfigError(
                f"got learner.placement={self._config.learner.placement} and a model that sees, "
                "expected learner.placement=driver: pictures do not travel yet"
            )
        device = self._config.policy.device
        return RayLearnerAway(setup, self._transfer_store, device, self._place_of_learner)

    def guard(self) -> Guard | None:
        """Decides which updates serve; None: all do."""
        return guard_of(self._config.learner, self.learner, self._canaries())

    def _people(self) -> int:
        return 1 + (0 if self._users is None else len(self._users.all()))

    def _canaries(self) -> Canaries | None:
        """Canaries of a service; None for a training run, which has held-out tasks."""
        if not isinstance(self._config, ServeConfig):
            return None
        guards = self._config.learner.guards
        file = None if guards.canary_file is None else Path(guards.canary_file)
        return Canaries(
            self.learner.review,
            CanaryPrompts(self.policy.fleet, lambda: self.policy.version, file),
            self.folder.path / CANARIES_FILE,
            lambda: read_pins(self.folder.checkpoints).values(),
            UserShare.of(self._config.live, self._people),
        )

    def references(self) -> References | None:
        """Reference replies of a training run, where its learner can read them."""
        if not self._able.review:
            return None
        return References(self.learner.review, self.folder.path / REFERENCES_FILE)

    async def _needs_of_engines(self) -> EngineNeeds:
        await self._cluster_is_up.wait()
        nodes = self.cluster.nodes
        is_beside = self._config.learner.placement == "beside"
        needs = needs_of_engines(self._config.policy.servers, nodes, learner_beside=is_beside)
        for node in engine_hosts(nodes):
            try:
                await compare_machine(node, self._view.message)
            except ConfigError as error:
                raise ConfigError(f"node {node.label} cannot take an engine: {error}") from error
            self._compared.add(node.id)
        return needs

    async def _admit_engine(self, node_id: str) -> None:
        """Raises ConfigError for a node that joined later with other versions, or has gone."""
        if node_id not in self._compared:
            await compare_machine(await self.cluster.node(node_id), self._view.message)
            self._compared.add(node_id)

    async def _place_of_learner(self) -> dict[str, object]:
        if self._config.learner.placement == "apart":
            return apart(self.cluster.nodes)
        return beside(await self._engines.a_node(), self.cluster.nodes)

    def _images(self) -> Images | None:
        """Picture settings with which the learner sees what the policy saw; None without."""
        if not self.policy.sees:
            return None
        return Images(str(self.policy.store.pictures.folder), self._config.policy.images.processor)

    async def publish(self, version: int) -> Publication:
        """Serve the run's own weights as `version`."""
        return await self.publish_of(self.learner, version, OWNER)

    async def publish_of(
        self, learner: AsyncLearner | UserLearner, version: int, user: str
    ) -> Publication:
        """Serve what a learner has as `version`, where adapters are served one of `user`'s. What
        was served before stays when an engine has something else than the learner."""
        reading = await self._reading(learner)
        weight_check = await self._weight_checks.of(reading, user, version, self.policy.version)
        try:
            pause_s = await self._publish_weights(learner, version, user, weight_check)
        except NotServed as error:
            return Publication(metrics=refused(weight_check), refusal=str(error))
        if weight_check is None:
            return Publication(pause_s)
        weight_check.mark_verified()
        return Publication(pause_s, weight_check.metrics)

    async def _reading(self, learner: AsyncLearner | UserLearner) -> Reading | None:
        """A learner's reading of the probe's text; None for one that has no probe."""
        return await learner.probe() if self._able.probe else None

    async def _publish_weights(
        self,
        learner: AsyncLearner | UserLearner,
        version: int,
        user: str,
        weight_check: WeightCheck | None,
    ) -> float:
        as_adapter = self.policy.adapter is not None
        folder = self.folder.new_weights / ADAPTER if as_adapter else self.folder.new_weights
        await (await learner.publish(as_adapter=as_adapter)).to_folder(folder)
        if as_adapter:
            await self.policy.publish_adapter(folder, version, "move", user, weight_check)
            return 0.0
        return await self.policy.publish(folder, version, "move", weight_check)

    async def record(self, update: Update) -> None:
        """Store an update that serves, with its batch."""
        samples = [sample.id for sample in update.batch.samples if sample.id is not None]
        await self.policy.store.add_update(update.row, samples, update.checkpoint)
        if update.stats and update.stats.distilled_turns:
            try:
                await self.policy.store.add_distilled_turns(
                    update.version, update.stats.distilled_turns
                )
            except StoreError as error:  # only for people to read
                _log.warning("what update %d distilled is not logged: %s", update.version, error)
