"""Runs of older schema versions can still be read, and gone on with."""

from __future__ import annotations

import json
import math
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.core.types import DistillTarget
from clawrl_gym.store import Store, StoreReader, schema
from clawrl_gym.store.rows import pack_floats, pack_ints
from clawrl_gym.store.training import sample_columns
from tests.store.test_store import (
    SESSION,
    make_group,
    make_sample,
    make_turn,
    make_verdict,
    reply,
    user,
)

LIVE_SAMPLE = replace(make_sample(4), turn_id=2)

VERSION_1 = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE sessions (
    id TEXT PRIMARY KEY, task_id TEXT, group_id INTEGER, split TEXT NOT NULL,
    source TEXT NOT NULL, created_s REAL NOT NULL, ended_s REAL, reward REAL,
    stop_reason TEXT, error TEXT);
CREATE TABLE turns (
    id INTEGER PRIMARY KEY, session_id TEXT NOT NULL REFERENCES sessions(id),
    idx INTEGER NOT NULL, kind TEXT NOT NULL, base_id INTEGER REFERENCES turns(id),
    base_tokens INTEGER NOT NULL, prompt BLOB NOT NULL, sampled BLOB NOT NULL,
    logprobs BLOB NOT NULL, versions BLOB NOT NULL, finish_reason TEXT NOT NULL,
    base_messages INTEGER NOT NULL, messages TEXT NOT NULL, reply TEXT NOT NULL,
    created_s REAL NOT NULL, UNIQUE (session_id, idx));
CREATE TABLE next_states (
    turn_id INTEGER PRIMARY KEY REFERENCES turns(id), messages TEXT NOT NULL,
    created_s REAL NOT NULL);
CREATE TABLE verdicts (
    id INTEGER PRIMARY KEY, turn_id INTEGER NOT NULL REFERENCES turns(id),
    kind TEXT NOT NULL, value INTEGER CHECK (value IN (-1, 0, 1)), detail TEXT NOT NULL,
    created_s REAL NOT NULL);
CREATE INDEX verdicts_by_turn ON verdicts (turn_id);
CREATE TABLE samples (
    id INTEGER PRIMARY KEY, session_id TEXT NOT NULL, group_id INTEGER NOT NULL,
    ids BLOB NOT NULL, mask BLOB NOT NULL, logprobs BLOB NOT NULL, versions BLOB NOT NULL,
    advantages BLOB NOT NULL, reward REAL NOT NULL, trained_by INTEGER);
CREATE INDEX samples_by_session ON samples (session_id);
CREATE INDEX samples_by_group ON samples (group_id);
CREATE TABLE groups (
    position INTEGER PRIMARY KEY, group_id INTEGER NOT NULL UNIQUE, task_id TEXT,
    seed INTEGER NOT NULL, split TEXT NOT NULL, version INTEGER NOT NULL,
    created_s REAL NOT NULL, used_by INTEGER);
CREATE TABLE updates (
    version INTEGER PRIMARY KEY, groups INTEGER NOT NULL, tokens INTEGER NOT NULL,
    duration_s REAL NOT NULL, metrics TEXT NOT NULL, created_s REAL NOT NULL,
    checkpoint TEXT);
CREATE TABLE batches (
    version INTEGER NOT NULL REFERENCES updates(version), position INTEGER NOT NULL,
    sample_id INTEGER NOT NULL UNIQUE REFERENCES samples(id),
    PRIMARY KEY (version, position)) WITHOUT ROWID;
INSERT INTO meta VALUES ('format', 'clawrl_gym run'), ('schema_version', '1');
INSERT INTO sessions VALUES
    ('s1', 'count-1', 3, 'train', 'rollout', 10.0, NULL, NULL, NULL, NULL),
    ('s2', NULL, NULL, 'train', 'live', 20.0, 30.0, 1.0, 'terminated', NULL);
