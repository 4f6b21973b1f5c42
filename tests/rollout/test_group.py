"""A group's attempts: what infrastructure ended is run again, later and later."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from clawrl_gym.config import RolloutConfig
from clawrl_gym.core.types import Episode, StopReason, TaskRef
from clawrl_gym.rollout.collection.group import run_group
from clawrl_gym.rollout.collection.pool import EpisodeRunner, WorkerPool
from clawrl_gym.rollout.episodes.episode import EpisodeLimits, EpisodeSpec
from tests.rollout.virtual_time import run_in_virtual_time


def test_attempts_follow_after_growing_pauses_and_nothing_is_waited_for_after_the_last() -> None:
    started_s: list[float] = []

    class NeverUp(EpisodeRunner):
        async def run(self, spec: EpisodeSpec) -> Episode:
            started_s.append(asyncio.get_running_loop().time())
            return Episode(
                spec.session_id, spec.group_id, spec.task, StopReason.ENV_ERROR, None, turns=0
            )

    async def go() -> float:
        config = RolloutConfig(groups=1, group_size=1, max_retries=5)
        task = TaskRef("a", 1, "train")
        await run_group(
            0,
            task,
            0,
            config,
            EpisodeLimits(4, config.episode_timeout_s),
            WorkerPool([NeverUp()], 1),
            lambda episode: None,
        )
        return asyncio.get_running_loop().time()

    ended_s = run_in_virtual_time(go())
    pauses_s = [round(after - before, 3) for before, after in pairwise(started_s)]
    assert pauses_s == [0.2, 0.4, 0.8, 1.6, 2.0]
    assert ended_s == started_s[-1]
