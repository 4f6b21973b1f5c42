"""A run that is not recorded: the same store in memory, nothing of a conversation on the disk."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from clawrl_gym.core.errors import StoreError
from clawrl_gym.store import Store
from tests.store.test_store import make_group, make_sample, make_turn, make_verdict, update, user
from tests.store.test_store_delete import files_with, fill, session


async def test_defect_s4_training_goes_on_when_recording_is_off(tmp_path: Path) -> None:
    """S4: in the reference, switching the record off means that no sample is ever made."""
    store = Store.open(tmp_path, record=False)
    assert not store.records
    await store.add_session(session("alice"))
    turn = make_turn(session_id="alice", messages=[user("[alice] " * 400)])
    turn_id = await store.add_turn(turn)
    await store.add_next_state(turn_id, [user("[alice] no, shorter")])
    assert await store.unjudged(10) == [turn_id]
    await store.add_verdict(make_verdict(turn_id, -1, detail={"text": "[alice]"}))
    (verdict,) = await store.judged_without_sample()
    sample = replace(make_sample(0), session_id="alice", turn_id=verdict.turn_id)
    (stored,) = await store.add_group(make_group(0), [sample])
    await store.add_update(update(1), [stored.id or 0], "checkpoints/1")
    assert await store.samples_of_update(1) == [stored]
    assert await store.untrained_groups() == []
    assert await store.turns_of("alice") == [replace(turn, id=turn_id)]
    await store.end_session("alice", reward=None, stop_reason="idle")
    assert files_with(tmp_path, "alice") == []
    await store.close()
    assert files_with(tmp_path, "alice") == []
    assert sorted(files_with(tmp_path, "")) == ["run.db", "run.lock"]


async def test_learning_goes_on_from_the_last_checkpoint_after_a_restart(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await store.add_update(update(1, groups=0), [], "checkpoints/1")
    await store.close()
    store = Store.open(tmp_path, record=False)
    assert [row.version for row in await store.updates()] == [1]
    await store.add_group(make_group(0), [make_sample(0)])
    await store.add_update(update(2), [1], "checkpoints/2")
    await store.add_update(update(3, groups=0), [], None)
    await store.close()
    for record in (False, True):
        store = Store.open(tmp_path, record=record)
        last = await store.rollback_to_checkpoint()
        assert last is not None
        assert (last.version, last.checkpoint, last.metrics) == (2, "checkpoints/2", {"loss": 0.25})
        assert [row.version for row in await store.updates()] == [1, 2]
        await store.add_update(update(3, groups=0), [], None)
        await store.close()


async def test_what_was_recorded_before_stays_and_is_not_mixed_in(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await fill(store, "alice", 1)
    await store.close()
    store = Store.open(tmp_path, record=False)
    assert await store.sessions() == []
    assert not await store.delete_session("alice")
    await fill(store, "bob", 2)
    assert await store.delete_sessions(["bob", "nobody"]) == 1
    assert await store.sessions() == []
    await store.close()
    store = Store.open(tmp_path)
    assert [row.id for row in await store.sessions()] == ["alice"]
    assert len(await store.untrained_groups()) == 1
    await store.close()


async def test_the_folder_is_held_without_recording_too(tmp_path: Path) -> None:
    store = Store.open(tmp_path, record=False)
    for record in (True, False):
        with pytest.raises(StoreError, match="still going"):
            Store.open(tmp_path, record=record)
    await store.close()
    await Store.open(tmp_path).close()


async def test_reads_and_writes_at_once_see_whole_transactions(tmp_path: Path) -> None:
    """One connection serves both: a read must never see half of a group, nor fail on a lock."""
    store = Store.open(tmp_path, record=False)

    async def write() -> None:
        for number in range(100):
            await store.add_group(make_group(number), [make_sample(number)] * 3)

    async def read() -> set[int]:
        sizes = set()
        for _ in range(100):
            sizes |= {len(group.samples) for group in await store.untrained_groups()}
            await store.session_summaries()
        return sizes

    _, *sizes = await asyncio.gather(write(), read(), read())
    assert sizes == [{3}, {3}]
    with pytest.raises(StoreError, match="a record"):
        await store.add_group(make_group(0), [])
    assert len(await store.untrained_samples()) == 300
    await store.close()
