"""A turn is stored as what it adds to the one before it, and comes back as it was."""

from __future__ import annotations

import json
import sqlite3
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawrl_gym.core.errors import StoreError
from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.core.types import Message, Turn
from clawrl_gym.dialogue.delta import (
    diff_ids,
    diff_messages,
    patch_ids,
    patch_messages,
    shared_prefix,
    shared_suffix,
)
from clawrl_gym.store import Store, StoreReader, turns
from clawrl_gym.store.schema import DATABASE_FILE
from tests.store.test_store import SESSION, make_turn, reply, user

SYSTEM = " ".join(f"rule {number}: be kind." for number in range(2000))
"""About 40,000 characters, as a coding agent's system message."""
SYSTEM_IDS = [number * 7919 % 150_000 for number in range(10_000)]

pieces = st.lists(st.sampled_from([[1] * 40, list(range(50)), [7, 8, 9], list(range(90, 20, -1))]))
texts = st.sampled_from(["", "ok", "a" * 300, "a" * 200 + "b" * 200, "é\ud800 \x00" * 100])
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user"]), "content": st.none() | texts | st.just([1, True])}
)


def flat(lists: list[list[int]]) -> list[int]:
    return [number for numbers in lists for number in numbers]


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))
def test_shared_ends_are_as_long_as_they_can_be(old: list[int], new: list[int]) -> None:
    prefix, suffix = shared_prefix(old, new), shared_suffix(old, new)
    assert old[:prefix] == new[:prefix]
    assert old[prefix : prefix + 1] != new[prefix : prefix + 1] or prefix in (len(old), len(new))
    assert suffix == shared_prefix(old[::-1], new[::-1])


@given(pieces, pieces)
def test_ids_come_back_whatever_they_share(old: list[list[int]], new: list[list[int]]) -> None:
    base, told = flat(old), flat(new)
    prefix, own, copies = diff_ids(array("i", base), array("i", told))
    patch_ids(base, prefix, list(own), copies)
    assert base == told


@given(st.lists(messages, max_size=6), st.lists(messages, max_size=6))
def test_messages_come_back_whatever_they_share(old: list[Any], new: list[Any]) -> None:
    prefix, items = diff_messages([json.dumps(m) for m in old], [json.dumps(m) for m in new])
    patch_messages(old, prefix, json.loads(items))
    assert [json.dumps(message) for message in old] == [json.dumps(message) for message in new]


def test_equal_numbers_of_other_types_are_told_apart() -> None:
    old: list[Any] = [{"role": "user", "content": [1, True]}]
    new: list[Any] = [{"role": "user", "content": [True, 1.0]}]
    prefix, items = diff_messages([json.dumps(m) for m in old], [json.dumps(m) for m in new])
    patch_messages(old, prefix, json.loads(items))
    assert json.dumps(old) == json.dumps(new)


def long_session(count: int, *, clock: bool) -> list[Turn]:
    """Turns like those of a coding agent: a long system message (its tail tells the time when
    `clock`), a growing history, and a block at the end that no later request has."""
    made: list[Turn] = []
    history: list[Message] = []
    ids: list[int] = []
    for index in range(count):
        tail = f" It is {index // 60:02}:{index % 60:02}." if clock else ""
        tail_ids = [160_000 + index] if clock else []
        history.append(user(f"question {index}: " + "why? " * 20))
        ids += [200_000 + index] * 20
        made.append(
            make_turn(
                index,
                prompt_ids_T=[*SYSTEM_IDS, *tail_ids, 5, *ids, *range(300, 400)],
                sampled_ids_T=[index, 8, 9],
                logprobs_T=[-0.5] * 3,
                versions_T=[0] * 3,
                messages=[
                    {"role": "system", "content": SYSTEM + tail + " The end."},
                    *history,
                    user("<<<only now>>> " + "x" * 250),
                ],
                reply=reply(f"because {index}"),
            )
        )
        history.append(reply(f"because {index}"))
        ids += [index, 8, 9]
    return made


