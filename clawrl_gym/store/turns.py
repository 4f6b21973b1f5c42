"""Turns on their way into the database: each is stored as what it adds to the one before it.

A turn's base is the turn of its session and kind that was stored before it. After `MAX_DEPTH` of
them one is stored whole, so that no turn takes more than so many rows to read.
"""

from __future__ import annotations

import json
import sqlite3
from array import array
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any, Self

from clawrl_gym.core.types import Turn, TurnKind
from clawrl_gym.dialogue.delta import diff_ids, diff_messages
from clawrl_gym.store.chain import WITH_BASES, each_turn
from clawrl_gym.store.offers import keep_offer
from clawrl_gym.store.pictures import add_references
from clawrl_gym.store.rows import pack_floats, pack_ints, to_json
from clawrl_gym.store.writer import Transaction

MAX_DEPTH = 256
BASES_BYTES = 128 * 2**20
"""Memory for the last turns of conversations; others are read again when they go on."""


@dataclass(frozen=True, slots=True)
class Base:
    """A turn, as the next turn of its conversation is told against it."""

    id: int | None
    ids_T: array[int]
    """Prompt and sampled ids."""
    texts: list[str]
    """Its messages and its reply, each as JSON."""
    depth: int
    """Turns that must be read before this one."""

    @classmethod
    def of(cls, turn: Turn, depth: int) -> Self:
        """The base that a turn is for the next one."""
        ids_T = array("i", turn.prompt_ids_T) + array("i", turn.sampled_ids_T)
        texts = [to_json(message) for message in (*turn.messages, turn.reply)]
        return cls(turn.id, ids_T, texts, depth)

    @property
    def size_bytes(self) -> int:
        """What it takes of memory, about."""
        return 4 * len(self.ids_T) + sum(60 + len(text) for text in self.texts)


def turn_columns(turn: Turn, own: Base, base: Base | None) -> dict[str, Any]:
    """The columns of a turn, whose own base is `own`, as what it adds to `base`."""
    before = Base(None, array("i"), [], 0) if base is None else base
    prompt = len(turn.prompt_ids_T)
    ids = diff_ids(before.ids_T, own.ids_T[:prompt])
    *texts, reply = own.texts
    messages = diff_messages(before.texts, texts)
    return {
        "session_id": turn.session_id,
        "idx": turn.index,
        "kind": turn.kind,
        "rule": turn.rule,
        "base_id": before.id,
        "base_tokens": ids.shared,
        "copies": json.dumps(ids.runs),
        "prompt": pack_ints(ids.own_ids),
        "sampled": pack_ints(own.ids_T[prompt:]),
        "logprobs": pack_floats(turn.logprobs_T),
        "versions": pack_ints(turn.versions_T),
        "finish_reason": turn.finish_reason,
        "base_messages": messages.shared,
        "messages": messages.entries,
        "reply": reply,
        "created_s": turn.created_s,
    }


class Bases:
    """The last turn of each conversation in use, bounded by what it takes of memory."""

    def __init__(self, max_bytes: int = BASES_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bases: OrderedDict[tuple[str, str], Base] = OrderedDict()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._bases)

    def of(self, db: sqlite3.Connection, turn: Turn) -> Base | None:
        """What a turn is told against; None: it is stored whole."""
        base = self._bases.get((turn.session_id, turn.kind))
        if base is None and turn.index > 0:
            base = _read_base(db, turn.session_id, turn.kind)
        return None if base is None or base.depth + 1 >= MAX_DEPTH else base

    def keep(self, session_id: str, kind: TurnKind, base: Base) -> None:
        self.drop(session_id, kind)
        self._bases[session_id, kind] = base
        self.size_bytes += base.size_bytes
        while self.size_bytes > self._max_bytes:
            self.drop(*next(iter(self._bases)))

    def drop(self, session_id: str, *kinds: str) -> None:
        for kind in kinds or ("main", "side"):
            base = self._bases.pop((session_id, kind), None)
            self.size_bytes -= 0 if base is None else base.size_bytes

    def clear(self) -> None:
        self._bases.clear()
        self.size_bytes = 0


def add_turn(tx: Transaction, bases: Bases, turn: Turn, mark: str) -> dict[str, Any]:
    """Job: store a turn; returns its columns with its position."""
    base = bases.of(tx.db, turn)
    own = Base.of(turn, 0 if base is None else base.depth + 1)
    columns = turn_columns(turn, own, base) | {
        "mark": mark,
        "tools": keep_offer(tx, turn.session_id, turn.tools),
        "template": keep_offer(tx, turn.session_id, turn.template),
    }
    position = tx.add("turns", columns)
    add_references(tx, turn.session_id, turn.messages)
    tx.db.execute(
        "UPDATE sessions SET last_s = max(last_s, ?) WHERE id=?",
        (turn.created_s, turn.session_id),
    )
    bases.keep(turn.session_id, turn.kind, replace(own, id=position))
    return {"id": position, **columns}


def _read_base(db: sqlite3.Connection, session_id: str, kind: TurnKind) -> Base | None:
    query = "SELECT max(id) FROM turns WHERE session_id=? AND kind=?"
    (newest,) = db.execute(query, (session_id, kind)).fetchone()
    if newest is None:
        return None
    rows = db.execute(WITH_BASES.format(wanted="?"), (newest,)).fetchall()
    (turn,) = each_turn(rows, {newest})
    return Base.of(turn, depth=len(rows) - 1)
