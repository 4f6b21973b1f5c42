"""Deleting a session leaves no byte of it in the run's files, whatever goes on meanwhile."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.core.errors import StoreError
from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.core.types import Turn
from clawrl_gym.store import SessionRow, Store
from clawrl_gym.store.deletion import Deletion, digest_of, line_filter
from tests.store.test_store import (
    make_group,
    make_sample,
    make_turn,
    make_verdict,
    reply,
    update,
    user,
)

LOGS = ("conversations.jsonl", "evaluations.jsonl")


def session(name: str) -> SessionRow:
    return SessionRow(name, None, None, "train", "live", 10.0, matched_by="header")


def secret_turn(name: str, index: int, size: int = 1) -> Turn:
    """A turn with the session's name in each of its texts."""
    said = f"[{name}]" * size
    return make_turn(
        index,
        session_id=name,
        messages=[user(f"{index} {said}"), reply(said), user(said)],
        reply=reply(f"{index} {said}"),
    )


def files_with(folder: Path, text: str) -> list[str]:
    """Names of the files in which the text is, as bytes."""
    return [path.name for path in folder.iterdir() if text.encode() in path.read_bytes()]


async def until_gone(store: Store, name: str) -> None:
    """Until the rows are gone; the files are then still being cleaned."""
    while await store.session(name) is not None:
        pass


async def fill(store: Store, name: str, turns: int, size: int = 1) -> list[int]:
    """A live session with everything that can be known of it; returns the ids of its turns."""
    await store.add_session(session(name))
    ids = []
    for index in range(turns):
        turn_id = await store.add_turn(secret_turn(name, index, size))
        await store.add_next_state(turn_id, [user(f"[{name}]" * size)])
        await store.add_verdict(make_verdict(turn_id, detail={"text": f"[{name}]"}))
        sample = replace(make_sample(turn_id), session_id=name, turn_id=turn_id)
        group = make_group(turn_id)
        named = replace(group, task=replace(group.task, id=name))
        await store.add_group(named, [sample])
        ids.append(turn_id)
    await store.end_session(name, reward=1.0, stop_reason="idle", error=name)
    return ids


