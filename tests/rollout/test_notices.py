"""What a worker's process warns of reaches the people who started the run."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import gymnasium

from clawrl_gym.config import AgentConfig
from clawrl_gym.core.types import TaskRef
from clawrl_gym.envs.gym.config import GymEnvConfig
from clawrl_gym.envs.sandbox.room import Room
from clawrl_gym.envs.spaces import Unicode
from clawrl_gym.rollout.collection.worker import RolloutWorker
from clawrl_gym.rollout.episodes.chat import PolicyAddress
from clawrl_gym.rollout.episodes.episode import EpisodeSpec
from clawrl_gym.rollout.episodes.stage import one_stage
from clawrl_gym.rollout.notices import Notices


def plenty() -> int:
    return 10_000


ROOM = Room(1, "uid ranges", plenty, wait_s=0.05)


class Crowded(gymnasium.Env[str, str]):  # type: ignore[misc]
    """There is room for one of them, which stays."""

    observation_space = action_space = Unicode()

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        ROOM.enter()
        return "go", {}


async def _notices(is_own_process: bool) -> list[str | None]:
    config = GymEnvConfig(target=f"{__name__}:Crowded")
    address = PolicyAddress("http://127.0.0.1:1", "k", "m")
    worker = RolloutWorker(one_stage(config, AgentConfig(type="text")), 1, address, 1.0)
    if is_own_process:
        worker.may_be_replaced()
    notices = []
    for number in range(4):
        spec = EpisodeSpec(f"s{number}", 0, TaskRef(None, 1, "train"), 1, 5.0)
        notices.append((await worker.run(spec)).notice)
    await worker.close()
    return notices


def notices_of(is_own_process: bool) -> list[str | None]:
    return asyncio.run(_notices(is_own_process))


def test_more_environments_than_there_is_room_for_are_told_once() -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        first, second, *others = process.submit(notices_of, True).result(120)
    assert first is None
    assert second == (
        "environments wait for room, at 1 sandboxes of this process: no more uid ranges"
    )
    assert others == [None, None]


def test_a_worker_in_the_runs_own_process_tells_nothing_twice() -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        assert process.submit(notices_of, False).result(120) == [None] * 4


def test_warnings_that_differ_in_numbers_alone_are_one() -> None:
    notices = Notices()
    notices.listen()
    log = logging.getLogger("clawrl_gym.somewhere")
    for number in (1, 2):
        log.warning("%d are late", number)
    log.info("all is well")
    log.warning("the key Bearer abcdefghijkl is old")
    notices.close()
    log.warning("nobody listens")
    assert [notices.next(), notices.next(), notices.next()] == [
        "1 are late",
        "the key Bearer [hidden] is old",
        None,
    ]
