"""The composition root: builds the parts of a run, starts them in order, stops them in reverse.

The only file that knows every part. Each part gets its own piece of the configuration.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

from clawrl_gym import cluster
from clawrl_gym.config import RunConfig, TerminalEnvConfig
from clawrl_gym.folder import RunFolder, folder_of
from clawrl_gym.live.gateway import Gateway, check_key
from clawrl_gym.metrics import Metrics, Timeline
from clawrl_gym.observer import Observer
from clawrl_gym.policy.client import PolicyClient
from clawrl_gym.policy.models import resolve_device, resolve_model
from clawrl_gym.policy.server import PolicyServer
from clawrl_gym.policy.swap import WeightSwap
from clawrl_gym.report import write_report
from clawrl_gym.rollout.collector import Collector
from clawrl_gym.rollout.dispatcher import Dispatcher
from clawrl_gym.rollout.evaluation import evaluate
from clawrl_gym.rollout.pool import WorkerPool
from clawrl_gym.rollout.tasks import TaskSource
from clawrl_gym.rollout.worker import build_env
from clawrl_gym.store import Store, UpdateRow
from clawrl_gym.trainers.grpo import Grpo
from clawrl_gym.trainers.loop import TrainLoop, Update
from clawrl_gym.types import Group
from clawrl_gym.ui.terminal import RunView, make_view


async def train(config: RunConfig) -> int:
    """Train as configured; returns the exit code. Raises ClawError for what cannot be run."""
    folder = RunFolder(Path(config.resume)) if config.resume else folder_of(config)
    tasks = TaskSource.of(config.env, config.seed)
    model = resolve_model(config.policy.model)
    device = resolve_device(config.policy.device)
    check_key(config.gateway)
    await asyncio.to_thread(_check_env, config)
    if config.resume:
        folder.require_space()
    else:
        folder.make(config)
    view = make_view(config.ui, total_steps=config.trainer.steps, title=str(folder.path))
    try:
        async with AsyncExitStack() as stack:
            run = Run(config, folder, tasks, model, device, view)
            await run.start(stack)
            await run.learn()
        report = await asyncio.to_thread(write_report, folder.path)
        view.message(f"report: {report}")
    finally:
        view.close()
    return 0


def _check_env(config: RunConfig) -> None:
    """Fail before anything starts when the environment cannot be made or isolated here."""
    env = build_env(config.env)
    try:
        if isinstance(config.env, TerminalEnvConfig):
            env.reset(seed=0)
    finally:
        env.close()


class Run:
    """One run's parts, alive."""

    def __init__(
        self,
        config: RunConfig,
        folder: RunFolder,
        tasks: TaskSource,
        model: Path,
        device: str,
        view: RunView,
    ) -> None:
        self._config = config
        self._folder = folder
        self._tasks = tasks
        self._model = model
        self._view = view
        self._device = device
        self._version = 0
        self._new_groups: Iterator[int] = itertools.count()

    async def start(self, stack: AsyncExitStack) -> None:
        """Start every part; what was started is on the stack even when a later one fails."""
        config, folder = self._config, self._folder
        self._metrics = Metrics(folder.path, config.logger, config.model_dump())
        stack.callback(self._metrics.close)
        self._timeline = Timeline(folder.path)
        stack.callback(self._timeline.close)
        self._store = Store.open(folder.path)
        stack.push_async_callback(self._store.close)
        resumed = await self._store.rollback_to_checkpoint() if config.resume else None
        self._server = PolicyServer(
            config.policy, self._model, folder.serving, folder.logs / "vllm.log", self._vllm_phase
        )
        stack.push_async_callback(self._server.stop)
        stack.callback(cluster.stop_cluster)
        async with asyncio.TaskGroup() as starting:
            starting.create_task(self._start_server(resumed))
            starting.create_task(self._start_cluster(stack, resumed))
        self._collector = Collector(
            config.rollout,
            self._store,
            Grpo(config.trainer.normalize_std),
            lambda groups: self._dispatcher.release(groups),
        )
        self._dispatcher = Dispatcher(
            config.rollout,
            config.env.max_turns,
            self._tasks,
            self._pool,
            self._on_group,
            lambda episode: self._observer.episode(episode),
        )
        self._observer = Observer(
            config.trainer.steps,
            self._metrics,
            self._timeline,
            self._view,
            self._gateway,
            self._pool,
            self._collector,
        )
        if config.resume:
            await self._restore(resumed)

    def _vllm_phase(self, phase: str) -> None:
        self._view.phase("vLLM", phase)

    async def _start_server(self, resumed: UpdateRow | None) -> None:
        if resumed is None or resumed.checkpoint is None:
            await self._server.start()
        else:
            weights = Path(resumed.checkpoint) / "model.safetensors"
            await self._server.start(resumed.version, weights)

    async def _start_cluster(self, stack: AsyncExitStack, resumed: UpdateRow | None) -> None:
        """Everything but vLLM, while vLLM starts."""
        self._view.phase("Ray", "starting")
        await asyncio.to_thread(cluster.start_cluster)
        self._view.phase("Ray", "ready")
        await self._start_gateway(stack)
        async with asyncio.TaskGroup() as starting:
            starting.create_task(self._start_learner(resumed))
            starting.create_task(self._start_workers(stack))

    async def _start_learner(self, resumed: UpdateRow | None) -> None:
        self._view.phase("learner", "loading the model")
        config = self._config
        self._learner = cluster.RayLearner(
            config.trainer,
            config.learner,
            str(self._model),
            config.seed,
            self._device,
            config.policy.sampling.temperature,
        )
        await self._learner.ready()
        if resumed is not None and resumed.checkpoint is not None:
            await self._learner.load_checkpoint(resumed.checkpoint)
        self._view.phase("learner", "ready")

    async def _start_gateway(self, stack: AsyncExitStack) -> None:
        config, server = self._config, self._server
        policy = PolicyClient(
            server.base_url,
            server.key,
            server.model_name,
            config.policy.request_timeout_s,
            config.gateway.max_waiting,
            always_parse=config.policy.reasoning_parser is not None,
        )
        stack.push_async_callback(policy.close)
        self._gateway = Gateway(
            config.gateway,
            config.policy.sampling,
            self._store,
            policy,
            server.model_name,
            config.policy.request_timeout_s,
        )
        self._swap = WeightSwap(server, hold=self._gateway.held)
        self._gateway_url = await self._gateway.start()
        stack.push_async_callback(self._gateway.stop)
        self._view.phase("gateway", f"ready at {self._gateway_url}")

    async def _start_workers(self, stack: AsyncExitStack) -> None:
        config = self._config
        address = (self._gateway_url, self._gateway.key, self._server.model_name)
        slots = config.rollout.envs_per_worker
        self._view.phase("workers", f"{config.rollout.workers} with {slots} environments each")
        workers = [
            cluster.RayWorker(
                config.env, config.agent, slots, address, config.policy.request_timeout_s
            )
            for _ in range(config.rollout.workers)
        ]
        for worker in workers:
            await worker.ready()
            stack.push_async_callback(worker.close)
        self._pool = WorkerPool(workers, slots)
        self._view.phase("workers", "ready")

    async def _restore(self, resumed: UpdateRow | None) -> None:
        """Go on where the run stopped: version, groups that wait, numbers still to be drawn."""
        self._version = 0 if resumed is None else resumed.version
        self._gateway.version = self._dispatcher.version = self._version
        groups = await self._store.untrained_groups()
        self._collector.restore([group.samples for group in groups])
        self._dispatcher.adopt(len(groups))
        known = await self._store.group_numbers()
        self._new_groups = (number for number in itertools.count() if number not in known)
        self._view.message(f"resumed at version {self._version}, {len(groups)} groups waiting")

    async def learn(self) -> None:
        """The run itself: measure, collect and train at once, measure again."""
        config = self._config
        loop = TrainLoop(
            config.learner,
            self._learner,
            self._collector.batch,
            self._publish,
            self._on_update,
            self._folder.checkpoints,
            self._timeline,
        )
        async with asyncio.TaskGroup() as running:
            watching = [
                running.create_task(self._server.watch()),
                running.create_task(self._observer.run()),
            ]
            if self._version == 0:
                await self._evaluate(0, config.eval.tasks)
            self._view.phase("training", f"{config.trainer.steps} updates")
            collecting = running.create_task(self._dispatcher.run(self._new_groups))
            await loop.run(self._version, config.trainer.steps)
            collecting.cancel()
            await self._evaluate(config.trainer.steps, config.eval.tasks)
            for task in watching:
                task.cancel()

    async def _on_group(self, group: Group, started_s: float) -> None:
        await self._collector.add(group)
        self._timeline.add(
            "collect", "group", started_s, time.time(), group=group.id, version=group.version
        )

    async def _publish(self, version: int) -> float:
        weights = self._folder.path / "weights"
        await self._learner.save_weights(str(weights))
        pause_s = await self._swap.publish(version, weights / "model.safetensors")
        self._gateway.version = self._dispatcher.version = version
        return pause_s

    async def _on_update(self, update: Update) -> None:
        row = UpdateRow(
            update.version,
            tokens=update.stats.tokens if update.stats else 0,
            duration_s=update.stats.duration_s if update.stats else 0.0,
            groups=update.batch.groups,
            metrics=update.stats.metrics if update.stats else {},
        )
        samples = [sample.id for sample in update.batch.samples if sample.id is not None]
        await self._store.add_update(row, samples, update.checkpoint)
        self._version = update.version
        self._dispatcher.release(update.batch.groups)
        await self._observer.update(update)
        every = self._config.eval.every
        if every and update.version % every == 0 and update.version < self._config.trainer.steps:
            await self._evaluate(update.version, self._config.eval.between_tasks)

    async def _evaluate(self, step: int, count: int) -> None:
        tasks = self._tasks.heldout(count if self._config.eval.tasks else 0)
        if not tasks:
            return
        rollout = self._config.rollout
        self._view.phase("held-out", f"{len(tasks)} tasks, after {step} updates")
        with self._timeline.span("collect", "held-out", step=step):
            result = await evaluate(
                tasks,
                self._pool,
                self._config.env.max_turns,
                rollout.episode_timeout_s,
                rollout.max_retries,
            )
        self._view.phase("held-out", "ready")
        self._observer.evaluation(step, result)
