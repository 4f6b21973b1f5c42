"""Batches of accepted groups: in the store's order, nothing lost, awake on arrival."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawrl_gym.config import LearnerConfig, LiveConfig, RolloutConfig
from clawrl_gym.core.metrics import Timeline
from clawrl_gym.core.types import DistillTarget, Group, Sample, StepStats, TaskRef
from clawrl_gym.store import Store, UpdateRow
from clawrl_gym.trainers.algorithms.advantage import group_advantages
from clawrl_gym.trainers.batch_queue import Batch, BatchQueue, ByGroups, ByTurns
from clawrl_gym.trainers.loop import Publication, TrainLoop, Update
from clawrl_gym.trainers.sample_batch import SampleBatch
from clawrl_gym.trainers.versions.kept_versions import KeptVersions
from tests.support.fakes_judge import a_turn, live_session, stored

TASK = TaskRef("t", 0, "train")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = Store.open(tmp_path)
    yield store
    await store.close()


def sample(number: int, advantage: float = 1.0, version: int = 0, **changes: object) -> Sample:
    return Sample(
        session_id="s",
        group_id=number,
        ids_T=[1, number],
        mask_T=[False, True],
        logprobs_T=[0.0, -1.0],
        versions_T=[-1, version],
        advantages_T=[0.0, advantage],
        reward=advantage,
        **changes,  # type: ignore[arg-type]
    )


async def accept(ready: BatchQueue, number: int, *samples: Sample) -> list[Sample]:
    return await ready.accept(Group(number, TASK, [], 0), list(samples))


async def accept_turns(ready: BatchQueue, numbers: range, version: int = 0) -> None:
    for number in numbers:
        await accept(ready, number, sample(number, version=version))


async def due(ready: BatchQueue, version: int = 0) -> Batch:
    """The batch that is due now."""
    async with asyncio.timeout(60):
        return await ready.batch(version, version)


async def is_waiting(ready: BatchQueue, version: int = 0) -> bool:
    try:
        async with asyncio.timeout(0.03):
            await ready.batch(version, version)
    except TimeoutError:
        return True
    return False


def live(store: Store, turns: int, flush_s: float = 3600.0, max_staleness: int = 64) -> BatchQueue:
    config = LiveConfig(batch_turns=turns, flush_s=flush_s, max_staleness=max_staleness)
    return BatchQueue.live(config, store)


def numbers(batch: Batch) -> list[int]:
    return [sample.group_id for sample in batch.samples]


async def test_batch_n_is_groups_n_b_and_the_next_ones(store: Store) -> None:
    ready = BatchQueue.training(RolloutConfig(groups=2), store)
    for number in (7, 3, 9, 1):
        await accept(ready, number, sample(number), sample(number))
    assert numbers(await due(ready)) == [7, 7, 3, 3]
    assert numbers(await due(ready)) == [9, 9, 1, 1]


async def test_a_group_without_signal_fills_its_place_in_training(store: Store) -> None:
    ready = BatchQueue(store, ByGroups(2), max_staleness=2)
    await accept(ready, 1)
    await accept(ready, 2, sample(2))
    batch = await due(ready)
    assert (numbers(batch), batch.groups) == ([2], 2)


def dynamic(store: Store, groups: int = 2) -> BatchQueue:
    config = RolloutConfig(groups=groups, dynamic_sampling=True)
    return BatchQueue.training(config, store)


async def test_with_dynamic_sampling_a_batch_is_made_of_groups_that_teach(store: Store) -> None:
    ready = dynamic(store)
    for number, samples in enumerate([[], [sample(1)], [sample(2, advantage=0.0)]]):
        await accept(ready, number, *samples)
    assert await is_waiting(ready)
    assert (ready.waiting_groups, ready.resampled_groups) == (3, 2)
    await accept(ready, 3, sample(3))
    await accept(ready, 4, sample(4))
    batch = await due(ready)
    assert (batch.groups, batch.outstanding) == (4, 2)
    assert [n for n in numbers(batch) if n != 2] == [1, 3]
    assert ready.waiting_groups == 1


async def test_with_dynamic_sampling_a_policy_that_solves_everything_goes_on(store: Store) -> None:
    ready = dynamic(store)
    for number in range(16):
        assert await is_waiting(ready)
        await accept(ready, number)
    batch = await due(ready)
    assert (batch.samples, batch.groups, batch.outstanding) == ([], 16, 0)


async def test_a_group_that_got_stale_does_not_keep_a_dynamic_batch_waiting(store: Store) -> None:
    ready = dynamic(store)
    await accept_turns(ready, range(2))
    batch = await due(ready, version=9)
    assert (batch.samples, batch.groups, batch.outstanding) == ([], 2, 2)


async def test_a_sample_of_hints_alone_teaches(store: Store) -> None:
    """Beside it, one without any weight neither fills a batch nor makes one due."""
    ready = live(store, turns=1)
    await accept(ready, 1, sample(1, advantage=0.0))
    assert await is_waiting(ready)
    taught = sample(
        2, advantage=0.0, distill_T=[0.0, 1.0], distill_targets=(DistillTarget(1, 1, ([5],)),)
    )
    await accept(ready, 2, taught)
    assert ready.waiting_samples == 1
    assert numbers(await due(ready)) == [1, 2]


async def test_a_resumed_run_forms_the_very_batches_that_would_have_come(store: Store) -> None:
    ready = BatchQueue(store, ByGroups(2), max_staleness=2)
    await accept_turns(ready, range(5))
    first = await due(ready)
    await store.add_update(
        UpdateRow(1, 0, 0.0, first.groups), [s.id or 0 for s in first.samples], None
    )
    resumed = BatchQueue(store, ByGroups(2), max_staleness=2)
    resumed.restore([group.samples for group in await store.untrained_groups()])
    assert numbers(await due(resumed)) == numbers(await due(ready)) == [2, 3]
    assert resumed.waiting_groups == 1


async def test_forty_samples_make_batches_of_16_16_and_8(store: Store) -> None:
    """The reference's drain takes the whole queue, keeps the first 16 and drops the rest."""
    ready = live(store, turns=16, flush_s=0.05)
    await accept_turns(ready, range(40))
    batches = [await due(ready) for _ in range(3)]
    assert [len(batch.samples) for batch in batches] == [16, 16, 8]
    assert [n for batch in batches for n in numbers(batch)] == list(range(40))
    assert sum(batch.groups for batch in batches) == 40


