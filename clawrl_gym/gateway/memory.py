"""The sessions that are in memory: those in use, and the last used ones.

What leaves memory is read again from the store. A session's hashes are small; the turns that are
kept whole are not, so both the number of sessions and what they take are limited.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from clawrl_gym.dialogue.graph import TurnNode
from clawrl_gym.dialogue.prompts import PreviousTurn
from clawrl_gym.gateway.session import MAX_MARKS, Session
from clawrl_gym.store import SessionRow, Store, TurnMark

MAX_BYTES = 64 * 2**20
"""What idle sessions may take, about; beyond it fewer stay than asked for."""


class SessionCache:
    """Sessions by id; brings them in and lets them go."""

    def __init__(self, store: Store, warm_sessions: int, max_bytes: int = MAX_BYTES) -> None:
        self._store = store
        self._warm_sessions = warm_sessions
        self._max_bytes = max_bytes
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._inside = 0
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @asynccontextmanager
    async def entered(self, session_id: str) -> AsyncIterator[Session]:
        """The session's place in memory, which stays while somebody is inside."""
        session = self._sessions.setdefault(session_id, Session(session_id))
        self._sessions.move_to_end(session_id)
        self._inside += session.inside == 0
        session.inside += 1
        try:
            yield session
        finally:
            session.inside -= 1
            self._inside -= session.inside == 0
            self._count(session)
            self._forget_some()

    async def know(self, session: Session, row: SessionRow) -> None:
        """Read a stored session's turns."""
        marks = await self._store.marks_of(session.id, MAX_MARKS)
        session.is_rollout = row.source == "rollout"
        session.ended = row.ended_s is not None
        session.next_index = 1 + max((mark.index for mark in marks), default=-1)
        session.marks = [mark_of(mark) for mark in marks if mark.mark]
        session.waiting = {mark.turn_id for mark in marks if mark.mark and not mark.has_next_state}
        session.is_known = True

    async def whole(self, session: Session, mark: TurnNode) -> PreviousTurn | None:
        """A turn, read again when it is not here; None when it was deleted meanwhile."""
        past = session.whole(mark.turn_id)
        if past is None:
            life = session.life
            turn = await self._store.turn(mark.turn_id)
            if turn is None or life != session.life:
                return None
            past = PreviousTurn(turn, mark.rendered)
        session.warm(mark.turn_id, past)
        return past

    def _count(self, session: Session) -> None:
        if not session.is_known and not session.inside:
            del self._sessions[session.id]
        size = session.size_bytes() if session.id in self._sessions else 0
        self.size_bytes += size - session.counted_bytes
        session.counted_bytes = size

    def _forget_some(self) -> None:
        while self._is_full():
            oldest = next(one for one in self._sessions.values() if not one.inside)
            del self._sessions[oldest.id]
            self.size_bytes -= oldest.counted_bytes

    def _is_full(self) -> bool:
        idle = len(self._sessions) - self._inside
        return idle > self._warm_sessions or (idle > 0 and self.size_bytes > self._max_bytes)


def mark_of(row: TurnMark) -> TurnNode:
    """A mark as the store keeps it."""
    return TurnNode.read(row.mark, row.turn_id, row.kind, row.finish_reason, row.created_s)
