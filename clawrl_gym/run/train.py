"""`train`: environments in Ray workers, whole groups, updates, held-out evaluations."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from clawrl_gym.cluster.environments import Environments
from clawrl_gym.cluster.envs import check_env, stages_of
from clawrl_gym.config import RunConfig
from clawrl_gym.core.errors import StoreError, TrainerError
from clawrl_gym.core.files.files import private_files
from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.core.metrics import METRICS_FILE, by_step
from clawrl_gym.core.processes.controls import control_words
from clawrl_gym.core.processes.interrupt import INTERRUPTS
from clawrl_gym.core.provenance import record_notes
from clawrl_gym.core.types import Group
from clawrl_gym.gateway.hooks import Hooks
from clawrl_gym.judge.comparison import GroupJudge
from clawrl_gym.judge.verdicts import VerdictMaker
from clawrl_gym.preflight.preflight import Preflight, preflight_of_run, preflight_training
from clawrl_gym.rollout.collection.collector import Collector, Judging
from clawrl_gym.rollout.collection.control import Substitution
from clawrl_gym.rollout.collection.curriculum import TaskOutcome
from clawrl_gym.rollout.collection.dispatcher import Dispatcher
from clawrl_gym.rollout.collection.flow import Flow
from clawrl_gym.rollout.episodes.floors import RewardFloors
from clawrl_gym.rollout.episodes.stage import limits_of
from clawrl_gym.rollout.evaluation import Evaluation
from clawrl_gym.run.counts import TrainingCounts
from clawrl_gym.run.heldout import HeldOut
from clawrl_gym.run.observer import Observer
from clawrl_gym.run.services import RunServices
from clawrl_gym.run_folder.remote_checkpoints import copied_checkpoints
from clawrl_gym.store import UpdateRow
from clawrl_gym.trainers.algorithms.algorithm import build_algorithm
from clawrl_gym.trainers.loop import Publication, TrainLoop, Update
from clawrl_gym.trainers.no_gradient import REMEDIES, NoGradient
from clawrl_gym.trainers.versions.health import warnings_of
from clawrl_gym.trainers.versions.kept_versions import KeptVersions
from clawrl_gym.trainers.versions.retention import Retention
from clawrl_gym.ui.report import write_report
from clawrl_gym.ui.training import TRAINING
from clawrl_gym.ui.transcripts import find_tokenizer
from clawrl_gym.ui.view import RunView, make_view


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A training run that has ended."""

    folder: Path
    report: Path
    """report.html of the run."""
    evaluations: dict[int, Evaluation]
    """Held-out evaluations of this process by the update after which they were made."""


async def train(config: RunConfig) -> TrainingRun:
    """Train as configured. Raises ClawError for what cannot be run."""
    lines: list[str] = []
    look = partial(preflight_training, say=lines.append)
    plan = await asyncio.to_thread(preflight_of_run, look, config)
    with private_files():
        return await _train(plan, lines)


async def _train(plan: Preflight[RunConfig], lines: list[str]) -> TrainingRun:
    config, folder = plan.config, plan.folder
    title = " ".join(filter(None, [control_words(config.control), str(folder.path)]))
    view = make_view(config.ui, TRAINING, title=title, total_steps=config.trainer.steps)
    try:
        for line in (*lines, *plan.notes):
            view.message(line)
        async with copied_checkpoints(config, folder, view.message):
            run = None if plan.is_complete else await _carried_out(plan, view)
        for line in await asyncio.to_thread(health_lines, folder.path, config):
            view.message(line)
        report = await asyncio.to_thread(write_report, folder.path)
        view.message(f"report: {report}")
    finally:
        view.close()
    if run is not None and run.stopped is not None and run.stopped.cause != "solved":
        raise TrainerError(
            f"{config.learner.most_without_gradient} updates in a row had no gradient, the last "
            f"one because {run.stopped.why}: {REMEDIES[run.stopped.cause]}; "
            "learner.most_without_gradient=null continues"
        )
    return TrainingRun(folder.path, report, {} if run is None else run.evaluations)