async def test_nothing_of_a_deleted_session_is_left_in_any_file(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await fill(store, "alice", 3, size=2000)
    kept = await fill(store, "bob", 2)
    assert sorted(files_with(tmp_path, "alice"))[:2] == list(LOGS)
    before = {name: read_json_lines(tmp_path / name) for name in LOGS}
    assert await store.delete_session("alice")
    assert files_with(tmp_path, "alice") == []
    for name in LOGS:
        own = [line for line in before[name] if "bob" in json.dumps(line)]
        assert read_json_lines(tmp_path / name) == own
        assert own
    assert await store.session("alice") is None
    assert await store.turns_of("alice") == []
    assert await store.samples_of_session("alice") == []
    assert [turn.id for turn in await store.turns_of("bob")] == kept
    groups = await store.untrained_groups()
    assert [len(group.samples) for group in groups] == [0, 0, 0, 1, 1]
    assert not await store.delete_session("alice")
    await store.close()
    assert files_with(tmp_path, "alice") == []


async def test_bytes_of_rows_that_moved_are_wiped_too(tmp_path: Path) -> None:
    """SQLite's secure_delete does not know of copies that stay behind when pages are balanced."""
    draw = random.Random(2)
    store = Store.open(tmp_path)
    names = [f"secret-{number}!" for number in range(60)]
    await asyncio.gather(*(store.add_session(session(name)) for name in names))
    turns = [make_turn(index, session_id=name) for name in names for index in range(4)]
    ids = await asyncio.gather(*(store.add_turn(turn) for turn in turns))
    told = list(zip(ids, turns, strict=True))
    draw.shuffle(told)  # out of order: this is what makes rows move
    states = [[user(f"[{turn.session_id}]" * draw.choice([1, 20, 60]))] for _, turn in told]
    writes = zip(told, states, strict=True)
    await asyncio.gather(*(store.add_next_state(turn_id, m) for (turn_id, _), m in writes))
    draw.shuffle(names)
    for at in range(0, 60, 20):
        assert len(files_with(tmp_path, f"[{names[at]}]")) == 2
        await store.delete_sessions(names[at : at + 20])
        gone = names[: at + 20]
        assert [name for name in gone if files_with(tmp_path, f"[{name}]")] == []
        left = [row.id for row in await store.sessions()]
        assert sorted(left) == sorted(names[at + 20 :])
    await store.close()
    db = sqlite3.connect(tmp_path / "run.db")
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()


async def test_what_comes_late_for_a_deleted_session_is_refused(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    (turn_id,) = await fill(store, "alice", 1)
    await store.delete_session("alice")
    for late in (
        store.add_turn(secret_turn("alice", 1)),
        store.add_next_state(turn_id, [user("alice")]),
        store.add_verdict(make_verdict(turn_id)),
        store.end_session("alice", reward=None, stop_reason="idle"),
    ):
        with pytest.raises(StoreError):
            await late
    sample = replace(make_sample(90), session_id="alice", turn_id=turn_id)
    assert await store.add_group(make_group(90), [sample]) == [], "its group stays, empty"
    assert [(group.id, group.samples) for group in await store.untrained_groups()][-1] == (90, [])
    await store.set_yield("alice", 1, None)
    await store.settle(turn_id)
    assert files_with(tmp_path, "alice") == []
    await store.close()


async def test_a_batch_that_trains_during_the_deletion_is_recorded(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await fill(store, "alice", 1)
    await fill(store, "bob", 1)
    one, two = [group.samples[0].id or 0 for group in await store.untrained_groups()]
    await store.delete_session("alice")
    await store.add_update(update(1, groups=2), [one, two], "checkpoints/1")
    assert [sample.session_id for sample in await store.samples_of_update(1)] == ["bob"]
    await store.delete_session("bob")
    assert await store.samples_of_update(1) == []
    assert [row.version for row in await store.updates()] == [1]
    assert files_with(tmp_path, "bob") == []
    await store.close()


async def test_positions_are_not_given_again_after_a_deletion(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    (old,) = await fill(store, "alice", 1)
    await store.delete_session("alice")
    await store.close()
    store = Store.open(tmp_path)
    (new,) = await fill(store, "bob", 1)
    assert new == old + 1
    (verdict,) = (await store.verdicts_of("bob"))[new]
    assert verdict.id == 2
    await store.close()


async def test_a_session_that_takes_the_id_of_a_deleted_one_stays(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await fill(store, "alice", 30, size=3000)
    deleting = asyncio.create_task(store.delete_session("alice"))
    await until_gone(store, "alice")
    await store.add_session(session("alice"))
    new = make_turn(session_id="alice", messages=[user("again")])
    turn_id = await store.add_turn(new)
    await store.end_session("alice", reward=None, stop_reason="idle")
    assert await deleting
    assert [line["id"] for line in read_json_lines(tmp_path / LOGS[0])] == [turn_id]
    assert [line["type"] for line in read_json_lines(tmp_path / LOGS[1])] == ["session_end"]
    assert files_with(tmp_path, "[alice]") == []
    assert await store.turns_of("alice") == [replace(new, id=turn_id)]
    await store.close()


async def test_deletions_and_writes_do_not_disturb_each_other(tmp_path: Path) -> None:
    """Whatever the order: what was acknowledged and not deleted is there, and nothing else."""
    draw = random.Random(11)
    store = Store.open(tmp_path)
    names = [f"talk-{number}!" for number in range(12)]
    there: dict[str, list[int]] = {name: [] for name in names}
    deleted: list[int] = []

    async def talk(name: str) -> None:
        for index in range(25):
            await asyncio.sleep(draw.choice([0, 0, 0.001]))
            try:
                await store.add_session(session(name))
                turn_id = await store.add_turn(secret_turn(name, index, draw.choice([1, 300])))
                there[name].append(turn_id)
                await store.add_next_state(turn_id, [user(f"after {name}")])
                await store.add_verdict(make_verdict(turn_id))
            except StoreError:
                continue  # deleted in between

    async def delete() -> None:
        for _ in range(20):
            await asyncio.sleep(draw.choice([0, 0.002]))
            chosen = draw.sample(names, draw.choice([1, 3]))
            before = {name: list(there[name]) for name in chosen}
            await store.delete_sessions(chosen)
            deleted.extend(turn_id for name in chosen for turn_id in before[name])

    await asyncio.gather(*(talk(name) for name in names), delete())
    stored = {turn.id or 0 for name in names for turn in await store.turns_of(name)}
    acknowledged = {turn_id for ids in there.values() for turn_id in ids}
    assert stored <= acknowledged
    assert not stored & set(deleted)
    lines: list[dict[str, Any]] = read_json_lines(tmp_path / LOGS[0])
    assert sorted(line["id"] for line in lines if line["type"] == "turn") == sorted(stored)
    told = [line["turn_id"] for line in read_json_lines(tmp_path / LOGS[1])]
    assert set(told) <= stored
    await store.delete_sessions(names)
    assert files_with(tmp_path, "talk-") == []
    await store.close()


async def test_a_deletion_goes_on_when_its_caller_is_gone(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await fill(store, "alice", 3, size=3000)
    asking = asyncio.create_task(store.delete_session("alice"))
    await until_gone(store, "alice")
    asking.cancel()
    await store.close()
    assert files_with(tmp_path, "alice") == []


async def test_what_a_reader_keeps_from_being_wiped_goes_later(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await fill(store, "alice", 3, size=50)
    other = sqlite3.connect(tmp_path / "run.db", isolation_level=None)
    other.execute("BEGIN")
    other.execute("SELECT count(*) FROM turns").fetchone()
    assert await store.delete_session("alice")
    assert files_with(tmp_path, "[alice]") != []
    await store.add_session(session("bob"))  # nobody waits for the reader
    other.close()
    await store.close()
    await Store.open(tmp_path).close()
    assert files_with(tmp_path, "alice") == []


async def test_a_deletion_that_was_cut_off_is_done_at_the_next_opening(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await fill(store, "alice", 2)
    await fill(store, "bob", 1)
    old = {name: (tmp_path / name).read_bytes() for name in LOGS}
    await store.delete_session("alice")
    await store.close()
    db = sqlite3.connect(tmp_path / "run.db")  # as a kill after the first transaction leaves it
    db.execute("INSERT INTO deletions VALUES (?, 2, 1e12)", (digest_of("alice"),))
    db.commit()
    db.close()
    for name in LOGS:
        (tmp_path / name).write_bytes(old[name])
        (tmp_path / f"{name}.new").write_text("a copy with alice in it")
    await Store.open(tmp_path).close()
    assert files_with(tmp_path, "alice") == []
    assert [line["session_id"] for line in read_json_lines(tmp_path / LOGS[0])] == ["bob"] * 2


@pytest.mark.parametrize(
    ("line", "stays"),
    [
        ('{"schema": 2, "type": "turn", "id": 5, "session_id": "a\\"b", "index": 0}', False),
        ('{"schema": 1, "type": "next_state", "id": 5, "session_id": "a\\"b"}', False),
        ('{"schema": 2, "type": "turn", "id": 6, "session_id": "a\\"b", "index": 0}', True),
        ('{"schema": 2, "type": "turn", "id": 5, "session_id": "ab", "index": 0}', True),
        ('{"schema": 2, "type": "verdict", "id": 9, "session_id": "a\\"b", "turn_id": 5}', False),
        ('{"schema": 2, "type": "verdict", "id": 2, "session_id": "a\\"b", "turn_id": 6}', True),
        ('{"schema": 1, "type": "session_end", "id": "a\\"b", "time_s": 7.0}', False),
        ('{"schema": 1, "type": "session_end", "id": "a\\"b", "time_s": 7.5}', True),
        ('{"schema": 2, "type": "turn", "id": 5, "session_id": "a\\"b", "mess', False),
        ('{"schema": 2, "type": "turn", "id": 5, "session_id": "a', False),
        ('{"schema": 9, "type": "other", "what": 1}', True),
        ("[1, 2]", True),
    ],
)
def test_lines_are_told_apart(line: str, stays: bool) -> None:
    keep = line_filter([Deletion(digest_of('a"b'), last_turn_id=5, asked_s=7.0)])
    assert keep(line.encode()) is stays


async def test_a_session_that_is_not_there_is_not_deleted(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await store.add_session(session("own"))
    assert not await store.delete_session("nobody")
    assert await store.delete_sessions(["nobody", "own"]) == 1
    assert not await store.delete_session("own")
    await store.close()
