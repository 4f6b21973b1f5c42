"""What is recorded of requests inside a session: turns, and the next states that they bring.

A next state is recorded once for each turn, whichever of two requests brings it first; also when
the request came before the reply that it follows was recorded, because its client had read the
stream. What has begun is finished when its client leaves: the store and the session stay one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from clawrl_gym.core.errors import StoreError
from clawrl_gym.core.types import INTERRUPTED, Message, Turn
from clawrl_gym.dialogue.graph import TurnNode
from clawrl_gym.dialogue.match import followed, interrupted, is_part_of, next_states
from clawrl_gym.dialogue.prompts import PreviousTurn
from clawrl_gym.gateway.hooks import Hooks
from clawrl_gym.gateway.identify import Identifier
from clawrl_gym.gateway.memory import SessionCache
from clawrl_gym.gateway.session import Session, TurnRequest
from clawrl_gym.store import Store

T = TypeVar("T")


class TurnRecorder:
    """The turns of all sessions, in the store and in memory."""

    def __init__(
        self, store: Store, memory: SessionCache, identifier: Identifier, hooks: Hooks
    ) -> None:
        self._store = store
        self._memory = memory
        self._identifier = identifier
        self._hooks = hooks
        self._recording: set[asyncio.Task[Any]] = set()

    async def stored_reply(self, asked: TurnRequest) -> Turn | None:
        """The turn that this very request made, when it is asked again for the same reply."""
        mark = asked.session.retried(asked)
        past = None if mark is None else await self._memory.whole(asked.session, mark)
        return None if past is None else past.turn

    def delivered(self, asked: TurnRequest, turn: Turn) -> None:
        """A reply has reached its client: the same request is then a wish for another one."""
        if turn.id in asked.session.waiting:
            asked.session.delivered.add(turn.id)

    async def record_next_states(self, asked: TurnRequest) -> None:
        """Record what a main request brings to the turns before it."""
        if asked.identity.kind == "main":
            session = asked.session
            brought = session.brought_by(asked)
            for mark, state in brought + await self._of_interrupted(asked, session.marks):
                await self._shielded(self._answer(session, asked.life, mark, state))

    async def before(self, asked: TurnRequest) -> PreviousTurn | None:
        """The turn that a request goes on from; else the newest of its kind, None for a first."""
        session, identity = asked.session, asked.identity
        own = (mark for mark in reversed(session.marks) if mark.kind == identity.kind)
        mark = followed(identity.trail, session.marks) or next(own, None)
        return None if mark is None else await self._memory.whole(session, mark)

    async def record(self, asked: TurnRequest, turn: Turn, rendered_ids_T: list[int]) -> Turn:
        """Store a finished turn; returns it with its index and its position.

        Raises Refusal (409) when a rollout's session has ended or the session was deleted
        meanwhile. It is finished even when its client leaves: the store and the session stay one.
        """
        return await self._shielded(self._record(asked, turn, rendered_ids_T))

    async def finish(self, timeout_s: float) -> None:
        """Wait for what is being recorded."""
        if self._recording:
            await asyncio.wait(self._recording, timeout=timeout_s)

    async def _record(self, asked: TurnRequest, turn: Turn, rendered_ids_T: list[int]) -> Turn:
        session, identity = asked.session, asked.identity
        session.check(asked.life)
        mark = TurnNode.of(turn, identity.trail, identity.same, rendered_ids_T)
        numbered = replace(turn, index=session.next_index)
        session.next_index += 1
        try:
            turn_id = await self._store.add_turn(numbered, mark.text())
        except StoreError:
            session.check(asked.life)
            raise
        stored, mark = replace(numbered, id=turn_id), replace(mark, turn_id=turn_id)
        if asked.life == session.life:
            session.add(mark, PreviousTurn(stored, mark.rendered))
            if identity.kind == "main" and not session.is_rollout:
                self._identifier.learn(session.id, mark)
            self._hooks.on_turn(stored)
            await self._answer_early(asked, mark)
        return stored

    async def _answer_early(self, asked: TurnRequest, mark: TurnNode) -> None:
        """Record the next state that came while the turn was still being made."""
        session = asked.session
        for later in session.after(asked) if mark.kind == "main" else ():
            waiting = session.waiting & {mark.turn_id}
            brought = next_states(later.identity.trail, session.marks, waiting)
            for _, state in brought or await self._of_interrupted(later, [mark]):
                await self._answer(session, asked.life, mark, state)

    async def _of_interrupted(
        self, asked: TurnRequest, marks: Sequence[TurnNode]
    ) -> list[tuple[TurnNode, list[Message]]]:
        """What a request brings to a turn whose client left: it may send back what it had seen."""
        trail, session = asked.identity.trail, asked.session
        for mark in interrupted(trail, marks):
            at = trail.replies[-1]
            past = await self._memory.whole(session, mark)
            if past is not None and is_part_of(trail.messages[at], past.turn.reply):
                state = trail.after(at) if mark.turn_id in session.waiting else []
                return [(mark, state)] if state else []
        return []

    async def _answer(
        self, session: Session, life: int, mark: TurnNode, state: list[Message]
    ) -> None:
        """Record a next state, once."""
        if mark.turn_id not in session.waiting or life != session.life:
            return
        session.waiting.discard(mark.turn_id)  # at once: another request may bring it too
        session.delivered.discard(mark.turn_id)
        try:
            await self._store.add_next_state(mark.turn_id, state)
        except StoreError:
            session.check(life)
            session.waiting.add(mark.turn_id)
            raise
        self._identifier.answered(session.id, mark)
        if session.is_rollout or mark.finish_reason == INTERRUPTED or mark.kind != "main":
            return
        past = await self._memory.whole(session, mark)
        if past is not None:
            self._hooks.on_next_state(past.turn)

    async def _shielded(self, recording: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(recording)
        self._recording.add(task)
        task.add_done_callback(self._recording.discard)
        return await asyncio.shield(task)
