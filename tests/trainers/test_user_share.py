"""Share of a batch that one user may have where all share one set of weights."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawrl_gym.config import LiveConfig
from clawrl_gym.core.types import Group, Sample, TaskRef
from clawrl_gym.store import Store, UpdateRow
from clawrl_gym.trainers.batch_queue import Batch, BatchQueue
from clawrl_gym.trainers.user_share import Candidate, UserShare, influence_of

TASK = TaskRef(None, 0, "train")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = Store.open(tmp_path)
    yield store
    await store.close()


def by(user: str, number: int = 0, advantage: float = 1.0, tokens: int = 1) -> Sample:
    session = f"{user}/s" if user else "s"
    return Sample(
        session, number, [1] + [2] * tokens, [False] + [True] * tokens, [0.0] + [-1.0] * tokens,
        [-1] + [0] * tokens, [0.0] + [advantage] * tokens, advantage,
    )  # fmt: skip


class Service:
    """A queue that several people's samples come to."""

    def __init__(self, store: Store, people: int = 5, **live: object) -> None:
        config = LiveConfig.model_validate({"batch_turns": 8, "flush_s": 3600.0} | live)
        self.store = store
        self.queue = BatchQueue.live(config, store, share=UserShare.of(config, lambda: people))
        self.number = 0

    async def send(self, user: str, count: int = 1, **sample: float) -> None:
        for _ in range(count):
            self.number += 1
            made = by(user, self.number, **sample)  # type: ignore[arg-type]
            await self.queue.accept(Group(self.number, TASK, [], 0), [made])

    async def batch(self, version: int = 0) -> Batch | None:
        """The one that is due now; None: none is."""
        try:
            async with asyncio.timeout(0.05):
                return await self.queue.batch(version, version)
        except TimeoutError:
            return None


def users_of(batch: Batch | None) -> Counter[str]:
    assert batch is not None
    return Counter(sample.session_id.rpartition("/")[0] for sample in batch.samples)


async def test_a_user_who_alone_sends_makes_no_update_however_much_it_is(store: Store) -> None:
    service = Service(store)
    await service.send("eve", 200)
    assert await service.batch() is None
    assert service.queue.held == {"eve": 64}
    assert service.queue.counters["samples/dropped_over_share"] == 136


async def test_a_lone_owner_is_not_hampered(store: Store) -> None:
    service = Service(store)
    await service.send("", 8)
    assert users_of(await service.batch()) == {"": 8}


async def test_a_flood_takes_no_more_than_its_share_and_the_rest_waits(store: Store) -> None:
    service = Service(store)
    await service.send("eve", 30)
    await service.send("anna", 2)
    await service.send("", 4)
    batch = await service.batch()
    assert users_of(batch) == {"eve": 2, "anna": 2, "": 4}
    assert service.queue.held == {"eve": 28}
    assert batch is not None
    assert batch.group_ids is not None
    await store.add_update(UpdateRow(1, 1, 0.1, batch.groups, group_ids=batch.group_ids), [], "c")
    left = [group.id for group in await store.untrained_groups()]
    assert left == list(range(3, 31)), "what waits is what was not used"


async def test_long_replies_are_bounded_by_what_they_weigh(store: Store) -> None:
    service = Service(store)
    await service.send("eve", 2, tokens=500)
    await service.send("", 9, tokens=5)
    assert users_of(await service.batch()) == {"": 8}
    await service.send("eve", 2, tokens=6)
    await service.send("", 7, tokens=5)
    assert users_of(await service.batch())["eve"] == 1, "the two that are no longer than others'"


async def test_hints_weigh_too() -> None:
    sample = by("eve", tokens=3)
    taught = Sample(
        sample.session_id, 0, sample.ids_T, sample.mask_T, sample.logprobs_T, sample.versions_T,
        [0.0] * 4, 0.0, distill_T=[0.0, 1.0, 1.0, 2.0],
    )  # fmt: skip
    assert (influence_of(sample), influence_of(taught)) == (3.0, 4.0)


async def test_few_people_have_equal_parts_and_trusted_ones_all(store: Store) -> None:
    service = Service(store, people=2)
    await service.send("anna", 4)
    await service.send("", 4)
    assert users_of(await service.batch()) == {"anna": 4, "": 4}
    trusting = Service(store, trusted_users=["anna"])
    trusting.number = 100
    await trusting.send("anna", 8)
    assert users_of(await trusting.batch()) == {"anna": 8}
    unbounded = Service(store, user_share=None)
    unbounded.number = 200
    await unbounded.send("anna", 8)
    assert users_of(await unbounded.batch()) == {"anna": 8}


async def test_a_batch_is_large_enough_for_everybody_to_have_a_part(store: Store) -> None:
    service = Service(store, batch_turns=2)
    await service.send("eve")
    await service.send("", 2)
    assert await service.batch() is None, "one of three is more than a quarter"
    await service.send("")
    assert users_of(await service.batch()) == {"eve": 1, "": 3}


async def test_at_the_flush_there_is_what_fits(store: Store) -> None:
    service = Service(store, flush_s=0.02)
    await service.send("eve", 20)
    assert await service.batch() is None
    await service.send("", 3)
    assert users_of(await service.batch()) == {"eve": 1, "": 3}
    await service.send("")
    assert users_of(await service.batch()) == {"": 1}


async def test_what_waits_does_not_make_a_batch_of_each_new_sample(store: Store) -> None:
    service = Service(store, batch_turns=4)
    await service.send("eve", 5)
    await service.send("", 3)
    assert users_of(await service.batch()) == {"eve": 1, "": 3}
    await service.send("")
    assert await service.batch() is None


async def test_after_a_restart_the_same_groups_wait(store: Store) -> None:
    service = Service(store)
    await service.send("eve", 10)
    groups = await store.untrained_groups()
    again = Service(store)
    again.queue.restore([group.samples for group in groups], [group.id for group in groups])
    again.number = 10
    await again.send("", 6)
    batch = await again.batch()
    assert users_of(batch) == {"eve": 2, "": 6}
    assert batch is not None
    assert batch.group_ids == (1, 2, *range(11, 17))


@given(
    st.lists(
        st.builds(
            Candidate,
            st.sampled_from(["", "anna", "ben", "cleo", "eve"]),
            st.just(1),
            st.floats(0.0, 50.0),
        ),
        max_size=40,
    ),
    st.floats(0.05, 1.0),
    st.integers(1, 8),
    st.none() | st.integers(1, 12),
)
def test_no_batch_whatever_waits_gives_anybody_more_than_the_bound(
    candidates: list[Candidate], share: float, people: int, wanted: int | None
) -> None:
    rule = UserShare(share, lambda: people, frozenset({"cleo"}))
    picked = [candidates[at] for at in rule.fitting(candidates, wanted)]
    assert wanted is None or not picked or len(picked) >= wanted
    count, influence = Counter[str](), Counter[str]()
    for one in picked:
        count[one.user] += 1
        influence[one.user] += one.influence  # type: ignore[assignment]
    for user in ("anna", "ben", "eve"):
        assert count[user] <= rule.bound * len(picked) + 1e-6
        assert influence[user] <= rule.bound * influence.total() + 1e-6