async def test_what_teaches_nothing_does_not_fill_a_batch(store: Store) -> None:
    """Fully masked samples of the reference count as part of its batch of 16."""
    ready = live(store, turns=2)
    for number in range(15):
        await accept(ready, number, sample(number, advantage=0.0))
    await accept(ready, 15, sample(15))
    assert await is_waiting(ready)
    await accept(ready, 16, sample(16))
    batch = await due(ready)
    assert batch.groups == 17
    assert numbers(batch)[-2:] == [15, 16]


async def test_one_sample_is_trained_on_at_the_flush(store: Store) -> None:
    ready = live(store, turns=8, flush_s=0.05)
    await accept(ready, 0)
    await accept(ready, 1, sample(1))
    assert 0 < ready.flush_in_s <= 0.05
    batch = await due(ready)
    assert (numbers(batch), batch.groups) == ([1], 2)


async def test_without_anything_to_learn_no_flush_makes_a_batch(store: Store) -> None:
    ready = live(store, turns=8, flush_s=0.005)
    await accept(ready, 0)
    await accept(ready, 1, sample(1, advantage=0.0))
    assert math.isnan(ready.flush_in_s)
    assert await is_waiting(ready)
    assert ready.waiting_samples == 0


async def test_stale_samples_are_dropped_counted_and_do_not_fill_a_batch(store: Store) -> None:
    ready = live(store, turns=2, max_staleness=3)
    await accept_turns(ready, range(3), version=0)
    await accept(ready, 3, sample(3, version=4))
    assert await is_waiting(ready, version=4)
    await accept(ready, 4, sample(4, version=1))
    batch = await due(ready, version=4)
    assert (numbers(batch), batch.groups) == ([3, 4], 5)
    assert ready.counters == {"groups/dropped_stale": 3, "samples/dropped_stale": 3}


