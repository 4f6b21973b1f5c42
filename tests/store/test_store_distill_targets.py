"""A sample with distillation targets comes back as it was, and its prompts cost little."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawrl_gym.core.types import DistillTarget, Sample
from clawrl_gym.store import Store, StoreReader
from clawrl_gym.store.training import (
    pack_distill_targets,
    sample_columns,
    sample_of,
    unpack_distill_targets,
)
from tests.store.test_store import make_group, make_sample, update
from tests.store.test_store_delete import session
from tests.store.test_store_delta import flat

HINT = list(range(900_000, 900_060))

ids = st.integers(0, 2**31 - 1)
runs = st.sampled_from([[1] * 40, list(range(50)), [7, 8, 9], list(range(90, 20, -1)), []])
prompts = st.lists(st.lists(runs, max_size=4).map(flat), max_size=3)
weights = st.floats(allow_nan=False)


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    ids_T = draw(st.lists(ids, max_size=5)) + flat(draw(st.lists(runs, max_size=5)))
    length = len(ids_T)
    target = st.builds(
        DistillTarget, st.integers(0, length), st.integers(0, length), prompts.map(tuple)
    )
    stream = st.lists(weights, min_size=length, max_size=length)
    return Sample(
        session_id="s1", group_id=0, ids_T=ids_T,
        mask_T=draw(st.lists(st.booleans(), min_size=length, max_size=length)),
        logprobs_T=draw(stream), versions_T=[-1] * length, advantages_T=draw(stream), reward=0.5,
        turn_id=draw(st.none() | ids), distill_T=draw(st.just([]) | stream),
        distill_targets=tuple(draw(st.lists(target, max_size=3))), id=7,
    )  # fmt: skip


@given(samples())
def test_a_sample_comes_back_as_it_was(sample: Sample) -> None:
    db = sqlite3.connect(":memory:")
    db.row_factory = sqlite3.Row
    columns = {"id": sample.id, **sample_columns(sample)}
    names = ", ".join(f"? AS {name}" for name in columns)
    assert sample_of(db.execute(f"SELECT {names}", tuple(columns.values())).fetchone()) == sample
    db.close()


@given(st.lists(ids, max_size=60), prompts)
def test_prompts_come_back_whatever_they_share_with_the_ids(
    ids_T: list[int], prompts: list[list[int]]
) -> None:
    targets = (DistillTarget(len(ids_T), 0, (*prompts, ids_T, ids_T[::-1], [])),)
    assert unpack_distill_targets(pack_distill_targets(targets, ids_T), ids_T) == targets


@pytest.mark.parametrize("refused", [-(2**31) - 1, 2**31])
def test_ids_that_no_vocabulary_has_are_refused(refused: int) -> None:
    with pytest.raises(OverflowError):
        pack_distill_targets([DistillTarget(0, 1, ([refused],))], [5])


def long_sample(name: str, turn_id: int | None = None) -> Sample:
    """An agent's reply after 12,000 ids; the hint stands before the results of its tools."""
    used = [number * 7919 % 150_000 for number in range(12_000)]
    reply = list(range(200))
    count = len(used) + len(reply)
    hinted = [*used[:8000], *HINT, *used[8000:]]
    other = [*used[:8000], *HINT[::-1], *used[8000:]]
    weights = [0.0] * len(used) + [0.75] * len(reply)
    return Sample(
        name, 0, used + reply, [False] * len(used) + [True] * len(reply), [-0.5] * count,
        [1] * count, [0.0] * count, -1.0, turn_id=turn_id, distill_T=weights,
        distill_targets=(DistillTarget(len(used), len(reply), (hinted, other, used)),),
    )  # fmt: skip


def test_a_prompt_costs_no_more_than_its_hint() -> None:
    sample = long_sample("s1")
    assert len(pack_distill_targets(sample.distill_targets, sample.ids_T)) < 1000
    columns: dict[str, Any] = sample_columns(sample)
    assert len(columns["lessons"]) + len(columns["distill"]) < len(columns["ids"]) / 10


async def test_a_past_batch_is_rebuilt_with_its_lessons(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await store.add_session(session("s1"))
    told = [long_sample("s1"), make_sample(0), replace(make_sample(0), distill_T=[0.0] * 3)]
    stored = await store.add_group(make_group(0), told)
    assert [replace(sample, id=None) for sample in stored] == told
    assert await store.untrained_samples() == stored
    batch = stored[::-1]
    await store.add_update(update(1), [sample.id or 0 for sample in batch], "checkpoints/1")
    await store.close()
    reader = StoreReader(tmp_path)
    assert reader.samples_of_update(1) == batch
    assert reader.samples_of_session("s1") == stored
    reader.close()
