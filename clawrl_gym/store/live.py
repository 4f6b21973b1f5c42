"""What live conversations ask the store: what is open, what waits for a verdict or a sample.

Each question is answered from an index, however long the run.
"""

from __future__ import annotations

import sqlite3
from collections import Counter

from clawrl_gym.core.types import Verdict
from clawrl_gym.store.rows import OpenSession, SessionSummary, TurnMark, session_of, verdict_of
from clawrl_gym.store.verdicts import can_teach, effective

_MARKS = (
    "SELECT session_id, turns.id, idx, turns.kind, finish_reason, turns.created_s, "
    "EXISTS (SELECT 1 FROM next_states WHERE turn_id = turns.id), mark FROM turns"
)
_VERDICT_NAMES = {1: "+1", 0: "0", -1: "-1", None: "abstain"}


def _mark_of(row: sqlite3.Row) -> TurnMark:
    session_id, turn_id, index, kind, finish_reason, created_s, answered, mark = row
    return TurnMark(
        session_id, turn_id, index, kind, finish_reason, created_s, bool(answered), mark
    )


class LiveReader:
    """Blocking reads over one connection."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def close(self) -> None:
        self._db.close()

    def unanswered_turns(self, session_id: str) -> set[int]:
        """Turns of a session without a next state."""
        rows = self._db.execute(
            "SELECT id FROM turns WHERE session_id=? "
            "AND NOT EXISTS (SELECT 1 FROM next_states WHERE turn_id = turns.id)",
            (session_id,),
        )
        return {turn_id for (turn_id,) in rows}

    def marks_of(self, session_id: str, count: int) -> list[TurnMark]:
        """The session's newest turns, oldest of them first; reads no conversation."""
        rows = self._db.execute(
            f"{_MARKS} WHERE session_id=? ORDER BY idx DESC LIMIT ?", (session_id, count)
        )
        return [_mark_of(row) for row in reversed(rows.fetchall())]

    def open_marks(self, limit: int) -> list[TurnMark]:
        """The newest turns of all open live sessions, newest first."""
        rows = self._db.execute(
            f"{_MARKS} JOIN sessions ON sessions.id = session_id "
            "WHERE ended_s IS NULL AND source='live' ORDER BY turns.id DESC LIMIT ?",
            (limit,),
        )
        return [_mark_of(row) for row in rows]

    def last_main_turn(self, session_id: str) -> int | None:
        row = self._db.execute(
            "SELECT id FROM turns WHERE session_id=? AND kind='main' ORDER BY idx DESC LIMIT 1",
            (session_id,),
        ).fetchone()
        return None if row is None else int(row["id"])

    def unjudged(self, limit: int, after_id: int = 0) -> list[int]:
        """Live main turns with a next state and no verdict, oldest first, after a position."""
        rows = self._db.execute(
            "SELECT turn_id FROM next_states WHERE judged = 0 AND turn_id > ? "
            "ORDER BY turn_id LIMIT ?",
            (after_id, limit),
        )
        return [turn_id for (turn_id,) in rows]

    def judged_without_sample(self) -> list[Verdict]:
        """The effective verdict of each turn that has one which no sample has come of."""
        waiting = self._db.execute(
            "SELECT DISTINCT turn_id FROM verdicts WHERE settled = 0 ORDER BY turn_id"
        )
        verdicts = [self._verdict_on(turn_id) for (turn_id,) in waiting.fetchall()]
        return [v for v in verdicts if v is not None and can_teach(v)]

    def live_rewards(self, limit: int = 1000) -> list[tuple[str, float]]:
        """Kind and reward of the newest settled verdicts on live turns but neutral ones, by id."""
        rows = self._db.execute(
            "SELECT verdicts.kind, verdicts.reward FROM verdicts "
            "JOIN turns ON turns.id = turn_id JOIN sessions ON sessions.id = session_id "
            "WHERE settled = 1 AND verdicts.reward <> 0 AND source = 'live' "
            "ORDER BY verdicts.id DESC LIMIT ?",
            (limit,),
        )
        return [(kind, reward) for kind, reward in reversed(rows.fetchall())]

    def ended_without_yield(self) -> list[str]:
        """Live sessions that ended and whose yield is not known, oldest first."""
        rows = self._db.execute(
            "SELECT id FROM sessions WHERE source = 'live' AND samples IS NULL "
            "AND ended_s IS NOT NULL ORDER BY ended_s"
        )
        return [session_id for (session_id,) in rows]

    def open_live_sessions(self) -> list[OpenSession]:
        """Live sessions that have not ended, longest quiet first."""
        rows = self._db.execute(
            "SELECT id, last_s FROM sessions WHERE ended_s IS NULL AND source='live' "
            "ORDER BY last_s"
        )
        return [OpenSession(session_id, last_s) for session_id, last_s in rows]

    def session_summaries(self, limit: int = 100, open_only: bool = False) -> list[SessionSummary]:
        """Sessions for a list, last active first."""
        where = "WHERE ended_s IS NULL" if open_only else ""
        rows = self._db.execute(
            f"SELECT * FROM sessions {where} ORDER BY last_s DESC LIMIT ?", (limit,)
        )
        return [self._summary(row) for row in rows.fetchall()]

    def expired_sessions(self, ended_before_s: float) -> list[str]:
        """Live sessions that ended earlier, oldest first."""
        rows = self._db.execute(
            "SELECT id FROM sessions WHERE source='live' AND ended_s < ? ORDER BY ended_s",
            (ended_before_s,),
        )
        return [session_id for (session_id,) in rows]

    def _summary(self, row: sqlite3.Row) -> SessionSummary:
        counted = self._db.execute(
            "SELECT kind, count(*) FROM turns WHERE session_id=? GROUP BY kind", (row["id"],)
        )
        kinds = dict(counted.fetchall())
        judged = self._db.execute(
            "SELECT DISTINCT turn_id FROM turns JOIN verdicts ON turn_id = turns.id "
            "WHERE session_id=?",
            (row["id"],),
        )
        verdicts = Counter(
            _VERDICT_NAMES[verdict.value]
            for (turn_id,) in judged.fetchall()
            if (verdict := self._verdict_on(turn_id)) is not None
        )
        return SessionSummary(
            session_of(row), row["last_s"], kinds.get("main", 0), kinds.get("side", 0),
            dict(verdicts),
        )  # fmt: skip

    def _verdict_on(self, turn_id: int) -> Verdict | None:
        rows = self._db.execute("SELECT * FROM verdicts WHERE turn_id=? ORDER BY id", (turn_id,))
        return effective(verdict_of(row) for row in rows)
