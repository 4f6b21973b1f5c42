from __future__ import annotations

import asyncio
import json
import math
import os
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.core.errors import StoreError
from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.core.types import Group, Message, Sample, TaskRef, Turn, Verdict
from clawrl_gym.store import SessionRow, Store, StoreReader, UpdateRow
from clawrl_gym.store.schema import DATABASE_FILE

SESSION = SessionRow("s1", "count-1", 3, "train", "rollout", 10.0)
TASK = TaskRef("count-1", 7, "train")


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def reply(text: str) -> Message:
    return {"role": "assistant", "content": text}


def make_turn(index: int = 0, **changes: object) -> Turn:
    turn = Turn(
        session_id="s1",
        index=index,
        kind="main",
        prompt_ids_T=[1, 2, 3],
        sampled_ids_T=[4, 5],
        logprobs_T=[-0.1234567890123, None],
        versions_T=[0, 1],
        finish_reason="stop",
        messages=[user("hi \u2028 \U0001f600")],
        reply=reply("ho"),
        created_s=1.5,
    )
    return replace(turn, **changes)  # type: ignore[arg-type]


def make_sample(group_id: int = 0, version: int = 0) -> Sample:
    return Sample(
        "s1", group_id, [1, 2, 3], [False, True, True], [0.0, -0.25, -1e-9],
        [-1, version, version], [0.0, 1.5, 1.5], 1.0,
    )  # fmt: skip


def make_verdict(turn_id: int, value: Any = 1, kind: Any = "rule", **changes: Any) -> Verdict:
    return replace(Verdict(turn_id, kind, value, value, {"why": "said so"}, 2.5), **changes)


def make_group(number: int) -> Group:
    return Group(number, TASK, [], 0)


def update(version: int, groups: int = 1) -> UpdateRow:
    return UpdateRow(version, 6, 0.5, groups, {"loss": 0.25}, 99.0)


