"""Deleting sessions so that no byte of them stays in the run's files.

The rows go in one transaction, zeroed by SQLite (`secure_delete`), which also notes that log lines
are still to go: by a digest, because the id itself may tell something. Then the logs are written
again without those lines and the write-ahead log is emptied; only then is the note removed. What a
kill interrupts is done when the folder is opened again.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass

from clawrl_gym.store.transaction import Transaction

BUDGET_S = 0.05
"""How long one transaction deletes before others have their turn."""

_OWNER = re.compile(
    rb'\{"schema": \d+, "type": "(?:session_end", "id"|\w+", "id": \d+, "session_id"): '
    rb'("(?:[^"\\]|\\.)*")'
)
"""The beginning of a log line, as far as its session; also of half a line that a crash left."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """A session whose rows are gone and whose log lines are not yet."""

    digest: bytes
    last_turn_id: int
    """Later turns are of another session that took the same id."""
    asked_s: float


def erase(
    tx: Transaction, session_ids: list[str], budget_s: float = BUDGET_S
) -> tuple[int, list[str]]:
    """Job: delete the first sessions, as many as the budget allows and at least one.

    Returns how many it tried, and which of them were there.
    """
    began_s = time.monotonic()
    tx.numbers.keep(tx.db)
    there: list[str] = []
    for tried, session_id in enumerate(session_ids):
        if tried and time.monotonic() - began_s > budget_s:
            return tried, there
        if _erase_one(tx, session_id):
            there.append(session_id)
    return len(session_ids), there


def _erase_one(tx: Transaction, session_id: str) -> bool:
    own = (session_id,)
    groups = "SELECT group_id FROM samples WHERE session_id=? AND turn_id IS NOT NULL"
    samples = "SELECT id FROM samples WHERE session_id=?"
    turns = "SELECT id FROM turns WHERE session_id=?"
    for statement in (
        f"UPDATE groups SET task_id=NULL WHERE group_id IN ({groups})",
        f"DELETE FROM batches WHERE sample_id IN ({samples})",
        "DELETE FROM samples WHERE session_id=?",
        f"DELETE FROM verdicts WHERE turn_id IN ({turns})",
        f"DELETE FROM next_states WHERE turn_id IN ({turns})",
        "DELETE FROM turns WHERE session_id=?",
        "DELETE FROM offers WHERE session_id=?",
        "DELETE FROM pictures WHERE session_id=?",
    ):
        tx.db.execute(statement, own)
    if not tx.db.execute("DELETE FROM sessions WHERE id=?", own).rowcount:
        return False
    row = {
        "digest": digest_of(session_id), "last_turn_id": tx.numbers.last["turns"],
        "asked_s": time.time(),
    }  # fmt: skip
    tx.insert("INSERT OR REPLACE INTO deletions", row)
    return True


def pending(db: sqlite3.Connection) -> list[Deletion]:
    """Deletions whose log lines may still be there."""
    return [Deletion(*row) for row in db.execute("SELECT * FROM deletions")]


def finish(db: sqlite3.Connection, done: list[Deletion]) -> None:
    """Forget deletions that are complete; not those of the same id that came meanwhile."""
    db.executemany(
        "DELETE FROM deletions WHERE digest=? AND asked_s=?",
        [(deletion.digest, deletion.asked_s) for deletion in done],
    )


def keeps(deletions: list[Deletion]) -> Callable[[bytes], bool]:
    """Whether a log line stays."""
    by_digest = {deletion.digest: deletion for deletion in deletions}

    def keep(line: bytes) -> bool:
        owner = _OWNER.match(line)
        if owner is None:
            return _is_whole(line)
        deletion = by_digest.get(digest_of(json.loads(owner[1])))
        return deletion is None or _is_later(line, deletion)

    return keep


def digest_of(session_id: str) -> bytes:
    return hashlib.blake2b(session_id.encode(errors="surrogatepass"), digest_size=16).digest()


def _is_whole(line: bytes) -> bool:
    """Half a line that tells no session could be of any: nobody can read it anyway."""
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _is_later(line: bytes, deletion: Deletion) -> bool:
    """Whether it tells of another session that took the id of the deleted one."""
    try:
        row = json.loads(line)
    except ValueError:
        return False
    if row["type"] in ("session_end", "taught"):  # a turn's number may be missing
        return bool(row["time_s"] > deletion.asked_s)
    return bool(row.get("turn_id", row["id"]) > deletion.last_turn_id)
