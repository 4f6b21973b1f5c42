"""Episodes of one environment, or of several, with one policy: in this process, or in Ray workers.

async with Environments(config.env, policy.address) as environments:
    episode = await environments.episode(task)
    group = await environments.group(task, size=8)
    evaluation = await environments.evaluate(tasks)
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Protocol, Self
from uuid import uuid4

from clawrl_gym.cluster.admission import Admission
from clawrl_gym.cluster.cluster import Cluster
from clawrl_gym.cluster.nodes import Node
from clawrl_gym.cluster.ray_worker import RayWorker
from clawrl_gym.cluster.roster import Roster, close_workers
from clawrl_gym.config import AgentConfig, EnvConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.types import Episode, Group, TaskRef
from clawrl_gym.rollout.collection.pool import EpisodeRunner, WorkerPool
from clawrl_gym.rollout.episodes.chat import PolicyAddress, chat_of
from clawrl_gym.rollout.episodes.episode import EpisodeSpec
from clawrl_gym.rollout.episodes.floors import RewardFloors
from clawrl_gym.rollout.episodes.stage import Stages, limits_of, one_stage, places_of
from clawrl_gym.rollout.evaluation import Evaluation, Ledger, evaluate

_CLOSE_S = 40.0
"""For the workers of this machine to close: longer than one environment may take."""
_CLOSING = 8
"""Sessions of lost episodes that are closed at a time."""


class Worker(EpisodeRunner, Protocol):
    """Holds environments, in this process or in another."""

    async def close(self) -> None: ...


class Environments:
    """A pool of environments, one for each slot; an asynchronous context manager."""

    def __init__(
        self,
        env: EnvConfig | Stages,
        policy: PolicyAddress,
        agent: AgentConfig | None = None,
        *,
        slots: int = 64,
        workers: int = 0,
        timeout_s: float = 120.0,
        max_retries: int = 3,
        request_timeout_s: float = 120.0,
        growth_mb: int = 1024,
        cluster: Cluster | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`env`: one, with its `agent` and the time of an episode; or the stages of a mixture.

        `slots` episodes at a time in each worker. `workers`: Ray actors; 0: this process.

        `request_timeout_s` of one reply of the policy; `growth_mb`:
        memory that a worker may gain before its environments are made anew. `cluster`: if it was
        joined, there are so many workers on each of its nodes. `say` gets a line for a worker or a
        node that fails, and for one that works again.
        """
        if slots < 1 or workers < 0:
            raise ConfigError(
                f"got slots={slots} and workers={workers}, expected at least 1 slot, and 0 workers "
                "(this process) or more"
            )
        self._stages = one_stage(env, agent, timeout_s) if isinstance(env, EnvConfig) else env
        self._limits = limits_of(self._stages)
        self._policy = policy
        self._slots = slots
        self._workers = workers
        self._max_retries = max_retries
        self._request_timeout_s = request_timeout_s
        self._growth_mb = growth_mb
        self._say = say
        self._numbers = itertools.count()
        self._stack = AsyncExitStack()
        self._cluster = cluster
        self._pool: WorkerPool | None = None

    async def start(self, stack: AsyncExitStack) -> WorkerPool:
        """Start the workers; `stack` closes them.

        Raises ConfigError when a cluster that was joined has no node for them.
        """
        chat = chat_of(self._policy, self._request_timeout_s, limit=_CLOSING)
        stack.push_async_callback(chat.close)

        async def close_session(spec: EpisodeSpec, episode: Episode) -> None:
            await chat.end(spec, episode, None)

        pool = WorkerPool(places=places_of(self._stages), on_lost=close_session, say=self._say)
        if self._workers and self._cluster is not None and self._cluster.is_joined:
            await self._roster(self._cluster, pool).start(stack)
        else:
            await self._hire(pool, stack)
        stack.callback(pool.close)
        pool.listen()
        self._pool = pool
        return pool

    async def _hire(self, pool: WorkerPool, stack: AsyncExitStack) -> None:
        """Workers on this machine."""
        workers = [self._worker() for _ in range(max(1, self._workers))]
        hired: list[Worker] = []
        stack.push_async_callback(close_workers, hired, _CLOSE_S)
        for worker in workers:
            await worker.ready()
            hired.append(worker)
            pool.add(worker, self._slots)

    @property
    def pool(self) -> WorkerPool:
        """The workers. Raises ConfigError before they are started."""
        if self._pool is None:
            raise ConfigError(
                "the environments are not started: use them in `async with Environments(...) as "
                "environments:`"
            )
        return self._pool

    async def episode(
        self, task: TaskRef, *, temperature: float | None = None, group_id: int | None = None
    ) -> Episode:
        """One episode, whatever became of it; None takes the policy's own temperature."""
        spec = EpisodeSpec(
            session_id=f"episode-{uuid4().hex[:12]}",
            group_id=group_id,
            task=task,
            max_turns=self._limits[task.env].max_turns,
            timeout_s=self._limits[task.env].timeout_s,
            temperature=temperature,
        )
        return await self.pool.run(spec)

    async def group(self, task: TaskRef, size: int, *, version: int = 0) -> Group:
        """`size` episodes of one task at once, to be compared; `version` is the policy's now.

        An episode that infrastructure ended has the reward None: it takes no part in a comparison.
        """
        number = next(self._numbers)
        episodes_G = await asyncio.gather(
            *(self.episode(task, group_id=number) for _ in range(size))
        )
        return Group(number, task, list(episodes_G), version)

    async def evaluate(
        self,
        tasks: Sequence[TaskRef],
        *,
        temperature: float = 0.0,
        ks: Sequence[int] = (),
        samples: int = 0,
        ledger: Ledger | None = None,
        floors: RewardFloors | None = None,
    ) -> Evaluation:
        """Every task once, and `samples` times more, for pass@k with each of `ks`; not again what
        the ledger has. `floors`: what rewards the run has seen before.

        Raises EnvError when infrastructure lost most of them.
        """
        return await evaluate(
            list(tasks),
            self.pool,
            self._limits,
            self._max_retries,
            temperature,
            ks,
            samples,
            ledger,
            floors,
        )

    async def __aenter__(self) -> Self:
        try:
            await self.start(self._stack)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    def _worker(self) -> Worker:
        if self._workers:
            return self._ray_worker(None, self._stages, self._slots)
        from clawrl_gym.rollout.collection.worker import RolloutWorker

        return RolloutWorker(
            self._stages,
            self._slots,
            self._policy,
            self._request_timeout_s,
            growth_mb=self._growth_mb,
        )

    def _ray_worker(self, node: Node | None, stages: Stages, slots: int) -> RayWorker:
        return RayWorker(
            stages,
            slots,
            self._policy,
            self._request_timeout_s,
            self._growth_mb,
            None if node is None else node.id,
        )

    def _roster(self, cluster: Cluster, pool: WorkerPool) -> Roster:
        return Roster(
            cluster,
            pool,
            self._stages,
            Admission(self._stages, self._say).admit,
            self._ray_worker,
            workers=self._workers,
            slots=self._slots,
            node_timeout_s=cluster.node_timeout_s,
            say=self._say,
        )