@pytest.mark.parametrize("clock", [False, True], ids=["same system", "system tells the time"])
async def test_a_long_session_costs_little_a_turn(tmp_path: Path, clock: bool) -> None:
    store = Store.open(tmp_path)
    await store.add_session(SESSION)
    told = long_session(200, clock=clock)
    for turn in told:
        await store.add_turn(turn)
    assert [replace(turn, id=None) for turn in await store.last_turns("s1", 3)] == told[-3:]
    await store.close()
    assert (tmp_path / DATABASE_FILE).stat().st_size < 200 * 2500
    assert (tmp_path / "conversations.jsonl").stat().st_size < 200 * 2000
    reader = StoreReader(tmp_path)
    assert [replace(turn, id=None) for turn in reader.turns_of("s1")] == told
    reader.close()


async def test_the_log_alone_gives_every_request_back(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await store.add_session(SESSION)
    told = long_session(8, clock=True)
    for turn in told:
        await store.add_turn(turn)
    await store.close()
    known: dict[int, list[Any]] = {}
    lines: list[dict[str, Any]] = read_json_lines(tmp_path / "conversations.jsonl")
    for line, turn in zip(lines, told, strict=True):
        requested = [] if line["base_id"] is None else list(known[line["base_id"]])
        patch_messages(requested, line["base_messages"], line["messages"])
        assert requested == turn.messages
        known[line["id"]] = [*requested, line["reply"]]


async def test_a_session_goes_on_cheaply_after_a_restart(tmp_path: Path) -> None:
    told = long_session(6, clock=True)
    for turn in told:
        store = Store.open(tmp_path)
        await store.add_session(SESSION)
        await store.add_turn(turn)
        await store.close()
    assert (tmp_path / "conversations.jsonl").stat().st_size < 1.5 * len(SYSTEM)
    reader = StoreReader(tmp_path)
    assert [replace(turn, id=None) for turn in reader.turns_of("s1")] == told
    reader.close()


async def test_a_turn_takes_a_bounded_number_of_rows_to_read(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await store.add_session(SESSION)
    count = turns.MAX_DEPTH + 5
    for index in range(count):
        await store.add_turn(make_turn(index))
    await store.close()
    lines = read_json_lines(tmp_path / "conversations.jsonl")
    whole = [line["index"] for line in lines if line["base_id"] is None]
    assert whole == [0, turns.MAX_DEPTH]


async def test_turns_are_found_by_id_and_by_age(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await store.add_session(SESSION)
    told = [make_turn(index, prompt_ids_T=[1, 2, index]) for index in range(5)]
    told[2] = replace(told[2], kind="side", rule="heartbeat")
    ids = [await store.add_turn(turn) for turn in told]
    stored = [replace(turn, id=position) for turn, position in zip(told, ids, strict=True)]
    assert await store.turn(ids[3]) == stored[3]
    assert await store.turn(99) is None
    assert await store.last_turns("s1", 2) == stored[3:]
    assert await store.last_turns("s1", 99) == stored
    assert await store.last_turns("nobody", 2) == []
    assert await store.page_of_turns("s1", 1, 3) == stored[1:4]
    assert await store.page_of_turns("s1", 5, 3) == []
    assert await store.last_main_turn("s1") == ids[4]
    assert await store.last_main_turn("nobody") is None
    await store.add_next_state(ids[1], [user("next")])
    assert await store.unanswered_turns("s1") == {*ids} - {ids[1]}
    assert await store.next_state_of(ids[1]) == [user("next")]
    assert await store.next_state_of(ids[0]) is None
    await store.close()


async def test_a_turn_whose_base_is_missing_is_told_clearly(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await store.add_session(SESSION)
    for index in range(2):
        await store.add_turn(make_turn(index))
    await store.close()
    db = sqlite3.connect(tmp_path / DATABASE_FILE)
    db.execute("DELETE FROM turns WHERE id=1")
    db.commit()
    db.close()
    reader = StoreReader(tmp_path)
    with pytest.raises(StoreError, match="turn 2 stands on turn 1, which is missing"):
        reader.turns_of("s1")
    reader.close()


def test_memory_for_bases_is_bounded_by_their_size() -> None:
    bases = turns.Bases(max_bytes=100_000)
    for number in range(50):
        turn = make_turn(session_id=f"s{number}", messages=[user("x" * 9_000)])
        bases.add(turn.session_id, "main", turns.Base.of(turn, 0))
        bases.add(turn.session_id, "main", turns.Base.of(turn, 0))
    assert len(bases) == 10
    assert bases.size_bytes <= 100_000
    bases.add("huge", "main", turns.Base.of(make_turn(messages=[user("x" * 200_000)]), 0))
    assert (len(bases), bases.size_bytes) == (0, 0)
