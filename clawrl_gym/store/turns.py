"""Turns in the database: each is stored as what it adds to the one before it, see `delta.py`.

A turn's base is the turn of its session and kind that was stored before it. After `MAX_DEPTH` of
them one is stored whole, so that no turn takes more than so many rows to read. Its tools and what
else the chat template read are repeated by clients with every request: a session stores each
distinct value once (table `offers`), and a turn its digest.
"""

from __future__ import annotations

import hashlib
import json
import marshal
import math
import sqlite3
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Self

from clawrl_gym.core.errors import StoreError
from clawrl_gym.core.types import TemplateOptions, Turn, TurnKind
from clawrl_gym.dialogue.delta import (
    IdsDelta,
    MessagesDelta,
    Transcript,
    diff_ids,
    diff_messages,
)
from clawrl_gym.store.pictures import add_references
from clawrl_gym.store.rows import (
    TurnColumns,
    pack_floats,
    pack_ints,
    to_json,
    unpack_floats,
    unpack_ints,
)
from clawrl_gym.store.writer import Transaction

MAX_DEPTH = 256
BASES_BYTES = 128 * 2**20
"""Bytes of memory for the last turns of conversations; others are read again when they continue."""


# Writing.


@dataclass(frozen=True, slots=True)
class Base:
    """A turn as the base that the next turn of its conversation is compared with."""

    id: int | None
    ids_T: array[int]
    """Ids of prompt and reply."""
    texts: list[str]
    """Its messages and its reply, each as JSON."""
    depth: int
    """Turns that must be read before this one."""

    @classmethod
    def of(cls, turn: Turn, depth: int) -> Self:
        """The base that this turn is for the next one."""
        ids_T = array("i", turn.prompt_ids_T) + array("i", turn.sampled_ids_T)
        texts = [to_json(message) for message in (*turn.messages, turn.reply)]
        return cls(turn.id, ids_T, texts, depth)

    @property
    def size_bytes(self) -> int:
        """Approximate bytes of memory."""
        return 4 * len(self.ids_T) + sum(60 + len(text) for text in self.texts)


class Bases:
    """The last turn of each conversation in use, within a bound of memory."""

    def __init__(self, max_bytes: int = BASES_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bases: OrderedDict[tuple[str, str], Base] = OrderedDict()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._bases)

    def of(self, db: sqlite3.Connection, turn: Turn) -> Base | None:
        """The turn to compare with; None: it is stored whole."""
        base = self._bases.get((turn.session_id, turn.kind))
        if base is None and turn.index > 0:
            base = _read_base(db, turn.session_id, turn.kind)
        return None if base is None or base.depth + 1 >= MAX_DEPTH else base

    def add(self, session_id: str, kind: TurnKind, base: Base) -> None:
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


def add_turn(tx: Transaction, bases: Bases, turn: Turn, node: str) -> TurnColumns:
    """Job: store a turn."""
    base = bases.of(tx.db, turn)
    own = Base.of(turn, 0 if base is None else base.depth + 1)
    columns = _columns_of(tx, turn, own, base or Base(None, array("i"), [], 0), node)
    tx.insert("INSERT INTO turns", columns)
    add_references(tx, turn.session_id, turn.messages)
    tx.db.execute(
        "UPDATE sessions SET last_s = max(last_s, ?), bytes = bytes + ? WHERE id=?",
        (turn.created_s, _size_of(columns), turn.session_id),
    )
    bases.add(turn.session_id, turn.kind, replace(own, id=columns["id"]))
    return columns


def _size_of(columns: TurnColumns) -> int:
    """Approximate bytes on the disk: streams are in the database, texts in a log, too."""
    streams = (columns["prompt"], columns["sampled"], columns["logprobs"], columns["versions"])
    texts = (columns["messages"], columns["reply"])
    return sum(map(len, streams)) + 2 * sum(map(len, texts))


def _columns_of(tx: Transaction, turn: Turn, own: Base, base: Base, node: str) -> TurnColumns:
    """The columns of a turn, as the difference of `own` from `base`."""
    prompt_length = len(turn.prompt_ids_T)
    ids = diff_ids(base.ids_T, own.ids_T[:prompt_length])
    *texts, reply = own.texts
    messages = diff_messages(base.texts, texts)
    tools = _add_offer(tx, turn.session_id, turn.tools)
    template = _add_offer(tx, turn.session_id, turn.template)
    return {
        "id": tx.positions.next("turns"),
        "session_id": turn.session_id,
        "idx": turn.index,
        "kind": turn.kind,
        "rule": turn.rule,
        "base_id": base.id,
        "base_tokens": ids.shared,
        "copies": json.dumps(ids.runs),
        "prompt": pack_ints(ids.own_ids),
        "sampled": pack_ints(own.ids_T[prompt_length:]),
        "logprobs": pack_floats(turn.logprobs_T),
        "versions": pack_ints(turn.versions_T),
        "finish_reason": turn.finish_reason,
        "base_messages": messages.shared,
        "messages": messages.entries,
        "reply": reply,
        "created_s": turn.created_s,
        "mark": node,
        "tools": tools,
        "template": template,
        "temperature": turn.temperature,
        "untrainable": turn.untrainable,
        "stop_text": turn.stop_text,
        "answer_id": turn.answer_id,
    }


