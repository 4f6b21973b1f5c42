"""Reading a run's database, beside its writer or long after it has ended. Takes no lock."""

from __future__ import annotations

import json
from pathlib import Path

from clawrl_gym.store.rows import (
    SessionRow,
    StoredGroup,
    UpdateRow,
    sample_of,
    session_of,
    turn_of,
    update_of,
)
from clawrl_gym.store.schema import DATABASE_FILE, connect_reader
from clawrl_gym.types import Message, Sample, Turn


class StoreReader:
    """Blocking reads over one connection; use it on one thread."""

    def __init__(self, folder: Path) -> None:
        """Raises StoreError when the folder holds no run of this version."""
        self._db = connect_reader(folder / DATABASE_FILE)

    def sessions(self) -> list[SessionRow]:
        """All sessions in the order of their beginning."""
        rows = self._db.execute("SELECT * FROM sessions ORDER BY rowid")
        return [session_of(row) for row in rows]

    def session(self, session_id: str) -> SessionRow | None:
        row = self._db.execute("SELECT * FROM sessions WHERE id=?", (session_id,)).fetchone()
        return None if row is None else session_of(row)

    def turns_of(self, session_id: str) -> list[Turn]:
        """The session's turns in order."""
        turns: dict[int, Turn] = {}
        rows = self._db.execute("SELECT * FROM turns WHERE session_id=? ORDER BY id", (session_id,))
        for row in rows:
            base = None if row["base_id"] is None else turns[row["base_id"]]
            turns[row["id"]] = turn_of(row, base)
        return sorted(turns.values(), key=lambda turn: turn.index)

    def next_states_of(self, session_id: str) -> dict[int, list[Message]]:
        """Next states by turn id; a turn that still waits for its own has no entry."""
        rows = self._db.execute(
            "SELECT turn_id, next_states.messages FROM next_states "
            "JOIN turns ON turns.id = turn_id WHERE session_id=?",
            (session_id,),
        )
        return {turn_id: json.loads(messages) for turn_id, messages in rows}

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

    def close(self) -> None:
        self._db.close()
