"""The two logs beside run.db: conversations.jsonl and evaluations.jsonl.

Append-only; every line has `schema`, `type` and `id`. Lines follow the commit of what they tell, so
a kill between the two leaves a line out: it is added when the run is opened again. Only the
deletion of a session takes lines out. A session_end that more turns follow was opened again.
"""

from __future__ import annotations

import json
import logging
import math
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from clawrl_gym.core.jsonl import JsonLines
from clawrl_gym.store.rows import unpack_ints

CONVERSATIONS_FILE = "conversations.jsonl"
EVALUATIONS_FILE = "evaluations.jsonl"
LOG_SCHEMA = 2

Line = dict[str, Any]

_log = logging.getLogger(__name__)


def turn_line(columns: dict[str, Any]) -> Line:
    """A turn; its messages follow the first `base_messages` of turn `base_id` and its reply.

    An array among them stands for messages of that turn, see `delta.py`.
    """
    versions_T = unpack_ints(columns["versions"])
    return {
        "schema": LOG_SCHEMA,
        "type": "turn",
        "id": columns["id"],
        "session_id": columns["session_id"],
        "index": columns["idx"],
        "kind": columns["kind"],
        "rule": columns["rule"],
        "base_id": columns["base_id"],
        "base_messages": columns["base_messages"],
        "messages": json.loads(columns["messages"]),
        "reply": json.loads(columns["reply"]),
        "finish_reason": columns["finish_reason"],
        "sampled_tokens": len(versions_T),
        "versions": sorted(set(versions_T)),
        "time_s": columns["created_s"],
    }


def next_state_line(columns: dict[str, Any]) -> Line:
    """What came back after the turn `id`."""
    return {
        "schema": LOG_SCHEMA,
        "type": "next_state",
        "id": columns["turn_id"],
        "session_id": columns["session_id"],
        "messages": json.loads(columns["messages"]),
        "time_s": columns["created_s"],
    }


def end_line(columns: dict[str, Any]) -> Line:
    """A session's end: the outcome that the environment or the client gave."""
    keys = ("id", "task_id", "group_id", "split", "source", "reward", "stop_reason", "error")
    line = {"schema": LOG_SCHEMA, "type": "session_end", **{key: columns[key] for key in keys}}
    return line | {"time_s": columns["ended_s"]}


def verdict_line(columns: dict[str, Any]) -> Line:
    """A verdict on a turn; `value` null is an abstention."""
    keys = ("id", "session_id", "turn_id", "kind", "value", "reward")
    line = {"schema": LOG_SCHEMA, "type": "verdict", **{key: columns[key] for key in keys}}
    return line | {"detail": json.loads(columns["detail"]), "time_s": columns["created_s"]}


def taught_line(columns: dict[str, Any]) -> Line:
    """What the teacher thought of a turn's tokens in the update that made `version`.

    In the log only, so a kill may leave it out, and an update that is done again tells it again.
    """
    gaps_T = [round(gap, 4) if math.isfinite(gap) else None for gap in columns["gaps"]]
    keys = ("id", "session_id", "turn_id", "version", "prompt", "ids")
    line = {"schema": LOG_SCHEMA, "type": "taught", **{key: columns[key] for key in keys}}
    return line | {"gaps": gaps_T, "time_s": columns["created_s"]}


_WITH_SESSION = (
    "SELECT {table}.*, session_id FROM {table} JOIN turns ON turns.id = turn_id "
    "WHERE {table}.{id}=?"
)
_TURNS = ("turn", "SELECT id FROM turns ORDER BY id", "SELECT * FROM turns WHERE id=?")
_NEXT_STATES = (
    "next_state",
    "SELECT turn_id FROM next_states ORDER BY turn_id",
    _WITH_SESSION.format(table="next_states", id="turn_id"),
)
_ENDS = (
    "session_end",
    "SELECT id, ended_s FROM sessions WHERE ended_s IS NOT NULL ORDER BY ended_s",
    "SELECT * FROM sessions WHERE id=?",
)
_VERDICTS = (
    "verdict",
    "SELECT id FROM verdicts ORDER BY id",
    _WITH_SESSION.format(table="verdicts", id="id"),
)
_TOLD = {CONVERSATIONS_FILE: (_TURNS, _NEXT_STATES), EVALUATIONS_FILE: (_ENDS, _VERDICTS)}
FILE_OF = {
    "taught": EVALUATIONS_FILE,
    **{told[0]: file for file, all_told in _TOLD.items() for told in all_told},
}
"""The log in which each type of line is."""
_LINE_OF: dict[str, Callable[[Line], Line]] = {
    "turn": turn_line,
    "next_state": next_state_line,
    "session_end": end_line,
    "verdict": verdict_line,
}


def add_missing(db: sqlite3.Connection, folder: Path, file: str, log: JsonLines) -> int:
    """Append what is in the database and not in the log; returns how many lines."""
    there = _keys_in(folder / file)
    added = 0
    for kind, all_keys, one_row in _TOLD[file]:
        for key in db.execute(all_keys).fetchall():
            if (kind, *key) not in there:
                row = db.execute(one_row, (key[0],))
                try:
                    log.append(_LINE_OF[kind](dict(row.fetchone())))
                    added += 1
                except ValueError as error:
                    _log.warning("%s %s stays out of %s: %s", kind, key[0], file, error)
    return added


def _keys_in(path: Path) -> set[tuple[str | int | float, ...]]:
    """What tells each whole line from others; a log can be long, so one line at a time."""
    keys: set[tuple[str | int | float, ...]] = set()
    with path.open("rb") as file:
        for line in file:
            with suppress(ValueError, KeyError, TypeError):
                row = json.loads(line)
                end = (row["time_s"],) if row["type"] == "session_end" else ()
                keys.add((row["type"], row["id"], *end))
    return keys