def health_lines(folder: Path, config: RunConfig) -> list[str]:
    """Warnings about a run, once more where its last lines are read."""
    rows = by_step(read_json_lines(folder / METRICS_FILE))
    return [warning.line for warning in warnings_of(rows, config.rollout.largest_lag)]


async def _carried_out(plan: Preflight[RunConfig], view: RunView) -> Run:
    """The run, which has ended; the view is closed with its parts."""
    config, folder = plan.config, plan.folder
    for env in plan.unprepared:
        await asyncio.to_thread(check_env, env, view.message)
    envs = [domain.env for domain in config.domains.values()]
    envs += [other.config for other in plan.extra_evaluations]
    services = RunServices(config, folder, view, envs)
    if not config.resume:
        folder.make(config)
    with INTERRUPTS.goes_on(folder.way_on("train")):
        async with AsyncExitStack() as stack:
            run = Run(plan, services, view)
            try:
                await run.start(stack)
                # The first to close: nobody waits for what it would still generate.
                stack.push_async_callback(services.policy.servers.stop)
                await run.learn()
            finally:
                view.close()
    return run


class Run:
    """One training run's parts, alive."""

    def __init__(
        self,
        plan: Preflight[RunConfig],
        services: RunServices,
        view: RunView,
    ) -> None:
        assert plan.tasks is not None  # of every training
        self._config = plan.config
        self._services = services
        self._tasks = plan.tasks
        self._stages = stages_of(plan.config)
        self._retention = Retention(plan.config.learner, plan.folder.checkpoints)
        self._view = view
        self._extra_evaluations = plan.extra_evaluations
        self._notes = plan.notes
        self._told: set[str] = set()
        """Messages about the curricula and the run's health that were shown."""
        self._new_groups: Iterator[int] = itertools.count()
        self._floors = RewardFloors()
        self.stopped: NoGradient | None = None
        """Why it ended before its last update."""

    @property
    def evaluations(self) -> dict[int, Evaluation]:
        """Held-out ones, by the updates before each."""
        return self._heldout.evaluations

    async def start(self, stack: AsyncExitStack) -> None:
        """Start every part; the engines, which take longest, beside all others."""
        config, services = self._config, self._services
        resumed = await services.open(stack, resume=config.resume is not None)
        cut_off = await self._close_open_episodes("its run was killed")
        if cut_off:
            self._view.message(f"{cut_off} episodes were open when the run was killed: closed")
        # After workers and gateway have ended, and before the store is closed.
        stack.push_async_callback(self._close_open_episodes, "its run ended before it")
        record_notes(services.folder.path, self._notes)
        algorithm = build_algorithm(config.trainer, config.rollout.group_size)
        self._judging = self._make_judging(stack, needs_hints=algorithm.needs_hints)
        services.end_cluster_with(stack)
        async with asyncio.TaskGroup() as starting:
            starting.create_task(services.policy.start(resumed))
            starting.create_task(self._start_beside_policy(stack, resumed))
        self._collector = Collector(
            config.rollout,
            services.policy.store,
            algorithm,
            lambda groups: self._dispatcher.release(groups),
            self._judging,
            on_verdict=lambda verdict: self._observer.judged(verdict),
            on_accepted=self._on_accepted,
            substitution=Substitution(config.control, config.seed),
            group_judges=self._make_group_judges(stack),
        )
        self._dispatcher = Dispatcher(
            config.rollout,
            limits_of(self._stages),
            self._tasks,
            self._pool,
            self._on_group,
            lambda episode: self._observer.episode(episode),
        )
        self._flow = Flow(
            self._pool,
            config.rollout.fixed_in_flight,
            services.policy.fleet.metrics,
            lambda limit, why: self._view.message(f"at most {limit} episodes in flight: {why}"),
            useful=config.rollout.useful_in_flight,
            weight_version=lambda: services.policy.servers.version,
        )
        self._observer = Observer(
            services.metrics,
            services.timeline,
            self._view,
            services.policy,
            TrainingCounts(
                config.trainer.steps,
                services.policy,
                self._pool,
                self._flow,
                self._collector,
                self._tasks.metrics,
                self._floors,
            ),
            find_tokenizer([services.policy.own_model]),
        )
        self._heldout = HeldOut(
            config,
            self._tasks,
            self._extra_evaluations,
            self._environments,
            services,
            self._view,
            self._observer.evaluation,
            self._floors,
        )
        self._references = services.references()
        if config.resume:
            await self._restore()

    def _make_judging(self, stack: AsyncExitStack, *, needs_hints: bool) -> dict[str, Judging]:
        """Make the judging of each environment's turns, where there is a judge."""
        judging = {}
        for name, domain in self._config.domains.items():
            env, judge_config = domain.env, domain.judge
            judge = self._services.judging(stack, judge_config, hints=needs_hints)
            if judge is not None:
                maker = VerdictMaker(judge, judge_config, not env.has_people, env.marks_failures)
                enhancer = self._services.enhancer(judge_config) if needs_hints else None
                judging[name] = Judging(maker, enhancer)
        return judging

    def _make_group_judges(self, stack: AsyncExitStack) -> dict[str, GroupJudge]:
        """Make what compares the replies of a group, where an environment asks for it."""
        return {
            name: self._services.group_judge(stack, domain.judge, domain.env.comparisons)
            for name, domain in self._config.domains.items()
            if domain.env.comparisons
        }

    async def _close_open_episodes(self, why: str) -> int:
        """Close open episodes, which nobody plays any more; returns how many there were."""
        try:
            return await self._services.policy.store.end_open_rollouts(why)
        except StoreError:  # a disk without room: the next start closes them
            return 0

    async def _start_beside_policy(self, stack: AsyncExitStack, resumed: UpdateRow | None) -> None:
        await self._services.start_cluster()
        await self._services.policy.listen(stack, Hooks(), host=self._services.cluster.host)
        async with self._services.cluster.required(), asyncio.TaskGroup() as starting:
            starting.create_task(self._services.start_learner(stack, resumed))
            starting.create_task(self._start_workers(stack))

    async def _start_workers(self, stack: AsyncExitStack) -> None:
        config, rollout = self._config, self._config.rollout
        workers, slots = rollout.workers, rollout.slots
        where = " on each node" if self._services.cluster.is_joined else ""
        self._view.phase("workers", f"{workers} with at most {slots} environments each{where}")
        environments = Environments(
            self._stages,
            self._services.policy.address,
            slots=slots,
            workers=workers,
            max_retries=rollout.max_retries,
            request_timeout_s=config.policy.request_timeout_s,
            growth_mb=config.rollout.growth_mb,
            cluster=self._services.cluster,
            say=self._view.message,
        )
        self._pool = await environments.start(stack)
        self._environments = environments
        self._view.phase("workers", "ready")

    async def _restore(self) -> None:
        """Go on where the run stopped: version, groups that wait, numbers still to be drawn."""
        services = self._services
        self._floors.restore(services.metrics.latest)
        self._dispatcher.version = services.policy.version
        groups = await services.policy.store.untrained_groups()
        compared = await services.policy.store.compared()
        self._collector.restore([group.samples for group in groups], compared)
        self._dispatcher.adopt(len(groups))
        outcomes = await services.policy.store.group_outcomes()
        begun = await services.policy.store.begun_groups()
        self._tasks.restore((TaskOutcome(*outcome) for outcome in outcomes), begun)
        used_numbers = await services.policy.store.group_numbers()
        self._new_groups = (number for number in itertools.count() if number not in used_numbers)
        self._view.message(
            f"resumed at version {services.policy.version}, {len(groups)} groups waiting"
        )

    async def learn(self) -> None:
        """The run itself: measure, collect and train at once, measure again."""
        config, services = self._config, self._services
        loop = TrainLoop(
            config.learner,
            services.learner,
            self._collector.batch,
            self._publish,
            self._on_update,
            KeptVersions(config.learner, services.folder.checkpoints),
            services.timeline,
            self._view.message,
            guard=services.guard(),
        )
        async with services.cluster.required(), asyncio.TaskGroup() as running:
            self._running = running
            watching = [
                running.create_task(services.policy.servers.watch()),
                running.create_task(self._observer.run()),
                running.create_task(self._flow.run()),
            ]
            if services.policy.version == 0:
                await self._heldout.measure(0)
                await self._begin_references()
            self._view.phase("training", f"{config.trainer.steps} updates")
            collecting = running.create_task(self._dispatcher.run(self._new_groups))
            self.stopped = await loop.run(
                services.policy.version, config.trainer.steps, config.learner.most_without_gradient
            )
            collecting.cancel()
            if self.stopped is not None:
                self._view.message(
                    f"training ends after {services.policy.version} of {config.trainer.steps} "
                    f"updates: the last {config.learner.most_without_gradient} had no gradient"
                )
            await self._measure_references(services.policy.version)
            await self._heldout.measure(services.policy.version)
            self._warn()
            for task in watching:
                task.cancel()

    async def _on_group(self, group: Group, started_s: float) -> None:
        ended_s = time.time()
        await self._collector.add(self._floors.settled_group(group))
        self._tell()
        if group.task.env in self._judging:
            self._services.timeline.add("judge", "group", ended_s, time.time(), group=group.id)
        self._services.timeline.add(
            "collect", "group", started_s, time.time(), group=group.id, version=group.version
        )

    def _on_accepted(self, group: Group) -> None:
        rewarded = [episode for episode in group.episodes_G if episode.reward is not None]
        solved = sum(episode.success for episode in rewarded)
        self._tasks.saw(TaskOutcome(group.id, group.task.id, len(rewarded), solved))
        self._tell()

    def _tell(self) -> None:
        """Show each new message about the tasks once."""
        for line in self._tasks.warnings:
            if line not in self._told:
                self._told.add(line)
                self._view.message(line)

    async def _publish(self, version: int) -> Publication:
        publication = await self._services.publish(version)
        self._dispatcher.version = self._services.policy.version
        return publication

    async def _on_update(self, update: Update) -> None:
        await self._services.record(update)
        self._dispatcher.release(update.batch.outstanding)
        learned_s = update.stats.duration_s if update.stats else 0.0
        self._dispatcher.pace(self._collector.ready_groups, update.waited_s, learned_s)
        await self._observer.update(update)
        if self._heldout.is_due(update.version):
            await self._measure_references(update.version)
        self._warn()
        self._heldout.begin_if_due(update.version, self._running)
        await self._retention.recorded(update.checkpoint, self._heldout.kept)

    async def _begin_references(self) -> None:
        """Keep some of the held-out replies that the policy gave before the first update."""
        first = self._heldout.evaluations.get(0)
        if self._references is None or first is None:
            return
        store = self._services.policy.store
        replies = [
            next((turn for turn in await store.turns_of(e.session_id) if turn.kind == "main"), None)
            for e in first.episodes
        ]
        self._references.take([one for one in replies if one is not None])
        await self._measure_references(0)

    async def _measure_references(self, version: int) -> None:
        """Measure these replies with the learner's weights, which are this version's."""
        if self._references is None:
            return
        try:
            told = await self._references.measure(version)
        except (
            TrainerError
        ) as error:  # a measure only: a learner that died is restarted by its step
            self._view.message(f"reference replies were not read after {version} updates: {error}")
            return
        if told:
            self._services.metrics.log(version, told)

    def _warn(self) -> None:
        """Say what a reader must know before the reward, each cause once."""
        rows = self._services.metrics.history
        for warning in warnings_of(rows, self._config.rollout.largest_lag):
            if warning.cause not in self._told:
                self._told.add(warning.cause)
                self._view.message(warning.line)
