"""Turns put together again from what each adds to the one before it."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field

from clawrl_gym.core.errors import StoreError
from clawrl_gym.core.types import Turn
from clawrl_gym.dialogue.delta import IdsDelta, MessagesDelta, Transcript
from clawrl_gym.store.offers import TURN_COLUMNS, Offers
from clawrl_gym.store.rows import unpack_floats, unpack_ints

WITH_BASES = f"""WITH RECURSIVE needed (id, base_id) AS (
    SELECT id, base_id FROM turns WHERE id IN ({{wanted}})
    UNION SELECT turns.id, turns.base_id FROM turns JOIN needed ON turns.id = needed.base_id)
SELECT {TURN_COLUMNS} FROM needed JOIN turns USING (id) ORDER BY turns.id"""
"""Turns and what they stand on; `wanted` is a list of marks."""


@dataclass(slots=True)
class _Conversation:
    """A conversation up to the turn that was read last."""

    turn_id: int | None = None
    transcript: Transcript = field(default_factory=Transcript)

    def extend(self, row: sqlite3.Row) -> None:
        """Go on to the turn of the row, whose base is the turn that was read last."""
        self.transcript.extend(
            IdsDelta(row["base_tokens"], unpack_ints(row["prompt"]), json.loads(row["copies"])),
            unpack_ints(row["sampled"]),
            MessagesDelta(row["base_messages"], row["messages"]),
            json.loads(row["reply"]),
        )
        self.turn_id = row["id"]

    def turn(self, row: sqlite3.Row, offers: Offers) -> Turn:
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
            tools=offers.tools(row),
            template=offers.template(row),
            id=row["id"],
        )


def each_turn(rows: Iterable[sqlite3.Row], wanted: Container[int] | None = None) -> Iterator[Turn]:
    """Turns of rows in the order of their positions, bases included; None wants them all.

    The rows have `TURN_COLUMNS`.
    """
    offers = Offers()
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
        if wanted is None or row["id"] in wanted:
            yield conversation.turn(row, offers)


def turns_by_id(db: sqlite3.Connection, wanted: list[int]) -> list[Turn]:
    """The turns of these positions, in the order of their positions."""
    marks = ", ".join("?" * len(wanted))
    return list(each_turn(db.execute(WITH_BASES.format(wanted=marks), wanted), set(wanted)))
