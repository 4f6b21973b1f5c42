"""The two logs beside run.db: conversations.jsonl and evaluations.jsonl.

Append-only; every line has `schema`, `type` and `id`. Lines follow the commit of what they tell, so
a kill between the two leaves a line out: it is added when the run is opened again.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clawrl_gym.jsonl import JsonLines, read_json_lines
from clawrl_gym.store.rows import unpack_ints

CONVERSATIONS_FILE = "conversations.jsonl"
EVALUATIONS_FILE = "evaluations.jsonl"
LOG_SCHEMA = 1

Line = dict[str, Any]


def turn_line(turn_id: int, columns: dict[str, Any]) -> Line:
    """A turn; its messages follow the first `base_messages` of turn `base_id` and its reply."""
    versions_T = unpack_ints(columns["versions"])
    return {
        "schema": LOG_SCHEMA,
        "type": "turn",
        "id": turn_id,
        "session_id": columns["session_id"],
        "index": columns["idx"],
        "kind": columns["kind"],
        "base_id": columns["base_id"],
        "base_messages": columns["base_messages"],
        "messages": json.loads(columns["messages"]),
        "reply": json.loads(columns["reply"]),
        "finish_reason": columns["finish_reason"],
        "sampled_tokens": len(versions_T),
        "versions": sorted(set(versions_T)),
        "time_s": columns["created_s"],
    }


def next_state_line(turn_id: int, session_id: str, messages: str, created_s: float) -> Line:
    return {
        "schema": LOG_SCHEMA,
        "type": "next_state",
        "id": turn_id,
        "session_id": session_id,
        "messages": json.loads(messages),
        "time_s": created_s,
    }


def end_line(columns: dict[str, Any]) -> Line:
    """A session's end: the outcome that the environment or the client gave."""
    keys = ("id", "task_id", "group_id", "split", "source", "reward", "stop_reason", "error")
    line = {"schema": LOG_SCHEMA, "type": "session_end", **{key: columns[key] for key in keys}}
    return line | {"time_s": columns["ended_s"]}


def verdict_line(columns: dict[str, Any]) -> Line:
    """A verdict on a turn; `value` null is an abstention."""
    keys = ("id", "turn_id", "kind", "value")
    line = {"schema": LOG_SCHEMA, "type": "verdict", **{key: columns[key] for key in keys}}
    return line | {"detail": json.loads(columns["detail"]), "time_s": columns["created_s"]}


def add_missing(db: sqlite3.Connection, folder: Path, file: str, log: JsonLines) -> int:
    """Append what is in the database and not in the log; returns how many lines."""
    lines = _conversation_lines(db) if file == CONVERSATIONS_FILE else _evaluation_lines(db)
    there = {(row.get("type"), row.get("id")) for row in read_json_lines(folder / file)}
    missing = [line for line in lines if (line["type"], line["id"]) not in there]
    for line in missing:
        log.append(line)
    return len(missing)


def _conversation_lines(db: sqlite3.Connection) -> Iterator[Line]:
    for row in _rows(db, "SELECT * FROM turns ORDER BY id"):
        yield turn_line(row["id"], row)
    states = (
        "SELECT turn_id, session_id, s.messages, s.created_s FROM next_states s "
        "JOIN turns ON turns.id = turn_id ORDER BY turn_id"
    )
    for row in _rows(db, states):
        yield next_state_line(**row)


def _evaluation_lines(db: sqlite3.Connection) -> Iterator[Line]:
    for row in _rows(db, "SELECT * FROM sessions WHERE ended_s IS NOT NULL ORDER BY ended_s"):
        yield end_line(row)
    for row in _rows(db, "SELECT * FROM verdicts ORDER BY id"):
        yield verdict_line(row)


def _rows(db: sqlite3.Connection, query: str) -> Iterator[dict[str, Any]]:
    cursor = db.execute(query)
    names = [column[0] for column in cursor.description]
    for values in cursor:
        yield dict(zip(names, values, strict=True))
