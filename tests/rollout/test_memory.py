"""Leaks of environments: seen, cured by new ones, and by a new process where that is not enough."""

import asyncio
import itertools
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any, ClassVar

import gymnasium
import pytest

from clawrl_gym.config import AgentConfig
from clawrl_gym.core.types import TaskRef
from clawrl_gym.envs.gym.config import GymEnvConfig
from clawrl_gym.rollout.collection.pool import WorkerRetired
from clawrl_gym.rollout.collection.worker import RolloutWorker
from clawrl_gym.rollout.episodes.chat import PolicyAddress
from clawrl_gym.rollout.episodes.episode import EpisodeSpec
from clawrl_gym.rollout.episodes.stage import one_stage
from clawrl_gym.rollout.memory import Cure, MemoryWatch, resident_bytes

MIB = 1 << 20


def watch(readings: "itertools.chain[int] | itertools.repeat[int]", environments: int = 2) -> Any:
    return MemoryWatch(environments, 100, lambda: next(readings) * MIB)


def test_growth_while_environments_are_made_is_no_leak() -> None:
    memory = watch(itertools.chain([10, 900], itertools.repeat(950)))
    assert {memory.episode_ended() for _ in range(50)} == {Cure.NONE}


def test_a_leak_that_new_environments_free_is_cured_by_them() -> None:
    memory = watch(itertools.chain([10, 20, 60, 130], itertools.repeat(30)))
    cures = [memory.episode_ended() for _ in range(20)]
    assert cures == [Cure.NONE] * 3 + [Cure.RENEW] + [Cure.NONE] * 16


def test_a_leak_that_stays_ends_the_process() -> None:
    memory = watch(itertools.chain([10, 20], itertools.repeat(130)))
    cures = [memory.episode_ended() for _ in range(7)]
    assert cures[2] is Cure.RENEW
    assert cures[6] is Cure.RETIRE
    assert "grew by 110 MiB in 5 episodes, 55.0 MiB for each of 2 environments" in memory.words


def test_nothing_is_watched_where_that_is_not_wanted() -> None:
    memory = MemoryWatch(1, 0, lambda: 1 << 60)
    assert {memory.episode_ended() for _ in range(9)} == {Cure.NONE}
    assert resident_bytes() > MIB


class Leaks(gymnasium.Env[str, str]):  # type: ignore[misc]
    """Keeps 32 MiB of every episode, as long as it lives."""

    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.kept: list[bytes] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.kept.append(bytes(range(256)) * (32 * MIB // 256))
        return "go", {}


class LeaksForEver(Leaks):
    """Keeps it in its module."""

    made = 0
    everything: ClassVar[list[bytes]] = []

    def __init__(self) -> None:
        super().__init__()
        self.kept = self.everything


async def _notices(name: str, replaceable: bool) -> list[str | None]:
    config = GymEnvConfig(target=f"{__name__}:{name}")
    address = PolicyAddress("http://127.0.0.1:1", "k", "m")
    worker = RolloutWorker(
        one_stage(config, AgentConfig(type="text")), 1, address, 1.0, growth_mb=48
    )
    if replaceable:
        worker.may_be_replaced()
    notices: list[str | None] = []
    for number in range(6):
        spec = EpisodeSpec(f"s{number}", 0, TaskRef(None, 1, "train"), 1, 5.0)
        try:
            notices.append((await worker.run(spec)).notice)
        except WorkerRetired:
            notices.append("retired")
    await worker.close()
    return notices


def notices_of(name: str, replaceable: bool) -> tuple[list[str | None], int]:
    """What a worker with one environment says of six episodes, whose policy is not there; and how
    many environments were made."""
    return asyncio.run(_notices(name, replaceable)), globals()[name].made


@pytest.fixture
def process() -> Iterator[ProcessPoolExecutor]:
    """One whose memory nothing else uses: other tests' garbage would be taken for a cure."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield pool


async def _ends_at_once() -> bool:
    address = PolicyAddress("http://127.0.0.1:1", "k", "m")
    config = GymEnvConfig(target=f"{__name__}:Leaks")
    worker = RolloutWorker(one_stage(config, AgentConfig(type="text")), 1, address, 1.0)
    ends = worker.retire_if_empty()
    await worker.close()
    return ends


def ends_at_once() -> bool:
    """Whether a worker that has nothing to do says that it is to be replaced; ending it would end
    this process."""
    return asyncio.run(_ends_at_once())


def test_an_idle_worker_is_not_ended_for_room_that_nobody_needs(
    process: ProcessPoolExecutor,
) -> None:
    assert not process.submit(ends_at_once).result(120)


def test_a_worker_makes_leaking_environments_anew_and_says_so(process: ProcessPoolExecutor) -> None:
    notices, made = process.submit(notices_of, "Leaks", True).result(120)
    assert [notice is None for notice in notices] == [True, True, False, True, True, False]
    assert "its environments are recreated" in (notices[2] or "")
    assert made == 2


@pytest.mark.parametrize(
    ("replaceable", "words"),
    [(True, "it is replaced"), (False, "stop the run before memory is full")],
)
def test_a_leak_that_new_environments_do_not_free_asks_for_more(
    process: ProcessPoolExecutor, replaceable: bool, words: str
) -> None:
    notices, _ = process.submit(notices_of, "LeaksForEver", replaceable).result(120)
    assert "its environments are recreated" in (notices[2] or "")
    assert f"new environments freed nothing: {words}" in (notices[4] or "")
    assert (notices[5] == "retired") is replaceable