async def test_a_group_is_trained_whole_or_not_at_all(store: Store) -> None:
    """One member that is too old, or was taken out, takes the others of its group with it."""
    ready = BatchQueue(store, ByGroups(4), max_staleness=2)
    members = [sample(0, 1.0, version=3), sample(0, -0.5, version=3), sample(0, -0.5, version=0)]
    await accept(ready, 0, *members)
    await accept(ready, 1, sample(1, 1.0, version=3), sample(1, -1.0, version=1))
    await accept(ready, 2, sample(2, 1.0, 3), replace(sample(2, -1.0, 3), session_id="deleted"))
    await accept(ready, 3)
    assert ready.forget("deleted") == 2
    batch = await due(ready, version=3)
    assert (numbers(batch), batch.groups) == ([1, 1], 4)
    assert ready.counters == {"groups/dropped_stale": 1, "samples/dropped_stale": 3}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6)), max_size=8), max_size=6))
def test_advantages_of_what_is_trained_sum_to_zero_within_each_group(
    groups: list[list[tuple[int, int]]],
) -> None:
    """Whatever members are too old: rewards and the versions that sampled them are drawn."""
    ready = BatchQueue(cast(Store, None), ByGroups(max(1, len(groups))), max_staleness=2)
    ready.restore([samples_from(at, group) for at, group in enumerate(groups)] or [[]])
    batch = asyncio.run(due(ready, version=6))
    by_group: dict[int, list[float]] = defaultdict(list)
    for one in batch.samples:
        by_group[one.group_id].append(one.advantages_T[1])
    for at, advantages in by_group.items():
        assert math.fsum(advantages) == pytest.approx(0, abs=1e-9)
        assert len(advantages) == len(groups[at])


def samples_from(number: int, group: list[tuple[int, int]]) -> list[Sample]:
    """Samples as GRPO makes them: (reward, version) of each member."""
    advantages = group_advantages([float(reward) for reward, _ in group], normalize_std=True)
    return [
        sample(number, advantage, version)
        for advantage, (_, version) in zip(advantages, group, strict=True)
    ]


async def test_an_arrival_wakes_the_waiting_loop(store: Store) -> None:
    ready = live(store, turns=2)
    waiting = asyncio.create_task(ready.batch(0, 0))
    await asyncio.sleep(0)
    await accept_turns(ready, range(2))
    async with asyncio.timeout(60):
        assert numbers(await waiting) == [0, 1]


async def test_a_sample_that_comes_while_waiting_starts_the_clock(store: Store) -> None:
    ready = live(store, turns=8, flush_s=0.02)
    waiting = asyncio.create_task(ready.batch(0, 0))
    await asyncio.sleep(0)
    await accept(ready, 0, sample(0))
    async with asyncio.timeout(60):
        assert numbers(await waiting) == [0]


async def test_a_cancelled_wait_loses_nothing(store: Store) -> None:
    ready = live(store, turns=2)
    await accept(ready, 0, sample(0))
    assert await is_waiting(ready)
    await accept(ready, 1, sample(1))
    assert numbers(await due(ready)) == [0, 1]


async def test_a_withdrawn_samples_group_stays_and_is_used_up_empty(store: Store) -> None:
    await live_session(store)
    turn = await stored(store, a_turn())
    assert turn.id is not None
    ready = live(store, turns=1)
    await accept(ready, 0, sample(0, turn_id=turn.id))
    assert ready.withdraw(turn.id) == 1
    assert ready.withdraw(turn.id) == 0
    assert await is_waiting(ready)
    await accept(ready, 1, sample(1))
    batch = await due(ready)
    assert (numbers(batch), batch.groups) == ([1], 2)


