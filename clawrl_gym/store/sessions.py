"""Sessions, their next states and their ends. Jobs for the writer."""

from __future__ import annotations

import sqlite3
import time

from clawrl_gym.core.errors import StoreError
from clawrl_gym.core.ownership import id_range
from clawrl_gym.core.types import Message, StopReason
from clawrl_gym.store.pictures import add_references
from clawrl_gym.store.rows import NextStateColumns, SessionRow, to_json
from clawrl_gym.store.writer import Transaction


def add_session(tx: Transaction, session: SessionRow) -> bool:
    """Job: add a session; False when it existed already, which then stays."""
    row = {
        "id": session.id, "task_id": session.task_id, "group_id": session.group_id,
        "split": session.split, "source": session.source, "created_s": session.created_s,
        "matched_by": session.matched_by, "last_s": session.created_s,
    }  # fmt: skip
    return tx.insert("INSERT OR IGNORE INTO sessions", row)


def ids_of_user(tx: Transaction, user: str) -> list[str]:
    """Job: ids of all sessions of a user other than the owner."""
    rows = tx.db.execute("SELECT id FROM sessions WHERE id >= ? AND id < ?", id_range(user))
    return [session_id for (session_id,) in rows]


def add_next_state(
    tx: Transaction, turn_id: int, messages: list[Message]
) -> NextStateColumns | None:
    """Job: store the messages after a turn, with its session; None when a first record stays."""
    owner = tx.one(
        "SELECT session_id, source, kind FROM turns JOIN sessions ON sessions.id = session_id "
        "WHERE turns.id=?",
        (turn_id,),
    )
    if owner is None:
        raise StoreError(f"got a next state for turn {turn_id}, expected a stored turn")
    waits = owner["source"] == "live" and owner["kind"] == "main"
    judged = tx.one("SELECT 1 FROM verdicts WHERE turn_id=?", (turn_id,)) is not None
    messages_json, created_s = to_json(messages), time.time()
    row = {
        "turn_id": turn_id, "messages": messages_json, "created_s": created_s,
        "judged": int(judged or not waits),
    }  # fmt: skip
    if not tx.insert("INSERT OR IGNORE INTO next_states", row):
        return None
    add_references(tx, owner["session_id"], messages)
    add_bytes(tx, owner["session_id"], 2 * len(messages_json))
    return {
        "turn_id": turn_id, "session_id": owner["session_id"], "messages": messages_json,
        "created_s": created_s,
    }  # fmt: skip


def add_bytes(tx: Transaction, session_id: str, count: int) -> None:
    """Add the size of a session's record; text stands in the database and in a log."""
    tx.db.execute("UPDATE sessions SET bytes = bytes + ? WHERE id=?", (count, session_id))


def end_session(
    tx: Transaction,
    session_id: str,
    reward: float | None,
    stop_reason: str,
    error: str | None,
    solved: bool | None = None,
) -> sqlite3.Row | None:
    """Job: end a session and return its row; None when it had ended before, which then stays."""
    changed = tx.db.execute(
        "UPDATE sessions SET ended_s=?, reward=?, stop_reason=?, error=?, solved=? "
        "WHERE id=? AND ended_s IS NULL",
        (time.time(), reward, stop_reason, error, solved, session_id),
    ).rowcount
    row = tx.one("SELECT * FROM sessions WHERE id=?", (session_id,))
    if row is None:
        raise StoreError(f"got the end of session {session_id!r}, expected a stored one")
    return row if changed else None


def end_open_rollouts(tx: Transaction, why: str) -> list[sqlite3.Row]:
    """Job: end all episodes that had not ended; returns their rows."""
    open_ids = tx.db.execute(
        "SELECT id FROM sessions WHERE ended_s IS NULL AND source='rollout'"
    ).fetchall()
    reason = StopReason.CANCELLED.value
    ended = (end_session(tx, row["id"], None, reason, why) for row in open_ids)
    return [row for row in ended if row is not None]


def reopen_session(tx: Transaction, session_id: str) -> bool:
    """Job: reopen an ended session; False when it had not ended. Its count of samples is void."""
    changed = tx.db.execute(
        "UPDATE sessions SET ended_s=NULL, reward=NULL, stop_reason=NULL, error=NULL, solved=NULL, "
        "samples=nullif(samples, 0), why=NULL WHERE id=? AND ended_s IS NOT NULL",
        (session_id,),
    ).rowcount
    return changed > 0


def set_yield(tx: Transaction, session_id: str, samples: int, why: str | None) -> None:
    """Job: store the number of a session's samples, and why there are none."""
    tx.db.execute("UPDATE sessions SET samples=?, why=? WHERE id=?", (samples, why, session_id))
