"""Episodes to a worker's process and back: few calls, and nothing is waited for that is lost."""

import asyncio
from dataclasses import dataclass, field

import pytest

from clawrl_gym.core.errors import ClusterError, EnvError
from clawrl_gym.core.types import Episode, StopReason, TaskRef
from clawrl_gym.rollout.collection.batches import (
    Batches,
    Beginning,
    Ending,
    PlayedBatches,
    WorkerReplaced,
)
from clawrl_gym.rollout.collection.pool import WorkerRetired
from clawrl_gym.rollout.episodes.episode import EpisodeSpec

TASK = TaskRef("t", 0, "train")


def spec_of(name: str) -> EpisodeSpec:
    return EpisodeSpec(name, 0, TASK, max_turns=3, timeout_s=5.0)


@dataclass
class Process:
    """A worker's process, which may be replaced by another one."""

    calls: int = 0
    played: list[str] = field(default_factory=list)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    is_gone: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.may_end.set()
        self.replace()

    def replace(self) -> None:
        self._batches = PlayedBatches(self._run)

    async def playing(self, count: int) -> None:
        """Until so many have begun."""
        for _ in range(1000):
            if len(self.played) >= count:
                return
            await asyncio.sleep(0)
        raise AssertionError(f"{len(self.played)} episodes of {count} have begun")

    async def _run(self, spec: EpisodeSpec) -> Episode:
        self.played.append(spec.session_id)
        if spec.session_id == "retired":
            raise WorkerRetired
        if spec.session_id == "odd":
            raise ZeroDivisionError("inside")
        await self.may_end.wait()
        return Episode(spec.session_id, 0, TASK, StopReason.TERMINATED, 1.0, 2)

    async def begin(self, epoch: int, is_first: bool, beginnings: list[Beginning]) -> None:
        self.calls += 1
        self._batches.begin(epoch, is_first, beginnings)

    async def ended(self, epoch: int) -> list[Ending]:
        self.calls += 1
        ending = asyncio.ensure_future(self._batches.ended(epoch))
        gone = asyncio.ensure_future(self.is_gone.wait())
        await asyncio.wait({ending, gone}, return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            ending.cancel()
            raise ClusterError("the process ended")
        gone.cancel()
        return ending.result()


async def test_many_episodes_take_few_calls() -> None:
    process = Process()
    batches = Batches(process)
    for _ in range(3):
        names = [f"e{n}" for n in range(500)]
        episodes = await asyncio.gather(*(batches.run(spec_of(name)) for name in names))
        assert [episode.session_id for episode in episodes] == names
    assert len(process.played) == 1500
    assert process.calls <= 12
    batches.close()


async def test_an_episode_is_told_what_playing_it_raised() -> None:
    process = Process()
    batches = Batches(process)
    ends = await asyncio.gather(
        *(batches.run(spec_of(name)) for name in ("retired", "odd", "good")),
        return_exceptions=True,
    )
    assert isinstance(ends[0], WorkerRetired)
    assert isinstance(ends[1], EnvError)
    assert str(ends[1]) == "ZeroDivisionError: inside"
    assert isinstance(ends[2], Episode)
    batches.close()


async def test_what_was_under_way_in_a_process_that_ended_fails_and_others_go_on() -> None:
    process = Process()
    process.may_end.clear()
    batches = Batches(process)
    lost = [asyncio.create_task(batches.run(spec_of(f"l{n}"))) for n in range(3)]
    await process.playing(3)
    process.is_gone.set()
    for task in lost:
        with pytest.raises(ClusterError, match="the process ended"):
            await task
    process.is_gone.clear()
    process.replace()
    process.may_end.set()
    assert (await batches.run(spec_of("next"))).session_id == "next"
    batches.close()


async def test_a_process_that_was_replaced_unseen_is_found_out() -> None:
    """Between two calls: the new one knows nothing of what was begun in the old one."""
    process = Process()
    process.may_end.clear()
    batches = Batches(process)
    lost = asyncio.create_task(batches.run(spec_of("lost")))
    await process.playing(1)
    process.replace()
    later = asyncio.create_task(batches.run(spec_of("later")))
    for task in (lost, later):
        with pytest.raises(WorkerReplaced, match="has ended"):
            await task
    process.may_end.set()
    assert (await batches.run(spec_of("next"))).session_id == "next"
    batches.close()


async def test_one_that_nobody_waits_for_any_more_is_not_begun_or_forgotten() -> None:
    process = Process()
    process.may_end.clear()
    batches = Batches(process)
    never = asyncio.create_task(batches.run(spec_of("never")))
    await asyncio.sleep(0)
    never.cancel()
    given_up = asyncio.create_task(batches.run(spec_of("given up")))
    other = asyncio.create_task(batches.run(spec_of("other")))
    await process.playing(2)
    given_up.cancel()
    process.may_end.set()
    assert (await other).session_id == "other"
    assert sorted(process.played) == ["given up", "other"]
    batches.close()