async def test_a_turn_comes_back_as_it_was(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await store.add_session(SESSION)
    turn = make_turn()
    position = await store.add_turn(turn)
    assert await store.turns_of("s1") == [replace(turn, id=position)]
    await store.close()


async def test_a_long_session_stores_only_what_each_turn_adds(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await store.add_session(SESSION)
    turns = [make_turn(prompt_ids_T=list(range(2000)), messages=[user("x" * 5000)])]
    for index in range(1, 40):
        last = turns[-1]
        turns.append(
            make_turn(
                index,
                prompt_ids_T=last.prompt_ids_T + last.sampled_ids_T + [index] * 20,
                messages=[*last.messages, last.reply, user(f"next {index}")],
            )
        )
    turns.append(make_turn(40, prompt_ids_T=[1, 9, 9], messages=[user("other")]))
    for turn in turns:
        await store.add_turn(turn)
    assert [replace(turn, id=None) for turn in await store.turns_of("s1")] == turns
    await store.close()
    assert (tmp_path / DATABASE_FILE).stat().st_size < 200_000
    assert (tmp_path / "conversations.jsonl").stat().st_size < 30_000
    reader = StoreReader(tmp_path)
    assert [replace(turn, id=None) for turn in reader.turns_of("s1")] == turns
    reader.close()


async def test_side_turns_are_told_apart_from_the_main_conversation(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await store.add_session(SESSION)
    await store.add_turn(make_turn(0))
    await store.add_turn(make_turn(1, kind="side", prompt_ids_T=[9]))
    await store.add_turn(make_turn(2, prompt_ids_T=[1, 2, 3, 4, 5, 6]))
    turns = await store.turns_of("s1")
    assert [(turn.kind, turn.prompt_ids_T) for turn in turns] == [
        ("main", [1, 2, 3]), ("side", [9]), ("main", [1, 2, 3, 4, 5, 6]),
    ]  # fmt: skip
    await store.close()


async def test_both_logs_tell_what_happened(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await store.add_session(SESSION)
    position = await store.add_turn(make_turn())
    await store.add_next_state(position, [user("fine")])
    await store.add_next_state(position, [user("a second record changes nothing")])
    assert await store.end_session("s1", reward=0.5, stop_reason="terminated")
    assert not await store.end_session("s1", reward=0.0, stop_reason="cancelled")
    await store.add_verdict(make_verdict(position, None))
    assert await store.next_states_of("s1") == {position: [user("fine")]}
    await store.close()
    conversations = read_json_lines(tmp_path / "conversations.jsonl")
    assert [(line["type"], line["id"], line["schema"]) for line in conversations] == [
        ("turn", position, 2), ("next_state", position, 2),
    ]  # fmt: skip
    assert conversations[0]["messages"] == [user("hi \u2028 \U0001f600")]
    end, verdict = read_json_lines(tmp_path / "evaluations.jsonl")
    assert (end["type"], end["reward"], end["stop_reason"]) == ("session_end", 0.5, "terminated")
    assert (verdict["type"], verdict["value"]) == ("verdict", None)


async def test_adding_a_session_twice_keeps_the_first(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    assert await store.add_session(SESSION)
    assert not await store.add_session(replace(SESSION, split="heldout"))
    assert await store.session("s1") == SESSION
    assert await store.session("nobody") is None
    await store.close()


async def test_what_does_not_fit_is_refused_alone(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await store.add_session(SESSION)
    outcomes = await asyncio.gather(
        store.add_turn(make_turn(0)),
        store.add_turn(make_turn(0)),
        store.add_turn(make_turn(1, session_id="nobody")),
        store.add_next_state(77, [user("x")]),
        store.end_session("nobody", reward=None, stop_reason="cancelled"),
        store.add_verdict(make_verdict(1, 5)),
        store.add_turn(make_turn(2, prompt_ids_T=[1 << 40])),
        store.add_turn(make_turn(3)),
        return_exceptions=True,
    )
    kinds = [type(outcome).__name__ for outcome in outcomes]
    assert kinds == ["int", *["StoreError"] * 5, "OverflowError", "int"]
    assert [turn.index for turn in await store.turns_of("s1")] == [0, 3]
    await store.close()


async def test_many_waiting_writers_share_a_commit(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await store.add_session(SESSION)
    ids = await asyncio.gather(*(store.add_turn(make_turn(index)) for index in range(500)))
    assert sorted(ids) == list(ids)
    assert store.commits < 50
    await store.close()


async def test_positions_of_samples_only_increase(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    first = await store.add_samples([make_sample(0), make_sample(1)])
    second = await store.add_samples([make_sample(0)])
    assert first + second == sorted(first + second)
    waiting = await store.untrained_samples()
    assert [sample.id for sample in waiting] == [first[0], second[0], first[1]]
    assert replace(waiting[0], id=None) == make_sample(0)
    await store.close()


async def test_a_past_batch_can_be_formed_again_in_its_order(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    a, b, c = [s.id or 0 for s in await store.add_group(make_group(5), [make_sample(5)] * 3)]
    await store.add_update(update(1), [c, a], "checkpoints/1")
    assert [sample.id for sample in await store.samples_of_update(1)] == [c, a]
    assert await store.samples_of_update(2) == []
    assert await store.updates() == [replace(update(1), checkpoint="checkpoints/1")]
    assert await store.untrained_samples() == [], f"{b} was left out of a group that is used up"
    await store.close()


async def test_groups_without_signal_keep_their_place_in_the_order(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    for number in (4, 1, 3):
        await store.add_group(make_group(number), [make_sample(number)] * (number != 1))
    await store.add_update(update(1, groups=1), [], None)
    groups = await store.untrained_groups()
    assert [(group.id, len(group.samples)) for group in groups] == [(1, 0), (3, 1)]
    assert await store.group_numbers() == {1, 3, 4}
    await store.close()


async def test_rollback_undoes_what_no_checkpoint_holds(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    ids = []
    for number in range(4):
        stored = await store.add_group(make_group(number), [make_sample(number)])
        ids.append(stored[0].id or 0)
    await store.add_update(update(1), [ids[0]], None)
    await store.add_update(update(2), [ids[1]], "checkpoints/2")
    await store.add_update(update(3), [ids[2]], None)
    await store.close()

    store = Store.open(tmp_path)
    last = await store.rollback_to_checkpoint()
    assert last == replace(update(2), checkpoint="checkpoints/2")
    assert [sample.id for sample in await store.untrained_samples()] == ids[2:]
    assert [group.id for group in await store.untrained_groups()] == [2, 3]
    assert await store.samples_of_update(3) == []
    await store.add_update(update(3), [ids[2]], "checkpoints/3")
    assert [sample.id for sample in await store.samples_of_update(3)] == [ids[2]]
    await store.close()


async def test_without_a_checkpoint_everything_waits_again(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    stored = await store.add_group(make_group(0), [make_sample(0)])
    await store.add_update(update(1), [stored[0].id or 0], None)
    assert await store.rollback_to_checkpoint() is None
    assert len(await store.untrained_samples()) == 1
    await store.close()


@pytest.mark.parametrize(
    ("version", "samples", "groups"), [(1, [], 0), (2, [1], 0), (2, [99], 0), (2, [2], 9)]
)
async def test_an_update_that_contradicts_the_store_leaves_no_trace(
    tmp_path: Path, version: int, samples: list[int], groups: int
) -> None:
    store = Store.open(tmp_path)
    await store.add_group(make_group(0), [make_sample(0), make_sample(0)])
    await store.add_update(update(1), [1], None)
    with pytest.raises(StoreError, match=r"refused a record|expected at most"):
        await store.add_update(update(version, groups), samples, "checkpoints/x")
    assert await store.updates() == [update(1)]
    db = sqlite3.connect(tmp_path / DATABASE_FILE)
    assert db.execute("SELECT count(*) FROM samples WHERE trained_by IS NOT NULL").fetchone() == (
        0,
    )
    db.close()
    await store.close()


async def test_samples_are_trained_only_with_a_checkpoint(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    for number in range(3):
        await store.add_group(make_group(number), [make_sample(number)])
    db = sqlite3.connect(tmp_path / DATABASE_FILE)
    query = "SELECT trained_by FROM samples ORDER BY id"
    await store.add_update(update(1), [1], None)
    assert db.execute(query).fetchall() == [(None,), (None,), (None,)]
    await store.add_update(update(2), [2], "checkpoints/2")
    assert db.execute(query).fetchall() == [(2,), (2,), (None,)]
    db.close()
    await store.close()


async def test_a_second_run_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    with pytest.raises(StoreError, match=f"still going .process {os.getpid()}"):
        Store.open(tmp_path)
    await store.add_session(SESSION)
    await store.close()
    await store.close()
    again = Store.open(tmp_path)
    assert await again.session("s1") == SESSION
    await again.close()


def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / DATABASE_FILE
    path.write_bytes(b"my notes, " * 100)
    with pytest.raises(StoreError, match="not a database"):
        Store.open(tmp_path)
    assert path.read_bytes() == b"my notes, " * 100


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / DATABASE_FILE)
    db.execute("CREATE TABLE meta (key, value)")
    db.commit()
    db.close()
    with pytest.raises(StoreError, match="a database of something else"):
        Store.open(tmp_path)


async def test_another_schema_version_is_refused(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await store.close()
    db = sqlite3.connect(tmp_path / DATABASE_FILE)
    db.execute("UPDATE meta SET value='999' WHERE key='schema_version'")
    db.commit()
    db.close()
    for opened in (Store.open, StoreReader):
        with pytest.raises(StoreError, match="schema version 999, expected 9"):
            opened(tmp_path)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot use the run folder"):
        Store.open(tmp_path / "file" / "run")


def test_reading_a_run_that_is_over_leaves_no_file_beside_it(tmp_path: Path) -> None:
    asyncio.run(Store.open(tmp_path).close())
    StoreReader(tmp_path).close()
    assert [path.name for path in tmp_path.glob("run.db*")] == ["run.db"]


async def test_a_run_may_end_while_somebody_reads(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await store.add_session(SESSION)
    reader = StoreReader(tmp_path)
    rows = reader.sessions()
    await store.close()
    assert [row.id for row in (*rows, *reader.sessions())] == [SESSION.id] * 2
    reader.close()


def test_reading_where_no_run_is_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"expected a run's folder with a run\.db"):
        StoreReader(tmp_path)


async def test_nothing_can_be_written_after_the_close(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.add_session(SESSION)


async def test_log_lines_that_a_crash_left_out_are_added(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await store.add_session(SESSION)
    position = await store.add_turn(make_turn())
    await store.add_next_state(position, [user("fine")])
    await store.end_session("s1", reward=None, stop_reason="cancelled")
    await store.close()
    log = tmp_path / "conversations.jsonl"
    before = read_json_lines(log)
    log.write_bytes(log.read_bytes()[:-30])
    (tmp_path / "evaluations.jsonl").write_text("")
    for _ in range(2):
        store = Store.open(tmp_path)
        await store.close()
        assert read_json_lines(log) == before
        assert len(read_json_lines(tmp_path / "evaluations.jsonl")) == 1


async def test_odd_text_and_numbers_survive(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await store.add_session(SESSION)
    odd = make_turn(
        messages=[user("\ud800 lone, \x00 nul, \x85 next line")],
        logprobs_T=[-math.inf, 1e-320],
        sampled_ids_T=[0, 2**31 - 1],
    )
    position = await store.add_turn(odd)
    assert await store.turns_of("s1") == [replace(odd, id=position)]
    await store.close()
    assert json.loads((tmp_path / "conversations.jsonl").read_text())["messages"] == odd.messages


async def test_episodes_that_nobody_plays_any_more_are_closed_and_conversations_are_not(
    tmp_path: Path,
) -> None:
    store = Store.open(tmp_path)
    for name in ("e1", "e2", "e3"):
        await store.add_session(replace(SESSION, id=name))
    await store.add_session(replace(SESSION, id="c", source="live"))
    await store.end_session("e1", reward=1.0, stop_reason="terminated")
    await store.close()
    store = Store.open(tmp_path)
    assert await store.end_open_rollouts("its run was killed") == 2
    assert await store.end_open_rollouts("its run was killed") == 0
    rows = {row.id: row for row in await store.sessions()}
    assert (rows["e1"].reward, rows["e1"].stop_reason) == (1.0, "terminated")
    assert (rows["e2"].reward, rows["e2"].stop_reason) == (None, "cancelled")
    assert rows["e3"].error == "its run was killed"
    assert rows["c"].ended_s is None
    await store.close()
    lines = read_json_lines(tmp_path / "evaluations.jsonl")
    assert [line["id"] for line in lines if line["type"] == "session_end"] == ["e1", "e2", "e3"]
