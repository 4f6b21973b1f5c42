"""Logs go on in another file when one is full; whoever reads or deletes reaches all of them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.core.files.jsonl import RotatedLines, read_json_lines
from clawrl_gym.core.files.log_files import files_of_log
from clawrl_gym.store import Store
from clawrl_gym.ui.distilled_turns import read_distill_log
from tests.store.test_store import make_turn, make_verdict, reply, user
from tests.store.test_store_delete import LOGS, files_with, fill, session

FULL_BYTES = 2000


def lines_of(folder: Path, name: str) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = read_json_lines(folder / name)
    return lines


def test_a_full_file_gets_a_number_and_the_newest_lines_are_in_the_one_without(
    tmp_path: Path,
) -> None:
    log = RotatedLines(tmp_path / "log.jsonl", full_bytes=100)
    for number in range(40):
        log.append({"number": number, "text": "x" * 20})
    log.close()
    files = files_of_log(tmp_path / "log.jsonl")
    assert [path.name for path in files[:2]] == ["log.000001.jsonl", "log.000002.jsonl"]
    assert files[-1].name == "log.jsonl"
    assert all(path.stat().st_size < 200 for path in files)
    numbers = [line["number"] for line in read_json_lines(tmp_path / "log.jsonl")]
    assert numbers == list(range(40))


def test_a_log_goes_on_with_its_numbers_when_it_is_opened_again(tmp_path: Path) -> None:
    for start in (0, 10):
        log = RotatedLines(tmp_path / "log.jsonl", full_bytes=100)
        for number in range(start, start + 10):
            log.append({"number": number, "text": "x" * 20})
        log.close()
    lines = lines_of(tmp_path, "log.jsonl")
    assert [line["number"] for line in lines] == list(range(20))


def test_a_file_that_holds_nothing_any_more_goes(tmp_path: Path) -> None:
    log = RotatedLines(tmp_path / "log.jsonl", full_bytes=100)
    for number in range(12):
        log.append({"number": number, "text": "x" * 20})
    before = files_of_log(tmp_path / "log.jsonl")
    assert log.rewrite(lambda line: json.loads(line)["number"] >= 6) == 6
    log.append({"number": 12})
    log.close()
    assert len(files_of_log(tmp_path / "log.jsonl")) < len(before)
    assert [line["number"] for line in lines_of(tmp_path, "log.jsonl")] == list(range(6, 13))


def test_other_files_of_a_similar_name_are_left_alone(tmp_path: Path) -> None:
    others = ("log.old.jsonl", "log.1.jsonl", "log.0000001.jsonl", "logs.000001.jsonl")
    for name in others:
        (tmp_path / name).write_text("mine\n")
    log = RotatedLines(tmp_path / "log.jsonl", full_bytes=10)
    log.append({"number": 1})
    log.append({"number": 2})
    log.rewrite(lambda _: False)
    log.close()
    assert all((tmp_path / name).read_text() == "mine\n" for name in others)


async def test_nothing_of_a_deleted_session_is_left_in_any_file_of_the_logs(tmp_path: Path) -> None:
    store = Store.open(tmp_path, log_bytes=FULL_BYTES)
    for round_ in range(4):
        await asyncio.gather(fill(store, f"alice{round_}", 3, 20), fill(store, f"bob{round_}", 3))
    for name in LOGS:
        assert len(files_of_log(tmp_path / name)) > 2
    kept = {name: [row for row in lines_of(tmp_path, name) if "bob" in json.dumps(row)]
            for name in LOGS}  # fmt: skip
    assert len(files_with(tmp_path, "[alice0]")) > 2
    await store.delete_sessions(f"alice{round_}" for round_ in range(4))
    assert files_with(tmp_path, "alice") == []
    assert {name: lines_of(tmp_path, name) for name in LOGS} == kept
    await store.close()
    assert files_with(tmp_path, "alice") == []


async def test_sessions_that_are_deleted_while_files_get_full_leave_nothing(tmp_path: Path) -> None:
    """A file that is being rewritten keeps its name until that is done."""
    store = Store.open(tmp_path, log_bytes=FULL_BYTES)
    await fill(store, "alice", 3, 50)
    writing = [fill(store, f"bob{number}", 3, 10) for number in range(20)]
    deleting = store.delete_session("alice")
    await asyncio.gather(deleting, *writing)
    assert files_with(tmp_path, "[alice]") == []
    everybody = [await store.turns_of(f"bob{number}") for number in range(20)]
    stored = {turn.id for turns in everybody for turn in turns}
    turns = [row for row in lines_of(tmp_path, LOGS[0]) if row["type"] == "turn"]
    assert len(turns) == len(stored)
    assert {row["id"] for row in turns} == stored
    await store.close()


async def test_what_is_in_a_full_file_is_not_added_again(tmp_path: Path) -> None:
    store = Store.open(tmp_path, log_bytes=FULL_BYTES)
    await fill(store, "bob", 12, 10)
    await store.close()
    before = {name: lines_of(tmp_path, name) for name in LOGS}
    await Store.open(tmp_path, log_bytes=FULL_BYTES).close()
    assert {name: lines_of(tmp_path, name) for name in LOGS} == before


async def test_a_lost_file_of_a_log_is_written_again(tmp_path: Path) -> None:
    store = Store.open(tmp_path, log_bytes=FULL_BYTES)
    await fill(store, "bob", 12, 10)
    await store.close()
    before = lines_of(tmp_path, LOGS[0])
    files_of_log(tmp_path / LOGS[0])[0].unlink()
    await Store.open(tmp_path, log_bytes=FULL_BYTES).close()
    by_key = {(row["type"], row["id"]): row for row in lines_of(tmp_path, LOGS[0])}
    assert by_key == {(row["type"], row["id"]): row for row in before}


async def test_hints_are_read_from_all_files(tmp_path: Path) -> None:
    store = Store.open(tmp_path, log_bytes=500)
    for turn_id in await fill(store, "bob", 8):
        await store.add_verdict(make_verdict(turn_id, detail={"hints": [f"hint {turn_id}"]}))
    await store.close()
    assert len(files_of_log(tmp_path / LOGS[1])) > 2
    assert len(read_distill_log(tmp_path).hints) == 8


@pytest.mark.parametrize("log_bytes", [500, 2**20])
async def test_a_turns_line_holds_what_it_adds(tmp_path: Path, log_bytes: int) -> None:
    """A history of so many turns would be the square of it."""
    store = Store.open(tmp_path, log_bytes=log_bytes)
    await store.add_session(session("s1"))
    messages = []
    for index in range(20):
        messages.append(user(f"question {index} {'x' * 1000}"))
        turn = make_turn(index, session_id="s1", messages=[*messages], reply=reply(f"a{index}"))
        await store.add_turn(turn)
        messages.append(turn.reply)
    await store.close()
    text = b"".join(path.read_bytes() for path in files_of_log(tmp_path / LOGS[0]))
    assert text.count(b"question 3 ") == 1
    assert len(text) < 20 * 1500
