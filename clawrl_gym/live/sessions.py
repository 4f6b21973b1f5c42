"""Sessions as the gateway knows them: which turn a request follows, and what came back in between.

Everything here can be read again from the store; memory only holds the newest turns of sessions
that are in use. It talks to no policy.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from clawrl_gym.live.splice import PastTurn, extends, same_message
from clawrl_gym.live.wire import Labels, Refusal
from clawrl_gym.store import SessionRow, Store
from clawrl_gym.types import Message, Turn, TurnKind

T = TypeVar("T")
MAX_SESSIONS = 16_384
"""Sessions kept in memory; the longest unused leaves first and is read again when it returns."""
MAX_TURNS = 4
"""Newest turns of a session that a request may follow."""


@dataclass(slots=True)
class _Turnstile:
    """Lets equal requests through one after another."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    inside: int = 0
    """Who is through or waits."""


@dataclass(slots=True)
class Session:
    """One conversation."""

    id: str
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    known: bool = False
    """It is in the store and its turns are here."""
    ended: bool = False
    inside: int = 0
    """Requests under way; it is not forgotten meanwhile."""
    next_index: int = 0
    past: list[PastTurn] = field(default_factory=list)
    """Newest last."""
    unanswered: set[int] = field(default_factory=set)
    """Ids of turns in `past` that wait for their next state."""
    _alone: dict[bytes, _Turnstile] = field(default_factory=dict)

    @asynccontextmanager
    async def one_at_a_time(self, kind: TurnKind, messages: list[Message]) -> AsyncIterator[None]:
        """Equal requests go one after another, so that a retry finds the reply of the first."""
        told = json.dumps([kind, messages], sort_keys=True).encode()
        key = hashlib.blake2b(told, digest_size=16).digest()
        turnstile = self._alone.setdefault(key, _Turnstile())
        turnstile.inside += 1
        try:
            async with turnstile.lock:
                yield
        finally:
            turnstile.inside -= 1
            if not turnstile.inside:
                del self._alone[key]

    def stored_reply(self, kind: TurnKind, messages: list[Message]) -> Turn | None:
        """The turn that this very request made, while nothing has followed it."""
        for past in reversed(self.past):
            turn = past.turn
            if turn.id in self.unanswered and turn.kind == kind and turn.messages == messages:
                return turn
        return None

    def before(self, kind: TurnKind, messages: list[Message]) -> PastTurn | None:
        """The turn that a request extends; else the newest of its kind."""
        own = [past for past in self.past if past.turn.kind == kind]
        extended = [past for past in own if extends(messages, past.turn)]
        return max(extended, key=lambda past: len(past.turn.messages), default=None) or (
            own[-1] if own else None
        )

    def answered_by(self, messages: list[Message]) -> tuple[Turn, list[Message]] | None:
        """The main turn whose next state a request brings, and that next state.

        It is what follows our reply, wherever the client has put the reply.
        """
        for past in reversed(self.past):
            turn = past.turn
            if turn.id not in self.unanswered or turn.kind != "main":
                continue
            state = what_follows(messages, turn.reply)
            if state:
                return turn, state
        return None

    def add(self, turn: Turn, rendered_ids_T: list[int]) -> None:
        assert turn.id is not None
        self.past.append(PastTurn(turn, rendered_ids_T))
        self.unanswered.add(turn.id)
        for old in self.past[:-MAX_TURNS]:
            self.unanswered.discard(old.turn.id or 0)
        del self.past[:-MAX_TURNS]


def what_follows(messages: list[Message], reply: Message) -> list[Message]:
    """The messages after the last one that is `reply`; none when it is not there."""
    for at in range(len(messages) - 1, -1, -1):
        if messages[at].get("role") == "assistant" and _same_reply(messages[at], reply):
            return messages[at + 1 :]
    return []


def _same_reply(sent_back: Message, reply: Message) -> bool:
    """Clients often leave reasoning out when they send a reply back."""
    if same_message(sent_back, reply):
        return True
    without = {key: value for key, value in reply.items() if key != "reasoning_content"}
    return same_message(sent_back, without)  # type: ignore[arg-type]


