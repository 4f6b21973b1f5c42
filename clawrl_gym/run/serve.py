"""`serve`: live conversations behind the gateway; judged turns become updates as they come.

The gateway listens first and requests wait inside until an engine answers. The learner starts
beside it: conversations never wait for learning.
"""

from __future__ import annotations

import asyncio
import shlex
import socket
import sys
from contextlib import AsyncExitStack
from functools import partial

from clawrl_gym.config import ServeConfig
from clawrl_gym.core.files.files import private_files
from clawrl_gym.core.metrics import RETURNED_TO
from clawrl_gym.core.ownership import OWNER
from clawrl_gym.core.processes.interrupt import INTERRUPTS
from clawrl_gym.core.types import Turn, Verdict
from clawrl_gym.gateway.hooks import Hooks
from clawrl_gym.gateway.sessions.machine_turns import MachineTurns
from clawrl_gym.inference.engine_classes import engine_class
from clawrl_gym.inference.weights.adapters import adapter_slots
from clawrl_gym.judge.queue import JudgeQueue
from clawrl_gym.judge.signals.language import load_languages
from clawrl_gym.preflight.compiling import with_compiling
from clawrl_gym.preflight.judge import judge_in_words
from clawrl_gym.preflight.model_plan import shape_of
from clawrl_gym.recipe.model_size import settings_note
from clawrl_gym.rollout.collection.live_collector import LiveCollector
from clawrl_gym.rollout.episodes.training_time import TrainingTime
from clawrl_gym.run.counts import ServingCounts
from clawrl_gym.run.observer import Observer
from clawrl_gym.run.services import RunServices
from clawrl_gym.run_folder.folder import serving_folder
from clawrl_gym.run_folder.remote_checkpoints import copied_checkpoints
from clawrl_gym.serving.clients import key_of, key_place
from clawrl_gym.serving.complaint_watch import ComplaintWatch
from clawrl_gym.serving.held_samples import HeldSamples
from clawrl_gym.serving.last_report import LastReport
from clawrl_gym.serving.untrainable_turns import UntrainableTurns
from clawrl_gym.serving.user_training import UserTraining
from clawrl_gym.serving.users import Departures
from clawrl_gym.serving.versions import LiveVersions
from clawrl_gym.store import JudgedTurn, UpdateRow
from clawrl_gym.store.users import Users
from clawrl_gym.trainers.algorithms.algorithm import build_algorithm
from clawrl_gym.trainers.batch_queue import Batch, BatchQueue
from clawrl_gym.trainers.loop import TrainLoop, Update
from clawrl_gym.trainers.updates.canaries import PRAISED
from clawrl_gym.trainers.updates.guard import Guard
from clawrl_gym.trainers.user_queues import UserQueues
from clawrl_gym.trainers.user_share import UserShare
from clawrl_gym.trainers.versions.complaints import Complaints
from clawrl_gym.trainers.versions.kept_versions import KeptVersions
from clawrl_gym.trainers.versions.retention import Retention
from clawrl_gym.ui.serving import SERVING
from clawrl_gym.ui.transcripts import find_tokenizer
from clawrl_gym.ui.view import RunView, make_view

_FOREVER = sys.maxsize
_MACHINE_TURNS_EVERY_S = 600.0


async def serve(config: ServeConfig, sock: socket.socket) -> None:
    """Serve on an open socket until stopped; what `preflight_serving` refuses is not looked for."""
    folder = serving_folder(config)
    gateway = config.gateway.model_copy(update={"key": key_of(config, folder)})
    with_key = config.model_copy(update={"gateway": gateway})
    with_key, notes = _decided(with_key)
    view = make_view(config.ui, SERVING, title=str(folder.path))
    for note in notes:
        view.message(note)
    try:
        async with AsyncExitStack() as stack:
            stack.enter_context(private_files())
            stack.enter_context(INTERRUPTS.goes_on(folder.way_on("serve")))
            users = Users(folder.path)
            users.all()  # a file that cannot be read is told now
            services = RunServices(with_key, folder, view, users=users)
            service = Service(with_key, services, view, users, key_place=key_place(config, folder))
            stack.push_async_callback(service.reported)
            await service.start(stack, sock)
            folder.write(config)  # the folder is ours now
            async with copied_checkpoints(config, folder, view.message):
                await service.run(stack)
    finally:
        view.close()


