"""What a request offered beside its messages is kept, once a session."""

from __future__ import annotations

import sqlite3
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.core.errors import StoreError
from clawrl_gym.store import Store, StoreReader
from clawrl_gym.store.schema import DATABASE_FILE
from tests.store.test_store import SESSION, make_turn
from tests.store.test_store_delete import fill, session


def tool(name: str, text: str = "") -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"n": {"minimum": 1, "default": True}}}
    return {
        "type": "function",
        "function": {"name": name, "description": text, "parameters": parameters},
    }


MANY = [tool(f"tool_{number}", f"does {number * 7919} \ud800 é " * 30) for number in range(30)]
THINKING = {"chat_template_kwargs": {"enable_thinking": False}}


def count_offers(folder: Path) -> int:
    db = sqlite3.connect(folder / DATABASE_FILE)
    (count,) = db.execute("SELECT count(*) FROM offers").fetchone()
    db.close()
    return int(count)


def files_holding(folder: Path, held: bytes) -> list[str]:
    return [path.name for path in folder.iterdir() if held in path.read_bytes()]


async def test_each_turn_has_what_it_was_offered(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await store.add_session(SESSION)
    offered: list[tuple[list[dict[str, Any]], dict[str, Any]]] = [
        (MANY, THINKING), (MANY, {}), ([], {}), (MANY[:2], THINKING),
        (MANY, {"tool_choice": "none"}), (MANY[1::-1], THINKING),
    ]  # fmt: skip
    turns = [
        make_turn(index, kind="side" if index == 2 else "main", tools=tools, template=template)
        for index, (tools, template) in enumerate(offered)
    ]
    ids = [await store.add_turn(turn) for turn in turns]
    stored = [replace(turn, id=turn_id) for turn, turn_id in zip(turns, ids, strict=True)]
    assert await store.turns_of("s1") == stored
    assert await store.page_of_turns("s1", 3, 2) == stored[3:5]
    assert [await store.turn(turn_id) for turn_id in ids] == stored
    assert count_offers(tmp_path) == 5
    await store.close()
    store = Store.open(tmp_path)
    new = make_turn(len(turns), tools=MANY)
    assert await store.turn(await store.add_turn(new)) == replace(new, id=len(turns) + 1)
    assert count_offers(tmp_path) == 5
    await store.close()


async def test_tools_that_every_request_repeats_are_stored_once(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await store.add_session(SESSION)
    for index in range(100):
        await store.add_turn(make_turn(index, tools=MANY, template=THINKING))
    await store.close()
    assert count_offers(tmp_path) == 2
    assert (tmp_path / DATABASE_FILE).stat().st_size < 250_000
    assert (tmp_path / "conversations.jsonl").stat().st_size < 50_000
    reader = StoreReader(tmp_path)
    turns = reader.turns_of("s1")
    reader.close()
    assert all(turn.tools == MANY for turn in turns)
    assert len({id(turn.tools) for turn in turns}) == 1, "they share one list"


async def test_equal_numbers_of_other_types_are_other_offers(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await store.add_session(SESSION)
    for index, number in enumerate((1, True, 1.0)):
        await store.add_turn(make_turn(index, template={"n": number}))
    values = [dict(turn.template)["n"] for turn in await store.turns_of("s1")]
    assert [repr(value) for value in values] == ["1", "True", "1.0"]
    await store.close()


async def test_an_offer_that_cannot_be_stored_takes_its_turn_along_and_nothing_else(
    tmp_path: Path,
) -> None:
    store = Store.open(tmp_path)
    await store.add_session(SESSION)
    await store.add_turn(make_turn(0))
    for refused in (
        make_turn(1, tools=[{"limit": float("inf")}]),
        make_turn(0, tools=[tool("twice")]),
        make_turn(0, session_id="nobody", tools=[tool("lost")]),
    ):
        with pytest.raises(StoreError, match=r"expected finite numbers|refused a record"):
            await store.add_turn(refused)
    assert len(await store.turns_of("s1")) == 1
    assert count_offers(tmp_path) == 0
    await store.close()


async def test_offers_of_sessions_are_apart_and_go_with_them(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    for name in ("alice", "bob"):
        await fill(store, name, 1)
        await store.add_turn(make_turn(1, session_id=name, tools=MANY, template=THINKING))
    alone = [tool("alices_own")]
    await store.add_turn(make_turn(2, session_id="alice", tools=alone))
    db = sqlite3.connect(tmp_path / DATABASE_FILE)
    bodies = [body for (body,) in db.execute("SELECT body FROM offers WHERE session_id='alice'")]
    db.close()
    (own,) = (body for body in bodies if b"alices_own" in zlib.decompress(body))
    assert files_holding(tmp_path, own) != []
    assert await store.delete_session("alice")
    assert files_holding(tmp_path, own) == []
    assert count_offers(tmp_path) == 2
    assert (await store.last_turns("bob", 1))[0].tools == MANY
    await store.add_session(session("alice"))
    new = make_turn(0, session_id="alice", tools=MANY)
    assert await store.turn(await store.add_turn(new)) == (await store.turns_of("alice"))[0]
    await store.close()


async def test_a_run_that_is_not_recorded_keeps_offers_in_memory(tmp_path: Path) -> None:
    store = Store.open(tmp_path, record=False)
    await store.add_session(SESSION)
    turn = make_turn(tools=MANY, template=THINKING)
    assert await store.turn(await store.add_turn(turn)) == replace(turn, id=1)
    assert count_offers(tmp_path) == 0
    await store.close()


async def test_an_offer_that_is_missing_is_told_clearly(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await store.add_session(SESSION)
    await store.add_turn(make_turn(tools=MANY))
    await store.close()
    db = sqlite3.connect(tmp_path / DATABASE_FILE)
    db.execute("DELETE FROM offers")
    db.commit()
    db.close()
    reader = StoreReader(tmp_path)
    with pytest.raises(StoreError, match="the tools that turn 1 was offered are missing"):
        reader.turn(1)
    reader.close()
