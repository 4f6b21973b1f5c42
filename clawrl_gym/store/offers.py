"""What requests offered beside their messages: tools, and what else the chat template read.

Clients repeat it with every request, so a session keeps each distinct one once; a turn holds its
digest. It goes with the session.
"""

from __future__ import annotations

import hashlib
import json
import marshal
import sqlite3
import zlib
from typing import Any

from clawrl_gym.core.errors import StoreError
from clawrl_gym.core.types import TemplateOptions, Tool
from clawrl_gym.store.rows import to_json
from clawrl_gym.store.writer import Transaction

_PLAIN = 2
"""Marshal's version without references: equal values come out as equal bytes."""
_BODY = (
    "(SELECT body FROM offers WHERE offers.session_id = turns.session_id "
    "AND offers.digest = turns.{name}) AS {name}_body"
)
TURN_COLUMNS = f"turns.*, {_BODY.format(name='tools')}, {_BODY.format(name='template')}"
"""Of a turn with what it offered; in one query, because its session may be deleted meanwhile."""


def keep_offer(tx: Transaction, session_id: str, offer: Any) -> bytes | None:
    """Part of a job: store an offer that the session has not; returns its digest, None if empty."""
    if not offer:
        return None
    digest = _digest_of(offer)
    query = "SELECT 1 FROM offers WHERE session_id=? AND digest=?"
    if tx.one(query, (session_id, digest)) is None:
        row = {
            "session_id": session_id,
            "digest": digest,
            "body": zlib.compress(to_json(offer).encode()),
        }
        tx.insert("INSERT INTO offers", row)
    return digest


def _digest_of(offer: Any) -> bytes:
    """Of each turn's offer, which can be long: marshal's plain form is exact and beats JSON.

    Were it ever to change, an offer would be stored twice and still be read.
    """
    return hashlib.blake2b(marshal.dumps(offer, _PLAIN), digest_size=16).digest()


class Offers:
    """Reads offers out of rows with `TURN_COLUMNS`; turns with the same one share it."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[bytes, Any]] = {}

    def tools(self, row: sqlite3.Row) -> list[Tool]:
        return self._read(row, "tools") or []

    def template(self, row: sqlite3.Row) -> TemplateOptions:
        return self._read(row, "template") or TemplateOptions()

    def _read(self, row: sqlite3.Row, name: str) -> Any:
        digest, body = row[name], row[f"{name}_body"]
        if digest is None:
            return None
        if body is None:
            raise StoreError(f"the {name} that turn {row['id']} was offered are missing")
        last = self._last.get(name)
        if last is None or last[0] != digest:
            last = self._last[name] = digest, json.loads(zlib.decompress(body))
        return last[1]