class Sessions:
    """All sessions of one gateway."""

    def __init__(self, store: Store, max_sessions: int = MAX_SESSIONS) -> None:
        self._store = store
        self._max_sessions = max_sessions
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._recording: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._sessions)

    @asynccontextmanager
    async def use(self, session_id: str, labels: Labels) -> AsyncIterator[Session]:
        """The session of this id, made when it is new, read from the store when it is not here."""
        session = self._sessions.setdefault(session_id, Session(session_id))
        self._sessions.move_to_end(session_id)
        session.inside += 1
        try:
            async with session.opening:
                if not session.known:
                    await self._know(session, labels)
            yield session
        finally:
            session.inside -= 1
            self._forget_some()

    async def record(self, session: Session, turn: Turn, rendered_ids_T: list[int]) -> Turn:
        """Store a finished turn. Raises Refusal (409) when the session has ended meanwhile.

        It is finished even when its client leaves: the store and the session stay one.
        """
        return await self._shielded(self._record(session, turn, rendered_ids_T))

    async def _record(self, session: Session, turn: Turn, rendered_ids_T: list[int]) -> Turn:
        if session.ended:
            raise ended_refusal(session.id)
        numbered = replace(turn, index=session.next_index)
        session.next_index += 1
        stored = replace(numbered, id=await self._store.add_turn(numbered))
        session.add(stored, rendered_ids_T)
        return stored

    async def record_next_state(self, session: Session, turn: Turn, state: list[Message]) -> None:
        assert turn.id is not None
        await self._store.add_next_state(turn.id, state)
        session.unanswered.discard(turn.id)

    async def end(
        self,
        session: Session,
        state: list[Message] | None,
        reward: float | None,
        stop_reason: str,
        error: str | None,
    ) -> bool:
        """Record the outcome, and the next state of the last turn; False when it had ended."""
        return await self._shielded(self._end(session, state, reward, stop_reason, error))

    async def finish(self, timeout_s: float) -> None:
        """Wait for what is being recorded."""
        if self._recording:
            await asyncio.wait(self._recording, timeout=timeout_s)

    async def _end(
        self,
        session: Session,
        state: list[Message] | None,
        reward: float | None,
        stop_reason: str,
        error: str | None,
    ) -> bool:
        session.ended = True
        waiting = [p.turn for p in session.past if p.turn.id in session.unanswered]
        main = [turn for turn in waiting if turn.kind == "main"]
        if state and main:
            await self.record_next_state(session, main[-1], state)
        session.past.clear()
        session.unanswered.clear()
        return await self._store.end_session(
            session.id, reward=reward, stop_reason=stop_reason, error=error
        )

    async def _shielded(self, recording: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(recording)
        self._recording.add(task)
        task.add_done_callback(self._recording.discard)
        return await asyncio.shield(task)

    async def _know(self, session: Session, labels: Labels) -> None:
        is_new = await self._store.add_session(
            SessionRow(
                id=session.id,
                task_id=labels.task_id,
                group_id=labels.group_id,
                split=labels.split,
                source="live" if labels.group_id is None else "rollout",
                created_s=time.time(),
            )
        )
        if not is_new:
            await self._recall(session)
        session.known = True

    async def _recall(self, session: Session) -> None:
        row = await self._store.session(session.id)
        session.ended = row is not None and row.ended_s is not None
        turns = await self._store.turns_of(session.id)
        states = await self._store.next_states_of(session.id)
        session.next_index = 1 + max((turn.index for turn in turns), default=-1)
        session.past = [PastTurn(turn, turn.prompt_ids_T) for turn in turns[-MAX_TURNS:]]
        ids = {past.turn.id for past in session.past if past.turn.id is not None}
        session.unanswered = ids - states.keys()

    def _forget_some(self) -> None:
        while len(self._sessions) > self._max_sessions:
            session_id = next((s.id for s in self._sessions.values() if not s.inside), None)
            if session_id is None:
                return
            del self._sessions[session_id]


def ended_refusal(session_id: str) -> Refusal:
    return Refusal(
        409, f"session {session_id!r} has ended: begin another one", code="session_ended"
    )