def _decided(config: ServeConfig) -> tuple[ServeConfig, list[str]]:
    """Settings that this machine and the size of the model decide, and why, for people."""
    engine = engine_class(config.policy)
    if not engine.capabilities.model:
        return config, []
    settings = settings_note(config, shape_of(config.policy.model).parameters)
    config, why_compiled = with_compiling(config, engine.device(config.policy.device), 0)
    return config, list(filter(None, (settings, why_compiled)))


def machine_turns_in_words(machine_turns: MachineTurns) -> str:
    """The number of machine turns, and the rule that would make most of them side turns."""
    first = machine_turns.suggestions()[0]
    return (
        f"{machine_turns.turns} of {machine_turns.main_turns} main turns look machine-made, and "
        f"are trained on; {first.turns} of them: {first.why}. If no person wrote these, start "
        f"serve with {shlex.quote(first.override())}, or add to a file of conf/live: {first.yaml()}"
    )


def _weights_of_users(config: ServeConfig, have_own: bool, users: int) -> str:
    """A sentence on whose weights answer whom."""
    if have_own:
        words = "users have weights of their own, which learn only from their own sessions"
        slots = adapter_slots(config.policy, users)
        if users >= slots:
            words += (
                f"; an engine answers with {slots} at a time, and requests for others wait "
                "(policy.max_adapters)"
            )
        return words
    way = (
        "policy.serve=adapters gives each their own"
        if config.learner.adapter is not None
        else "learner=lora gives each their own"
    )
    return f"one set of weights answers all users and learns from all of them; {way}"


