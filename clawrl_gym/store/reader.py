"""Reading a run's database, beside its writer or long after it has ended. Takes no lock."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from clawrl_gym.core.types import Message, Sample, Turn, Verdict
from clawrl_gym.store.chain import each_turn, turns_by_id
from clawrl_gym.store.live import LiveReader
from clawrl_gym.store.offers import TURN_COLUMNS
from clawrl_gym.store.rows import (
    SessionRow,
    StoredGroup,
    UpdateRow,
    session_of,
    update_of,
    verdict_of,
)
from clawrl_gym.store.samples import sample_of
from clawrl_gym.store.schema import DATABASE_FILE, connect_reader


class StoreReader(LiveReader):
    """Blocking reads over one connection; use it on one thread."""

    def __init__(self, folder: Path) -> None:
        """Raises StoreError when the folder holds no run that this version can read."""
        super().__init__(connect_reader(folder / DATABASE_FILE))

    @classmethod
    def sharing(cls, db: sqlite3.Connection) -> Self:
        """Read over the writer's own connection; the caller keeps the two apart in time."""
        reader = cls.__new__(cls)
        LiveReader.__init__(reader, db)
        return reader

    def sessions(self) -> list[SessionRow]:
        """All sessions in the order of their beginning."""
        rows = self._db.execute("SELECT * FROM sessions ORDER BY rowid")
        return [session_of(row) for row in rows]

    def session(self, session_id: str) -> SessionRow | None:
        row = self._db.execute("SELECT * FROM sessions WHERE id=?", (session_id,)).fetchone()
        return None if row is None else session_of(row)

    def each_turn_of(self, session_id: str) -> Iterator[Turn]:
        """The session's turns in the order of their positions, one at a time."""
        query = f"SELECT {TURN_COLUMNS} FROM turns WHERE session_id=? ORDER BY id"
        return each_turn(self._db.execute(query, (session_id,)))

    def turns_of(self, session_id: str) -> list[Turn]:
        """All turns of the session in order; for long sessions rather a page or the last ones."""
        return sorted(self.each_turn_of(session_id), key=lambda turn: turn.index)

    def page_of_turns(self, session_id: str, first: int, count: int) -> list[Turn]:
        """The session's turns from an index on, in order."""
        query = "SELECT id FROM turns WHERE session_id=? AND idx >= ? ORDER BY idx LIMIT ?"
        return self._in_order(query, (session_id, first, count))

    def last_turns(self, session_id: str, count: int) -> list[Turn]:
        """The session's newest turns, in order."""
        query = "SELECT id FROM turns WHERE session_id=? ORDER BY idx DESC LIMIT ?"
        return self._in_order(query, (session_id, count))

    def turn(self, turn_id: int) -> Turn | None:
        return next(iter(turns_by_id(self._db, [turn_id])), None)

    def next_states_of(self, session_id: str) -> dict[int, list[Message]]:
        """Next states by turn id; a turn that still waits for its own has no entry."""
        rows = self._db.execute(
            "SELECT turn_id, next_states.messages FROM next_states "
            "JOIN turns ON turns.id = turn_id WHERE session_id=?",
            (session_id,),
        )
        return {turn_id: json.loads(messages) for turn_id, messages in rows}

    def next_state_of(self, turn_id: int) -> list[Message] | None:
        query = "SELECT messages FROM next_states WHERE turn_id=?"
        row = self._db.execute(query, (turn_id,)).fetchone()
        return None if row is None else json.loads(row["messages"])

    def verdicts_of(self, session_id: str) -> dict[int, list[Verdict]]:
        """Verdicts by turn id, oldest first."""
        rows = self._db.execute(
            "SELECT verdicts.* FROM turns JOIN verdicts ON turn_id = turns.id "
            "WHERE session_id=? ORDER BY verdicts.id",
            (session_id,),
        )
        verdicts: defaultdict[int, list[Verdict]] = defaultdict(list)
        for row in rows:
            verdicts[row["turn_id"]].append(verdict_of(row))
        return dict(verdicts)

    def samples_of_session(self, session_id: str) -> list[Sample]:
        rows = self._db.execute(
            "SELECT * FROM samples WHERE session_id=? ORDER BY id", (session_id,)
        )
        return [sample_of(row) for row in rows]

    def untrained_samples(self) -> list[Sample]:
        """Samples of no batch and no used group: in store order, groups kept together."""
        rows = self._db.execute(
            "SELECT samples.*, min(id) OVER (PARTITION BY samples.group_id) AS first FROM samples "
            "LEFT JOIN groups USING (group_id) WHERE used_by IS NULL AND trained_by IS NULL "
            "AND id NOT IN (SELECT sample_id FROM batches) ORDER BY first, id"
        )
        return [sample_of(row) for row in rows]

    def untrained_groups(self) -> list[StoredGroup]:
        """Groups that no update has used, in the order of their acceptance."""
        waiting = self._db.execute(
            "SELECT group_id FROM groups WHERE used_by IS NULL ORDER BY position"
        )
        query = "SELECT * FROM samples WHERE group_id=? ORDER BY id"
        return [
            StoredGroup(group_id, [sample_of(row) for row in self._db.execute(query, (group_id,))])
            for (group_id,) in waiting.fetchall()
        ]

    def group_numbers(self) -> set[int]:
        """Ids of all accepted groups."""
        return {group_id for (group_id,) in self._db.execute("SELECT group_id FROM groups")}

    def samples_of_update(self, version: int) -> list[Sample]:
        """The batch of an update, in its order; empty for a version that has no update."""
        rows = self._db.execute(
            "SELECT samples.* FROM batches JOIN samples ON samples.id = sample_id "
            "WHERE version=? ORDER BY position",
            (version,),
        )
        return [sample_of(row) for row in rows]

    def updates(self) -> list[UpdateRow]:
        """All updates, oldest first."""
        rows = self._db.execute("SELECT * FROM updates ORDER BY version")
        return [update_of(row) for row in rows]

    def _in_order(self, query: str, values: tuple[str | int, ...]) -> list[Turn]:
        ids = [turn_id for (turn_id,) in self._db.execute(query, values).fetchall()]
        return sorted(turns_by_id(self._db, ids), key=lambda turn: turn.index)
