"""The two logs beside run.db: conversations.jsonl and evaluations.jsonl.

Append-only; every line has `schema`, `type` and `id`. Lines follow the commit of what they tell, so
a kill between the two leaves a line out: it is added when the run is opened again.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from clawrl_gym.jsonl import JsonLines
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


_TURNS = ("turn", "SELECT id FROM turns ORDER BY id", "SELECT * FROM turns WHERE id=?")
_NEXT_STATES = (
    "next_state",
    "SELECT turn_id FROM next_states ORDER BY turn_id",
    "SELECT turn_id, session_id, s.messages, s.created_s FROM next_states s "
    "JOIN turns ON turns.id = turn_id WHERE turn_id=?",
)
_ENDS = (
    "session_end",
    "SELECT id FROM sessions WHERE ended_s IS NOT NULL ORDER BY ended_s",
    "SELECT * FROM sessions WHERE id=?",
)
_VERDICTS = ("verdict", "SELECT id FROM verdicts ORDER BY id", "SELECT * FROM verdicts WHERE id=?")
_TOLD = {CONVERSATIONS_FILE: (_TURNS, _NEXT_STATES), EVALUATIONS_FILE: (_ENDS, _VERDICTS)}
_LINE_OF: dict[str, Callable[[Line], Line]] = {
    "turn": lambda row: turn_line(row["id"], row),
    "next_state": lambda row: next_state_line(**row),
    "session_end": end_line,
    "verdict": verdict_line,
}


def add_missing(db: sqlite3.Connection, folder: Path, file: str, log: JsonLines) -> int:
    """Append what is in the database and not in the log; returns how many lines."""
    there = _keys_in(folder / file)
    added = 0
    for kind, all_ids, one_row in _TOLD[file]:
        for (row_id,) in db.execute(all_ids).fetchall():
            if (kind, row_id) not in there:
                cursor = db.execute(one_row, (row_id,))
                names = [column[0] for column in cursor.description]
                row = dict(zip(names, cursor.fetchone(), strict=True))
                log.append(_LINE_OF[kind](row))
                added += 1
    return added


def _keys_in(path: Path) -> set[tuple[str, int | str]]:
    """Type and id of each whole line; a log can be long, so one line at a time."""
    keys = set()
    with path.open("rb") as file:
        for line in file:
            with suppress(ValueError, KeyError, TypeError):
                row = json.loads(line)
                keys.add((row["type"], row["id"]))
    return keys
