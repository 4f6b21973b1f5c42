"""One conversation in the gateway's memory: hashes of its turns, and the last ones whole.

It decides nothing that another request of the session may change meanwhile: what it says holds
until the next await.
"""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import INTERRUPTED, Message
from clawrl_gym.dialogue.graph import TurnNode
from clawrl_gym.dialogue.match import newest_goes_on, next_states
from clawrl_gym.dialogue.prompts import PreviousTurn
from clawrl_gym.gateway.identify import Identity
from clawrl_gym.gateway.wire import Refusal

MAX_MARKS = 256
"""Newest turns of a session that a request may follow. A mark is half a kilobyte; a conversation
whose client has gone back further than this goes on as one that was edited."""
WARM_TURNS = 2
"""Turns that are kept whole while the session is warm: the newest, and one to fork from."""
REPLAY_S = 120.0
"""How long an equal request may be a retry where the client does not say so."""
_MARK_BYTES = 1000
_TOKEN_BYTES = 40
_TOOL_BYTES = 5000
_MAX_ASKED = 64


@dataclass(slots=True, eq=False)
class TurnRequest:
    """One request inside a session."""

    session: Session
    identity: Identity
    messages: list[Message]
    """As they were sent."""
    arrived_s: float
    life: int
    """The session's life that it came into."""
    is_under_way: bool = True


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
    """Held while it is read, opened, ended for idleness or deleted."""
    is_known: bool = False
    """It is in the store and its marks are here."""
    is_rollout: bool = False
    ended: bool = False
    life: int = 0
    """Grows when the session is deleted: what belongs to an earlier life is recorded no more."""
    inside: int = 0
    """Who uses it; it is not forgotten meanwhile."""
    next_index: int = 0
    marks: list[TurnNode] = field(default_factory=list)
    """Newest last."""
    waiting: set[int] = field(default_factory=set)
    """Ids of turns in `marks` without a next state."""
    delivered: set[int] = field(default_factory=set)
    """Ids of turns in `marks` whose replies have reached the client."""
    counted_bytes: int = 0
    """What was last counted for it."""
    _asked: list[TurnRequest] = field(default_factory=list)
    """Requests since the oldest that is under way, in the order of their arrival."""
    _warm: OrderedDict[int, PreviousTurn] = field(default_factory=OrderedDict)
    _alone: dict[bytes, _Turnstile] = field(default_factory=dict)

    @asynccontextmanager
    async def one_at_a_time(self, same: bytes) -> AsyncIterator[None]:
        """Equal requests go one after another, so that a retry finds the reply of the first."""
        turnstile = self._alone.setdefault(same, _Turnstile())
        turnstile.inside += 1
        try:
            async with turnstile.lock:
                yield
        finally:
            turnstile.inside -= 1
            if not turnstile.inside:
                del self._alone[same]

    @contextmanager
    def under_way(self, asked: TurnRequest) -> Iterator[None]:
        """Remember a request until all that came before it are done."""
        self._asked.append(asked)
        try:
            yield
        finally:
            asked.is_under_way = False
            while self._asked and (
                not self._asked[0].is_under_way or len(self._asked) > _MAX_ASKED
            ):
                del self._asked[0]

    def after(self, asked: TurnRequest) -> list[TurnRequest]:
        """Main requests that came while this one was under way."""
        if asked not in self._asked:
            return []
        later = self._asked[self._asked.index(asked) + 1 :]
        return [one for one in later if one.identity.kind == "main"]

    def check(self, life: int) -> None:
        """Raises Refusal (409) for what belongs to a session that is over."""
        if life != self.life:
            raise Refusal(
                409, f"session {self.id!r} was deleted meanwhile: ask again", "session_deleted"
            )
        if self.ended and self.is_rollout:
            raise Refusal(409, f"session {self.id!r} has ended: begin another one", "session_ended")

    def retried(self, asked: TurnRequest) -> TurnNode | None:
        """The turn that this very request made, when it is asked again for the same reply.

        A rollout only ever repeats a request whose answer it has not got. A live client that says
        how often it tried is believed. So is one that is still waiting for the first answer, or
        cannot have got it. Else an equal request in a session that the client itself named is a
        retry for a while, as harnesses without such a header send it; and a wish for another reply
        where the client has the first one, as chat programs send it.
        """
        for mark in reversed(self.marks):
            if mark.same == asked.identity.same and self._is_replayed(mark, asked):
                return mark
        return None

    def _is_replayed(self, mark: TurnNode, asked: TurnRequest) -> bool:
        identity = asked.identity
        if mark.turn_id not in self.waiting or mark.finish_reason == INTERRUPTED:
            return False
        if self.is_rollout or identity.is_retry or mark.created_s >= asked.arrived_s:
            return True
        if mark.kind != "main" or asked.arrived_s - mark.created_s > REPLAY_S:
            return False
        if mark.turn_id in self.delivered:
            return identity.is_explicit and identity.is_retry is None
        return True

    def brought_by(self, asked: TurnRequest) -> list[tuple[TurnNode, list[Message]]]:
        """The next states in a main request."""
        others = (one for one in self._asked if one.is_under_way and one is not asked)
        under_way = {one.identity.trail.whole for one in others}
        under_way |= {mark.request for mark in self.marks if mark.finish_reason == INTERRUPTED}
        trail = asked.identity.trail
        brought = next_states(trail, self.marks, self.waiting, under_way)
        if brought or not self.is_rollout:
            return brought
        return newest_goes_on(trail, self.newest_main(), self.waiting)

    def add(self, mark: TurnNode, past: PreviousTurn) -> None:
        """A turn was recorded."""
        self.marks.append(mark)
        self.waiting.add(mark.turn_id)
        self.warm(mark.turn_id, past)
        for old in self.marks[:-MAX_MARKS]:
            self.waiting.discard(old.turn_id)
            self.delivered.discard(old.turn_id)
        del self.marks[:-MAX_MARKS]

    def warm(self, turn_id: int, past: PreviousTurn) -> None:
        """Keep a turn whole for a while."""
        self._warm[turn_id] = past
        self._warm.move_to_end(turn_id)
        while len(self._warm) > WARM_TURNS:
            self._warm.popitem(last=False)

    def whole(self, turn_id: int) -> PreviousTurn | None:
        """A turn that is kept whole."""
        return self._warm.get(turn_id)

    def newest_main(self) -> TurnNode | None:
        return next((mark for mark in reversed(self.marks) if mark.kind == "main"), None)

    def drop_turns(self) -> None:
        """Nothing follows them any more."""
        self.marks.clear()
        self.waiting.clear()
        self.delivered.clear()
        self._warm.clear()

    def delete(self) -> None:
        """A later use begins another session of this name."""
        self.drop_turns()
        self.life += 1
        self.next_index = 0
        self.is_known = self.is_rollout = self.ended = False

    def size_bytes(self) -> int:
        """What it takes of memory, about."""
        return _MARK_BYTES * len(self.marks) + sum(_size(past) for past in self._warm.values())


def _size(past: PreviousTurn) -> int:
    turn = past.turn
    tokens = len(turn.prompt_ids_T) + 3 * len(turn.sampled_ids_T)
    texts = map(text_of, (*turn.messages, turn.reply))
    fixed = _TOKEN_BYTES * tokens + _TOOL_BYTES * len(turn.tools)
    return fixed + sum(sys.getsizeof(text) for text in texts)