INSERT INTO next_states VALUES (1, '[{"role": "user", "content": "next"}]', 3.0);
INSERT INTO verdicts VALUES (1, 1, 'rule', -1, '{}', 4.0);
INSERT INTO updates VALUES (1, 0, 6, 0.5, '{}', 99.0, 'checkpoints/1');
"""


def make_version_1(folder: Path) -> list[tuple[int, list[int]]]:
    """A run as version 1 left it, with two turns; returns their ids and prompts."""
    db = sqlite3.connect(folder / "run.db")
    db.execute("PRAGMA journal_mode=WAL")
    db.executescript(VERSION_1)
    first = [user("hi")]
    second = [user("go on")]
    common = (pack_ints([4, 5]), pack_floats([-0.5, None]), pack_ints([0, 1]), "stop")
    rows = [
        (1, "s1", 0, "main", None, 0, pack_ints([1, 2, 3]), *common, 0, json.dumps(first)),
        (2, "s1", 1, "main", 1, 5, pack_ints([6]), *common, 2, json.dumps(second)),
    ]
    for row in rows:
        db.execute(
            f"INSERT INTO turns VALUES ({', '.join('?' * 15)})",
            (*row, json.dumps(reply("ho")), 1.5),
        )
    db.commit()
    db.close()
    return [(1, [1, 2, 3]), (2, [1, 2, 3, 4, 5, 6])]


VERSION_2 = (
    *(
        f"ALTER TABLE {table} ADD COLUMN {column}"
        for table, column in (
            ("sessions", "matched_by TEXT"), ("sessions", "samples INTEGER"),
            ("sessions", "why TEXT"), ("sessions", "last_s REAL NOT NULL DEFAULT 0"),
            ("turns", "rule TEXT NOT NULL DEFAULT ''"),
            ("turns", "copies TEXT NOT NULL DEFAULT '[]'"),
            ("turns", "mark TEXT NOT NULL DEFAULT ''"),
            ("next_states", "judged INTEGER NOT NULL DEFAULT 1"),
            ("verdicts", "reward REAL"), ("verdicts", "settled INTEGER NOT NULL DEFAULT 1"),
            ("samples", "turn_id INTEGER"),
        )
    ),
    "UPDATE meta SET value='2' WHERE key='schema_version'",
    "UPDATE sessions SET last_s = coalesce(ended_s, created_s)",
    "UPDATE verdicts SET reward = value",
    "CREATE TABLE deletions (digest BLOB PRIMARY KEY, last_turn_id INTEGER NOT NULL, "
    "asked_s REAL NOT NULL) WITHOUT ROWID",
    "CREATE INDEX turns_by_base ON turns (base_id)",
    "CREATE INDEX verdicts_waiting ON verdicts (turn_id) WHERE settled = 0",
    "CREATE INDEX next_states_waiting ON next_states (turn_id) WHERE judged = 0",
    "CREATE INDEX samples_by_turn ON samples (turn_id) WHERE turn_id IS NOT NULL",
    "CREATE INDEX groups_waiting ON groups (position) WHERE used_by IS NULL",
    "CREATE INDEX sessions_by_last ON sessions (last_s)",
    "CREATE INDEX sessions_open ON sessions (last_s) WHERE ended_s IS NULL",
    "CREATE INDEX sessions_ended ON sessions (ended_s) WHERE source = 'live'",
    "CREATE INDEX sessions_uncounted ON sessions (ended_s) "
    "WHERE source = 'live' AND samples IS NULL",
)  # fmt: skip


def make_version_2(folder: Path) -> list[tuple[int, list[int]]]:
    """A run as version 2 left it: the same turns, and a waiting sample of the second."""
    told = make_version_1(folder)
    db = sqlite3.connect(folder / "run.db")
    for statement in VERSION_2:
        db.execute(statement)
    columns = sample_columns(LIVE_SAMPLE)
    for later in ("distill", "lessons", "pictures", "strength", "signal", "temperature"):
        del columns[later]
    marks = ", ".join("?" * len(columns))
    db.execute(
        f"INSERT INTO samples ({', '.join(columns)}) VALUES ({marks})", tuple(columns.values())
    )
    db.commit()
    db.close()
    return told


def shape(path: Path) -> set[tuple[str, str, str]]:
    """Tables with their columns, and indexes."""
    db = sqlite3.connect(path)
    columns = {
        (table, name, f"{kind} {needed} {default}")
        for (table,) in db.execute("SELECT name FROM sqlite_schema WHERE type='table'").fetchall()
        for _, name, kind, needed, default, _ in db.execute(f"PRAGMA table_info({table})")
    }
    indexes = db.execute("SELECT tbl_name, name, coalesce(sql, '') FROM sqlite_schema "
                         "WHERE type='index'").fetchall()  # fmt: skip
    db.close()
    return columns | set(indexes)


def test_a_run_of_version_1_is_read_as_it_is(tmp_path: Path) -> None:
    told = make_version_1(tmp_path)
    before = (tmp_path / "run.db").read_bytes()
    reader = StoreReader(tmp_path)
    assert [(turn.id, turn.prompt_ids_T) for turn in reader.turns_of("s1")] == told
    assert reader.turns_of("s1")[1].messages == [user("hi"), reply("ho"), user("go on")]
    assert reader.session("s1") == SESSION
    assert [row.id for row in reader.sessions()] == ["s1", "s2"]
    assert reader.next_states_of("s1") == {1: [user("next")]}
    (verdict,) = reader.verdicts_of("s1")[1]
    assert (verdict.value, verdict.reward, verdict.weight) == (-1, -1, 1.0)
    assert reader.samples_of_session("s1") == []
    assert reader.untrained_groups() == []
    assert reader.compared() == []
    assert [row.version for row in reader.updates()] == [1]
    assert [summary.last_s for summary in reader.session_summaries()] == [30.0, 10.0]
    assert reader.unjudged(9) == []
    assert reader.judged_without_sample() == []
    reader.close()
    assert (tmp_path / "run.db").read_bytes() == before


async def test_a_run_of_version_1_is_gone_on_with(tmp_path: Path) -> None:
    told = make_version_1(tmp_path)
    (tmp_path / "evaluations.jsonl").write_text(
        '{"schema": 1, "type": "verdict", "id": 1, "turn_id": 1, "kind": "rule", "value": -1}\n'
    )
    store = Store.open(tmp_path)
    assert [(turn.id, turn.prompt_ids_T) for turn in await store.turns_of("s1")] == told
    new = make_turn(2, prompt_ids_T=[*told[1][1], 4, 5, 7], rule="header")
    turn_id = await store.add_turn(new)
    assert turn_id == 3
    assert await store.turn(turn_id) == replace(new, id=turn_id)
    assert await store.add_verdict(make_verdict(turn_id)) == 2
    assert await store.delete_session("s1")
    assert [row.id for row in await store.sessions()] == ["s2"]
    await store.close()
    await Store.open(tmp_path).close()


def test_a_run_of_version_2_is_read_as_it_is(tmp_path: Path) -> None:
    told = make_version_2(tmp_path)
    before = (tmp_path / "run.db").read_bytes()
    reader = StoreReader(tmp_path)
    turns = reader.turns_of("s1")
    assert [(turn.id, turn.prompt_ids_T, turn.tools, turn.template) for turn in turns] == [
        (turn_id, prompt_T, [], {}) for turn_id, prompt_T in told
    ]
    assert reader.turn(2) == turns[1]
    assert reader.samples_of_session("s1") == [replace(LIVE_SAMPLE, id=1)]
    assert [row.last_s for row in reader.session_summaries()] == [30.0, 10.0]
    reader.close()
    assert (tmp_path / "run.db").read_bytes() == before


async def test_a_run_of_version_2_is_gone_on_with(tmp_path: Path) -> None:
    told = make_version_2(tmp_path)
    store = Store.open(tmp_path)
    assert await store.untrained_samples() == [replace(LIVE_SAMPLE, id=1)]
    new = make_turn(2, prompt_ids_T=[*told[1][1], 4, 5, 7], tools=[{"name": "f"}])
    turn_id = await store.add_turn(new)
    await store.close()
    store = Store.open(tmp_path)
    tools: list[Any] = [turn.tools for turn in await store.turns_of("s1")]
    assert tools == [[], [], [{"name": "f"}]]
    target = DistillTarget(1, 2, ([1, 9],))
    taught = replace(
        LIVE_SAMPLE, turn_id=turn_id, distill_T=[0.0, 1.0, 1.0], distill_targets=(target,)
    )
    (stored,) = await store.add_group(make_group(7), [taught])
    assert await store.samples_of_session("s1") == [replace(LIVE_SAMPLE, id=1), stored]
    assert await store.delete_session("s1")
    await store.close()


async def test_an_old_record_that_no_log_can_hold_does_not_stop_the_run(tmp_path: Path) -> None:
    make_version_1(tmp_path)
    db = sqlite3.connect(tmp_path / "run.db")
    db.execute("UPDATE next_states SET messages='[{\"content\": Infinity}]'")
    db.commit()
    db.close()
    store = Store.open(tmp_path)
    next_state: Any = await store.next_state_of(1)
    assert next_state == [{"content": math.inf}]
    await store.close()
    lines = read_json_lines(tmp_path / "conversations.jsonl")
    assert [line["type"] for line in lines] == ["turn", "turn"]


async def test_an_upgraded_run_has_the_shape_of_a_new_one(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("first", "second", "new")]
    for folder in folders:
        folder.mkdir()
    make_version_1(folders[0])
    make_version_2(folders[1])
    for folder in folders:
        await Store.open(folder).close()
    first, second, new = (shape(folder / schema.DATABASE_FILE) for folder in folders)
    assert first == second == new


async def test_a_run_of_version_7_is_read_and_gone_on_with(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await store.close()
    whole = shape(tmp_path / "run.db")
    db = sqlite3.connect(tmp_path / "run.db")
    db.execute("ALTER TABLE sessions DROP COLUMN solved")
    db.execute("DROP INDEX turns_by_answer")
    for column in ("stop_text", "answer_id"):
        db.execute(f"ALTER TABLE turns DROP COLUMN {column}")
    db.execute("UPDATE meta SET value='7' WHERE key='schema_version'")
    db.execute(
        "INSERT INTO sessions (id, split, source, created_s, reward) "
        "VALUES ('e', 'train', 'rollout', 1.0, 1.0)"
    )
    db.execute("INSERT INTO user_updates VALUES ('ann', 3, 0, 6, 0.5, '{}', 99.0, NULL)")
    db.commit()
    db.close()
    reader = StoreReader(tmp_path)
    (session,) = reader.sessions()
    assert (session.solved, session.success) == (None, True)
    assert list(reader.newest_of_users()) == ["ann"]
    reader.close()
    store = Store.open(tmp_path)
    assert [row.id for row in await store.sessions()] == ["e"]
    await store.close()
    assert shape(tmp_path / "run.db") == whole
