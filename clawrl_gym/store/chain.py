"""Turns put together again from what each adds to the one before it."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field

from clawrl_gym.core.errors import StoreError
from clawrl_gym.core.types import Message, Turn
from clawrl_gym.dialogue.delta import weave_ids, weave_messages
from clawrl_gym.store.offers import TURN_COLUMNS, Offers
from clawrl_gym.store.rows import unpack_floats, unpack_ints

WITH_BASES = f"""WITH RECURSIVE needed (id, base_id) AS (
    SELECT id, base_id FROM turns WHERE id IN ({{wanted}})
    UNION SELECT turns.id, turns.base_id FROM turns JOIN needed ON turns.id = needed.base_id)
SELECT {TURN_COLUMNS} FROM needed JOIN turns USING (id) ORDER BY turns.id"""
"""Turns and what they stand on; `wanted` is a list of marks."""


@dataclass(slots=True)
class _Told:
    """What a conversation held after a turn; it changes in place, so that a long one is cheap."""

    turn_id: int | None = None
    ids_T: list[int] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    prompt: int = 0
    """How many of the ids are the prompt of the turn."""

    def go_on(self, row: sqlite3.Row) -> None:
        weave_ids(
            self.ids_T, row["base_tokens"], unpack_ints(row["prompt"]), json.loads(row["copies"])
        )
        self.prompt = len(self.ids_T)
        self.ids_T += unpack_ints(row["sampled"])
        weave_messages(self.messages, row["base_messages"], json.loads(row["messages"]))
        self.messages.append(json.loads(row["reply"]))
        self.turn_id = row["id"]

    def turn(self, row: sqlite3.Row, offers: Offers) -> Turn:
        """The turn of the row that was the last to go on with; shares integers and messages."""
        logprobs_T = unpack_floats(row["logprobs"])
        return Turn(
            session_id=row["session_id"],
            index=row["idx"],
            kind=row["kind"],
            prompt_ids_T=self.ids_T[: self.prompt],
            sampled_ids_T=self.ids_T[self.prompt :],
            logprobs_T=[None if math.isnan(value) else value for value in logprobs_T],
            versions_T=unpack_ints(row["versions"]),
            finish_reason=row["finish_reason"],
            messages=self.messages[:-1],
            reply=self.messages[-1],
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
    last: dict[tuple[str, str], _Told] = {}
    for row in rows:
        key = (row["session_id"], row["kind"])
        told = _Told() if row["base_id"] is None else last.get(key, _Told())
        if told.turn_id != row["base_id"]:
            raise StoreError(f"turn {row['id']} stands on turn {row['base_id']}, which is missing")
        told.go_on(row)
        last[key] = told
        if wanted is None or row["id"] in wanted:
            yield told.turn(row, offers)


def turns_by_id(db: sqlite3.Connection, wanted: list[int]) -> list[Turn]:
    """The turns of these positions, in the order of their positions."""
    marks = ", ".join("?" * len(wanted))
    return list(each_turn(db.execute(WITH_BASES.format(wanted=marks), wanted), set(wanted)))