class Service:
    """A service that serves and learns, alive."""

    def __init__(
        self,
        config: ServeConfig,
        services: RunServices,
        view: RunView,
        users: Users,
        *,
        key_place: str,
    ) -> None:
        self._config = config
        self._key_place = key_place
        self._services = services
        self._users = users
        self._view = view
        self._last_report = LastReport(services.folder.path, view.message)
        self._leaving_report: asyncio.Task[None] | None = None
        self._guard: Guard | None = None
        self._retention = Retention(config.learner, services.folder.checkpoints)
        self._machine_turns = MachineTurns(config.live.rules.transient)

    async def start(self, stack: AsyncExitStack, sock: socket.socket) -> None:
        """Open the store and listen; nothing slow."""
        config, services = self._config, self._services
        self._resumed = await services.open(stack, resume=True)
        store = services.policy.store
        self._user_training = UserTraining(
            config.learner, services.folder, services.policy, self._users, services.timeline,
            self._view.message, services.publish_of,
        )  # fmt: skip
        self._user_training.on_update = self._on_user_update
        separate = services.policy.adapter is not None
        share = None if separate else UserShare.of(config.live, self._people)
        self._ready = UserQueues(
            lambda user: BatchQueue.live(config.live, store, user, share),
            separate=separate,
            on_new=self._user_training.begin,
        )
        self._complaints = ComplaintWatch(
            Complaints(config.learner.guards.complaints, share=share),
            services.folder.path,
            self._view.message,
            lambda session_id: self._ready.trained_user(session_id) == OWNER,
        )
        updates = await store.updates()
        for row in updates:
            self._take_back(row)
        await self._complaints.restore(store, updates, services.policy.version)
        algorithm = build_algorithm(config.trainer, None)
        judge = services.judging(stack, config.judge, hints=algorithm.needs_hints)
        self._collector = LiveCollector(
            config.live,
            store,
            algorithm,
            self._ready,
            judged=judge is not None,
            enhancer=services.enhancer(config.judge) if algorithm.needs_hints else None,
            make_algorithm=lambda: build_algorithm(config.trainer, None),
            on_judged=self._on_judged,
        )
        self._queue = JudgeQueue(judge, services.policy.store, config.judge, self._on_verdict)
        self._observer = Observer(
            services.metrics,
            services.timeline,
            self._view,
            services.policy,
            ServingCounts(
                services.policy, self._collector, self._queue, self._ready, self._machine_turns
            ),
            find_tokenizer([] if services.policy.model is None else [services.policy.model]),
            UntrainableTurns(self._view.message) if config.learn else None,
        )
        hooks = Hooks(
            on_turn=self._observer.turn,
            on_next_state=self._queue.add,
            on_verdict=self._on_verdict,
            on_end=self._on_end,
            on_delete=self._on_delete,
            on_deleted=self._last_report.session_deleted,
        )
        if services.policy.adapter is not None:
            await self._user_training.restore(self._ready)
        if config.learn:
            await self._collector.restore()
        await services.policy.listen(stack, hooks, sock)
        self._view.message(judge_in_words(config.judge))
        if (users := len(self._users.all())) and config.learn:
            self._view.message(
                _weights_of_users(config, services.policy.adapter is not None, users)
            )
        self._view.message(
            f"base URL: {services.policy.address.base_url}/v1   key: {self._key_place}"
        )

    async def run(self, stack: AsyncExitStack) -> None:
        """Serve, judge and learn, until cancelled."""
        await asyncio.to_thread(load_languages)  # else the first verdict keeps everybody waiting
        services = self._services
        async with asyncio.TaskGroup() as running:
            running.create_task(self._report_at_the_end())
            running.create_task(services.policy.gateway.sessions.reap())
            running.create_task(self._departures())
            running.create_task(self._queue.run())
            running.create_task(self._observer.run())
            running.create_task(self._tell_of_machine_turns())
            running.create_task(self._serve_policy())
            if self._config.learn:
                running.create_task(self._collector.run())
                running.create_task(
                    HeldSamples(self._config.live, self._ready, self._view.message).run()
                )
                services.end_cluster_with(stack)
                running.create_task(self._learn(stack, self._resumed))
            elif self._config.policy.placement == "nodes":
                services.end_cluster_with(stack)
                running.create_task(self._hold_cluster())

    def _people(self) -> int:
        """Number of people who may use it, the owner among them."""
        return 1 + len(self._users.all())

    async def _tell_of_machine_turns(self) -> None:
        """Whenever there are more of them than when it was last told."""
        told = 0
        while True:
            await asyncio.sleep(_MACHINE_TURNS_EVERY_S)
            if self._machine_turns.turns > told:
                self._view.message(machine_turns_in_words(self._machine_turns))
            told = self._machine_turns.turns

    async def _departures(self) -> None:
        await Departures(self._services.folder.path, self._users, self._remove_user).run()

    async def _remove_user(self, user: str) -> None:
        gateway = self._services.policy.gateway
        await gateway.turn_out(user)
        await self._user_training.end(user)
        await gateway.delete_user(user)
        self._collector.forget_user(user)
        self._complaints.forget(user)

    async def _report_at_the_end(self) -> None:
        """Write the report beside the closing of everything, for which there is little time."""
        try:
            await asyncio.Event().wait()
        finally:
            self._view.close()
            self._leaving_report = asyncio.create_task(asyncio.to_thread(self._last_report.write))

    async def reported(self) -> None:
        """Wait for the report, if one is being written."""
        if self._leaving_report is not None:
            await self._leaving_report

    async def _serve_policy(self) -> None:
        await self._services.policy.start(self._resumed)
        self._view.message(f"ready: talk to {self._services.policy.address.base_url}/v1")
        await self._services.policy.servers.watch()

    async def _learn(self, stack: AsyncExitStack, resumed: UpdateRow | None) -> None:
        await self._services.start_cluster()
        async with self._services.cluster.required():
            await self._learn_for_ever(stack, resumed)

    async def _hold_cluster(self) -> None:
        """For its engines alone."""
        await self._services.start_cluster()
        async with self._services.cluster.required():
            await asyncio.Event().wait()

    async def _learn_for_ever(self, stack: AsyncExitStack, resumed: UpdateRow | None) -> None:
        config, services = self._config, self._services
        learner = await services.start_learner(stack, resumed)
        learners = self._user_training.learners(learner)
        services.learner = learners.of(OWNER)
        self._guard = services.guard()
        if self._guard is not None:
            self._guard.restore(await services.policy.store.praised_samples(PRAISED))
        loop = TrainLoop(
            config.learner,
            services.learner,
            partial(self._next_batch, self._ready.own),
            services.publish,
            self._on_update,
            KeptVersions(config.learner, services.folder.checkpoints),
            services.timeline,
            say=self._view.message,
            lock=learners.lock,
            guard=self._guard,
            ended_by=(),
        )
        services.policy.gateway.versions.keeper = LiveVersions(
            loop, self._user_training, services.policy.store, services.folder.path
        )
        async with asyncio.TaskGroup() as loops:
            loops.create_task(
                self._complaints.run(loop, lambda: services.policy.version, self._on_rollback)
            )
            loops.create_task(loop.run(services.policy.version, _FOREVER))
            loops.create_task(self._user_training.run(self._ready, self._next_batch))

    def _on_judged(self, turn: Turn, verdict: Verdict) -> None:
        version = max(turn.versions_T, default=-1)
        self._complaints.judged(JudgedTurn(turn.session_id, version, verdict))

    def _take_back(self, row: UpdateRow) -> None:
        """An update whose weights are those of an earlier version: what was sampled in between is
        not trained on."""
        earlier = row.metrics.get(RETURNED_TO)
        if earlier is not None:
            self._ready.own.take_back(range(int(earlier) + 1, row.version))

    def _on_rollback(self) -> None:
        self._services.policy.gateway.stats.learning.rollbacks += 1

    async def _next_batch(self, ready: BatchQueue, number: int, version: int) -> Batch:
        """The next batch of one set of weights, when it is time to learn."""
        gateway = self._services.policy.gateway
        training_time = TrainingTime(self._config.live, gateway.stats.quiet_for_s, self._on_wait)
        await ready.due(version)
        while await training_time.come():
            await ready.due(version)  # what was ready may have been withdrawn meanwhile
        return await ready.batch(number, version)

    def _on_wait(self, awaited: str | None) -> None:
        """Learning waits for its time, or (None) has it."""
        if awaited is None:
            self._view.phase("learning", "ready")
        else:
            waiting = f"{self._ready.waiting_samples} samples"
            self._view.phase("learning", f"{awaited} with {waiting} (live.train_when)")

    def _on_verdict(self, verdict: Verdict) -> None:
        """Without learning, verdicts stay in the store; their samples come when it is on again."""
        if self._config.learn:
            self._collector.verdict(verdict)
        self._observer.verdict(verdict)

    def _on_end(self, session_id: str) -> None:
        if self._config.learn:
            self._collector.session_ended(session_id)

    def _on_delete(self, session_id: str) -> None:
        self._machine_turns.forget(session_id)
        self._collector.deleted(session_id)
        if self._guard is not None:
            self._guard.forget(lambda sample: sample.session_id == session_id)
        self._user_training.deleted(session_id)
        self._last_report.session_deleted(session_id)

    async def _on_user_update(self, user: str, update: Update) -> None:
        learning = self._services.policy.gateway.stats.learning
        learning.updates += 1
        learning.samples += len(update.batch.samples)
        if update.is_served and update.batch.samples:
            self._view.message(
                f"{user}@{update.version} serves, of {len(update.batch.samples)} samples of theirs"
            )

    async def _on_update(self, update: Update) -> None:
        await self._services.record(update)
        self._take_back(update.row)
        self._complaints.updated(update.row)
        await self._observer.update(update)
        await self._retention.recorded(update.checkpoint)