async def test_a_forgotten_session_leaves_no_sample(store: Store) -> None:
    ready = live(store, turns=2)
    await accept_turns(ready, range(2))
    assert ready.forget("s") == 2
    assert (ready.waiting_samples, ready.waiting_groups) == (0, 2)


async def test_after_a_restart_only_the_newest_sample_of_a_turn_is_left(store: Store) -> None:
    ready = live(store, turns=1)
    old, new = (sample(n, turn_id=5, id=n) for n in (10, 11))
    ready.restore([[old], [], [new]])
    batch = await due(ready)
    assert (batch.samples, batch.groups) == ([new], 3)


async def test_the_flush_rule_is_the_only_clock(store: Store) -> None:
    assert math.isnan(BatchQueue(store, ByGroups(1), 0).flush_in_s)
    assert math.isnan(BatchQueue(store, ByTurns(1, 1.0), 0).flush_in_s)


async def test_what_waited_long_is_used_before_it_is_too_old(store: Store) -> None:
    ready = live(store, turns=2, max_staleness=3)
    await accept_turns(ready, range(20))
    sizes, version = [], 0
    while ready.waiting_samples:
        batch = await ready.batch(version, version)
        sizes.append(len(batch.samples))
        version += 1
    assert sizes == [5, 5, 5, 5]
    assert not ready.counters["samples/dropped_stale"]


@dataclass
class Learner:
    """Steps at once and notes what it saw."""

    seen: list[list[int]] = field(default_factory=list)

    async def step(self, batch: SampleBatch, version: int) -> StepStats:
        self.seen.append([sample.group_id for sample in batch.samples()])
        return StepStats({}, 1, 0.0)

    async def save_checkpoint(self, folder: str) -> None: ...

    async def load_checkpoint(self, folder: str) -> None: ...

    async def reset(self) -> None: ...

    async def restart(self, checkpoint: str | None) -> None: ...


async def test_new_weights_serve_as_soon_as_a_batch_is_there(store: Store, tmp_path: Path) -> None:
    """The reference publishes the weights of batch n only after batch n + 1 was collected."""
    ready, learner = live(store, turns=2), Learner()
    published: asyncio.Queue[int] = asyncio.Queue()

    async def publish(version: int) -> Publication:
        published.put_nowait(version)
        return Publication()

    async def record(update: Update) -> None:
        row = UpdateRow(update.version, 0, 0.0, update.batch.groups)
        await store.add_update(row, [s.id or 0 for s in update.batch.samples], update.checkpoint)

    timeline = Timeline(tmp_path)
    loop = TrainLoop(
        LearnerConfig(), learner, ready.batch, publish, record,
        KeptVersions(LearnerConfig(), tmp_path / "checkpoints"), timeline,
    )  # fmt: skip
    running = asyncio.create_task(loop.run(0, 3))
    for version in (1, 2, 3):
        await accept_turns(ready, range(2 * version, 2 * version + 2))
        async with asyncio.timeout(60):
            assert await published.get() == version
    await running
    timeline.close()
    assert learner.seen == [[2, 3], [4, 5], [6, 7]]


async def test_what_versions_that_were_taken_back_sampled_is_never_trained_on(store: Store) -> None:
    ready = live(store, turns=2)
    await accept_turns(ready, range(2), version=1)
    await accept_turns(ready, range(2, 3), version=3)
    assert ready.take_back(range(2, 5)) == 1
    await accept_turns(ready, range(4, 5), version=4)
    await accept_turns(ready, range(5, 7), version=5)
    assert numbers(await due(ready, 5)) == [0, 1]
    batch = await due(ready, 5)
    assert (numbers(batch), batch.groups) == ([5, 6], 4)
    assert ready.counters["samples/dropped_taken_back"] == 2
