"""Which session shows which picture. Parts of jobs for the writer; the files are in the album."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from clawrl_gym.core.pictures import pictures_of
from clawrl_gym.core.types import Message
from clawrl_gym.store.transaction import Transaction


def add_showings(tx: Transaction, session_id: str, messages: Iterable[Message]) -> None:
    """Note the pictures of messages that are being recorded."""
    rows = [(session_id, digest) for digest in set(pictures_of(messages))]
    if rows:
        tx.db.executemany("INSERT OR IGNORE INTO pictures VALUES (?, ?)", rows)


def shown_by(db: sqlite3.Connection, session_ids: Iterable[str]) -> set[str]:
    """The pictures of sessions."""
    query = "SELECT digest FROM pictures WHERE session_id=?"
    return {digest for one in session_ids for (digest,) in db.execute(query, (one,))}


def shown(db: sqlite3.Connection) -> set[str]:
    """The pictures of all sessions."""
    return {digest for (digest,) in db.execute("SELECT DISTINCT digest FROM pictures")}


def unshown(db: sqlite3.Connection, digests: Iterable[str]) -> list[str]:
    """Those of the pictures that no session shows."""
    query = "SELECT 1 FROM pictures WHERE digest=? LIMIT 1"
    return [one for one in digests if db.execute(query, (one,)).fetchone() is None]
