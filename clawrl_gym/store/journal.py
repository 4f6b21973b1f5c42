"""The two logs beside run.db: conversations.jsonl and evaluations.jsonl.

A log is a file that grows and full ones beside it (`conversations.000001.jsonl` is the oldest):
`files_of_log` gives them in order. Append-only; every line has `schema`, `type` and `id`. Lines
follow the commit of what they tell, so a kill between the two leaves a line out: it is added when
the run is opened again. Only the deletion of a session takes lines out. A session_end that more
turns follow was opened again. A turn's line holds what the turn adds to the one before it.
"""

from __future__ import annotations

import json
import logging
import math
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.core.files.jsonl import JsonLines, RotatedLines
from clawrl_gym.core.files.log_files import FULL_BYTES, files_of_log
from clawrl_gym.core.types import DistilledTurn
from clawrl_gym.store.rows import NextStateColumns, TurnColumns, VerdictColumns, unpack_ints
from clawrl_gym.store.writer import Transaction

CONVERSATIONS_FILE = "conversations.jsonl"
EVALUATIONS_FILE = "evaluations.jsonl"
LOG_SCHEMA = 2

Line = dict[str, object]

_log = logging.getLogger(__name__)


def turn_line(columns: TurnColumns | sqlite3.Row) -> Line:
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


def next_state_line(columns: NextStateColumns | sqlite3.Row) -> Line:
    """Line of the messages that came after the turn `id`."""
    return {
        "schema": LOG_SCHEMA,
        "type": "next_state",
        "id": columns["turn_id"],
        "session_id": columns["session_id"],
        "messages": json.loads(columns["messages"]),
        "time_s": columns["created_s"],
    }


def end_line(columns: sqlite3.Row) -> Line:
    """Line of a session's end, with the outcome that the environment or the client gave."""
    keys = ("id", "task_id", "group_id", "split", "source", "reward", "stop_reason", "error")
    line = {"schema": LOG_SCHEMA, "type": "session_end", **{key: columns[key] for key in keys}}
    return line | {"time_s": columns["ended_s"]}


def verdict_line(columns: VerdictColumns | sqlite3.Row) -> Line:
    """Line of a verdict on a turn; `value` null is an abstention."""
    return {
        "schema": LOG_SCHEMA,
        "type": "verdict",
        "id": columns["id"],
        "session_id": columns["session_id"],
        "turn_id": columns["turn_id"],
        "kind": columns["kind"],
        "value": columns["value"],
        "reward": columns["reward"],
        "weight": columns["weight"],
        "detail": json.loads(columns["detail"]),
        "time_s": columns["created_s"],
    }


def distilled_turn_line(turn: DistilledTurn, session_id: str, version: int, time_s: float) -> Line:
    """Line of the teacher's gaps on a turn's tokens in the update that made `version`.

    In the log only, so a kill may leave it out, and an update that is repeated logs it again.
    """
    return {
        "schema": LOG_SCHEMA,
        "type": "taught",
        "id": turn.sample_id,
        "session_id": session_id,
        "turn_id": turn.turn_id,
        "version": version,
        "prompt": turn.prompt,
        "ids": turn.ids_T,
        "gaps": [round(gap, 4) if math.isfinite(gap) else None for gap in turn.gaps_T],
        "time_s": time_s,
    }


@dataclass(frozen=True, slots=True)
class _RecordType:
    """A type of lines that repeat rows of the database."""

    file: str
    keys: str
    """Query for the values that identify the lines of this type; the first column is their id."""
    columns: str
    """Query for the columns of a line, by its id."""
    line: Callable[[sqlite3.Row], Line]


_WITH_SESSION = (
    "SELECT {table}.*, session_id FROM {table} JOIN turns ON turns.id = turn_id "
    "WHERE {table}.{id}=?"
)
_RECORD_TYPES = {
    "turn": _RecordType(
        CONVERSATIONS_FILE,
        "SELECT id FROM turns ORDER BY id",
        "SELECT * FROM turns WHERE id=?",
        turn_line,
    ),
    "next_state": _RecordType(
        CONVERSATIONS_FILE,
        "SELECT turn_id FROM next_states ORDER BY turn_id",
        _WITH_SESSION.format(table="next_states", id="turn_id"),
        next_state_line,
    ),
    "session_end": _RecordType(
        EVALUATIONS_FILE,
        "SELECT id, ended_s FROM sessions WHERE ended_s IS NOT NULL ORDER BY ended_s",
        "SELECT * FROM sessions WHERE id=?",
        end_line,
    ),
    "verdict": _RecordType(
        EVALUATIONS_FILE,
        "SELECT id FROM verdicts ORDER BY id",
        _WITH_SESSION.format(table="verdicts", id="id"),
        verdict_line,
    ),
}
_FILE_OF = {
    "taught": EVALUATIONS_FILE,
    **{name: record_type.file for name, record_type in _RECORD_TYPES.items()},
}
"""The log of each type of line."""


class Journal:
    """The logs of one run as the store writes them; a run that is not recorded has none."""

    def __init__(self, folder: Path | None, full_bytes: int = FULL_BYTES) -> None:
        """Open the logs; `folder` None writes nothing. `full_bytes`: size of a file before the next
        one begins.

        Raises StoreError when a file cannot be opened.
        """
        self._folder = folder
        names = (CONVERSATIONS_FILE, EVALUATIONS_FILE)
        self._files = (
            {}
            if folder is None
            else {name: RotatedLines(folder / name, full_bytes) for name in names}
        )

    def log(self, tx: Transaction, line: Line) -> None:
        """Write a line after the transaction's commit."""
        file = self._files.get(_FILE_OF[str(line["type"])])
        if file is not None:
            tx.log(file, line)

    def add_missing(self, db: sqlite3.Connection) -> None:
        """Append rows of the database that are missing in the logs, as after a kill."""
        if self._folder is None:
            return
        for file_name, file in self._files.items():
            present = _keys_in(self._folder / file_name)
            for name, record_type in _RECORD_TYPES.items():
                if record_type.file == file_name:
                    _append_missing(db, name, record_type, file, present)

    def rewrite(self, keep: Callable[[bytes], bool]) -> None:
        """Keep only the lines for which `keep` is true. Blocks; lines can be written meanwhile."""
        for file in self._files.values():
            file.rewrite(keep)

    def close(self) -> None:
        """Close the logs, even on a full disk, to free the folder; reopening adds missing lines."""
        for file in self._files.values():
            with suppress(OSError):
                file.close()


_Key = tuple[str | int | float, ...]


def _append_missing(
    db: sqlite3.Connection,
    name: str,
    record_type: _RecordType,
    log: JsonLines,
    present: set[_Key],
) -> None:
    for key in db.execute(record_type.keys).fetchall():
        if (name, *key) not in present:
            columns = db.execute(record_type.columns, (key[0],)).fetchone()
            try:
                log.append(record_type.line(columns))
            except ValueError as error:
                _log.warning("%s %s stays out of %s: %s", name, key[0], record_type.file, error)


def _keys_in(path: Path) -> set[_Key]:
    """The keys of each whole line; a log can be long, so one line at a time."""
    keys: set[_Key] = set()
    for part in files_of_log(path):
        with part.open("rb") as file:
            for line in file:
                with suppress(ValueError, KeyError, TypeError):
                    fields = json.loads(line)
                    end = (fields["time_s"],) if fields["type"] == "session_end" else ()
                    keys.add((fields["type"], fields["id"], *end))
    return keys
