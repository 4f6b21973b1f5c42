"""RayWorker: a rollout worker in a process of the cluster, behind a plain handle."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from clawrl_gym.cluster.actors import compare_plugins, last_line, why_ended
from clawrl_gym.cluster.nodes import answer_of, placed_on
from clawrl_gym.core.errors import EnvError
from clawrl_gym.core.processes.pauses import growing_pauses_s
from clawrl_gym.core.types import Episode
from clawrl_gym.rollout.collection.batches import Batches, Beginning, Ending
from clawrl_gym.rollout.collection.pool import EpisodeRunner
from clawrl_gym.rollout.episodes.chat import PolicyAddress
from clawrl_gym.rollout.episodes.episode import EpisodeSpec
from clawrl_gym.rollout.episodes.stage import Stages


class RayWorker(EpisodeRunner):
    """A rollout worker in a Ray actor; restarted by Ray when its process dies."""

    def __init__(
        self,
        stages: Stages,
        slots: int,
        policy: PolicyAddress,
        request_timeout_s: float,
        growth_mb: int = 0,
        node_id: str | None = None,
    ) -> None:
        """`node_id`: it lives and dies with this node."""
        import ray

        from clawrl_gym.rollout.collection.worker import RolloutWorker, plugins_of

        actor = ray.remote(RolloutWorker).options(
            num_cpus=0,
            max_concurrency=slots + 8,
            max_restarts=-1,
            max_task_retries=0,
            **placed_on(node_id),
        )
        self._plugins = plugins_of(stages)
        self._actor = actor.remote(
            stages, slots, policy, request_timeout_s, self._plugins, growth_mb
        )
        self._batches = Batches(_Actor(self._actor))
        self._process_id = 0
        """Id of the process that is known to be ready."""

    async def ready(self) -> None:
        """Wait until it is ready. Raises ConfigError when its plug-ins are not this process's."""
        import ray.exceptions

        try:
            await answer_of(self._actor.ready.remote())
            if not self._process_id:
                await self._actor.may_be_replaced.remote()
                self._process_id = await self._actor.process_id.remote()
        except ray.exceptions.RayError:  # a class that is not there cannot even be handed over
            if not self._process_id:
                await compare_plugins(self._plugins)
            raise

    async def run(self, spec: EpisodeSpec) -> Episode:
        """Run an episode. Raises EnvError when the worker's process ends under it, WorkerRetired
        when it is about to."""
        import ray.exceptions

        try:
            return await self._batches.run(spec)
        except ray.exceptions.RayActorError as error:
            raise EnvError(f"its process ended{why_ended(error)}") from None
        except ray.exceptions.RayTaskError as error:
            raise EnvError(last_line(error)) from None

    async def recovered(self) -> None:
        """Answers once Ray has started another process, or the existing one continues."""
        import ray.exceptions

        for pause_s in growing_pauses_s(0.1, 1.0):
            with contextlib.suppress(ray.exceptions.RayError):
                if await self._actor.process_id.remote() != self._process_id:
                    self._process_id = 0
                    return await self.ready()
                if not await self._actor.retire_if_empty.remote():
                    return
            await asyncio.sleep(pause_s)

    def kill(self) -> None:
        """End its process; Ray starts another one."""
        import ray

        ray.kill(self._actor, no_restart=False)

    async def close(self) -> None:
        self._batches.close()
        await self._actor.close.remote()


class _Actor:
    """A worker's actor, as batches go to it."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    async def begin(self, epoch: int, is_first: bool, beginnings: list[Beginning]) -> None:
        await self._actor.begin.remote(epoch, is_first, beginnings)

    async def ended(self, epoch: int) -> list[Ending]:
        endings: list[Ending] = await self._actor.ended.remote(epoch)
        return endings
