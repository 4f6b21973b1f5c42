"""A group: G episodes of one task, each retried when infrastructure ended it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from clawrl_gym.config import RolloutConfig
from clawrl_gym.core.episode_ids import episode_id
from clawrl_gym.core.processes.pauses import growing_pauses_s
from clawrl_gym.core.types import Episode, Group, TaskRef
from clawrl_gym.rollout.collection.pool import WorkerPool
from clawrl_gym.rollout.episodes.episode import EpisodeLimits, EpisodeSpec


async def run_group(
    number: int,
    task: TaskRef,
    version: int,
    config: RolloutConfig,
    limits: EpisodeLimits,
    pool: WorkerPool,
    on_episode: Callable[[Episode], None],
) -> Group:
    """Run a whole group. `on_episode` sees every attempt, failed ones included."""

    async def attempt(member: int) -> Episode:
        pauses_s = growing_pauses_s(0.2, 2.0)
        for retry in range(config.max_retries + 1):
            if retry:
                await asyncio.sleep(next(pauses_s))
            spec = EpisodeSpec(
                session_id=episode_id(number, member, retry),
                group_id=number,
                task=task,
                max_turns=limits.max_turns,
                timeout_s=limits.timeout_s,
            )
            episode = await pool.run(spec)
            on_episode(episode)
            if not episode.may_be_run_again:
                break
        return episode

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(attempt(member)) for member in range(config.group_size)]
    return Group(number, task, [task.result() for task in running], version)