def _read_base(db: sqlite3.Connection, session_id: str, kind: TurnKind) -> Base | None:
    query = "SELECT max(id) FROM turns WHERE session_id=? AND kind=?"
    (newest,) = db.execute(query, (session_id, kind)).fetchone()
    if newest is None:
        return None
    rows = db.execute(_WITH_BASES.format(parameters="?"), (newest,)).fetchall()
    (turn,) = each_turn(rows, {newest})
    return Base.of(turn, depth=len(rows) - 1)


_PLAIN_FORMAT = 2
"""Marshal's version without references: equal values come out as equal bytes."""


def _add_offer(tx: Transaction, session_id: str, offer: Any) -> bytes | None:
    """Store tools or template options unless the session has them; returns their digest, if any.

    Each turn computes the digest, of what can be long: marshal's plain form is exact and beats
    JSON. Were it ever to change, an offer would be stored twice and still be read.
    """
    if not offer:
        return None
    digest = hashlib.blake2b(marshal.dumps(offer, _PLAIN_FORMAT), digest_size=16).digest()
    query = "SELECT 1 FROM offers WHERE session_id=? AND digest=?"
    if tx.one(query, (session_id, digest)) is None:
        row = {
            "session_id": session_id,
            "digest": digest,
            "body": zlib.compress(to_json(offer).encode()),
        }
        tx.insert("INSERT INTO offers", row)
    return digest


# Reading.

_OFFER_BODY = (
    "(SELECT body FROM offers WHERE offers.session_id = turns.session_id "
    "AND offers.digest = turns.{name}) AS {name}_body"
)
TURN_COLUMNS = f"turns.*, {_OFFER_BODY.format(name='tools')}, {_OFFER_BODY.format(name='template')}"
"""Columns of a turn with its offers; in one query, because its session may be deleted meanwhile."""

_WITH_BASES = f"""WITH RECURSIVE needed (id, base_id) AS (
    SELECT id, base_id FROM turns WHERE id IN ({{parameters}})
    UNION SELECT turns.id, turns.base_id FROM turns JOIN needed ON turns.id = needed.base_id)
SELECT {TURN_COLUMNS} FROM needed JOIN turns USING (id) ORDER BY turns.id"""
"""Turns and their bases, back to the one that was stored whole."""


def turns_by_id(db: sqlite3.Connection, turn_ids: list[int]) -> list[Turn]:
    """The turns of these positions, in the order of their positions."""
    query = _WITH_BASES.format(parameters=", ".join("?" * len(turn_ids)))
    return list(each_turn(db.execute(query, turn_ids), set(turn_ids)))


def each_turn(
    rows: Iterable[sqlite3.Row], turn_ids: Container[int] | None = None
) -> Iterator[Turn]:
    """The turns of these positions (None: all) out of rows that hold their bases, too.

    The rows have `TURN_COLUMNS` and come in the order of their positions.
    """
    offers = _Offers()
    conversations: dict[tuple[str, str], _Conversation] = {}
    for row in rows:
        key = (row["session_id"], row["kind"])
        conversation = _Conversation()
        if row["base_id"] is not None:
            conversation = conversations.get(key, conversation)
        if conversation.turn_id != row["base_id"]:
            raise StoreError(f"turn {row['id']} stands on turn {row['base_id']}, which is missing")
        conversation.extend(row)
        conversations[key] = conversation
        if turn_ids is None or row["id"] in turn_ids:
            yield conversation.turn(row, offers)


@dataclass(slots=True)
class _Conversation:
    """A conversation up to the turn that was read last."""

    turn_id: int | None = None
    transcript: Transcript = field(default_factory=Transcript)

    def extend(self, row: sqlite3.Row) -> None:
        """Extend it to the turn of the row, whose base is the turn that was read last."""
        self.transcript.extend(
            IdsDelta(row["base_tokens"], unpack_ints(row["prompt"]), json.loads(row["copies"])),
            unpack_ints(row["sampled"]),
            MessagesDelta(row["base_messages"], row["messages"]),
            json.loads(row["reply"]),
        )
        self.turn_id = row["id"]

    def turn(self, row: sqlite3.Row, offers: _Offers) -> Turn:
        """The turn of the row that was read last; shares integers and messages."""
        transcript, prompt_length = self.transcript, self.transcript.prompt_length
        logprobs_T = unpack_floats(row["logprobs"])
        return Turn(
            session_id=row["session_id"],
            index=row["idx"],
            kind=row["kind"],
            prompt_ids_T=transcript.ids_T[:prompt_length],
            sampled_ids_T=transcript.ids_T[prompt_length:],
            logprobs_T=[None if math.isnan(value) else value for value in logprobs_T],
            versions_T=unpack_ints(row["versions"]),
            finish_reason=row["finish_reason"],
            messages=transcript.messages[:-1],
            reply=transcript.messages[-1],
            created_s=row["created_s"],
            rule=row["rule"],
            tools=offers.read(row, "tools") or [],
            template=offers.read(row, "template") or TemplateOptions(),
            temperature=row["temperature"],
            untrainable=row["untrainable"],
            stop_text=row["stop_text"],
            answer_id=row["answer_id"],
            id=row["id"],
        )


class _Offers:
    """Reads tools and template options from rows; turns with the same ones share them."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[bytes, Any]] = {}

    def read(self, row: sqlite3.Row, name: str) -> Any:
        digest, body = row[name], row[f"{name}_body"]
        if digest is None:
            return None
        if body is None:
            raise StoreError(f"the {name} that turn {row['id']} was offered are missing")
        last = self._last.get(name)
        if last is None or last[0] != digest:
            last = self._last[name] = digest, json.loads(zlib.decompress(body))
        return last[1]
