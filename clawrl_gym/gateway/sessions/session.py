"""One conversation: its requests under way, its turns, and how these are recorded.

In memory are a graph of its turns, hashes only, and its last turns whole. What a session says holds
until the next await: another request of the session may change it meanwhile.

A next state is recorded once for each turn, whichever of two requests brings it first; also when
the request came before the reply that it follows was recorded, because its client had read the
stream. What has begun is finished when its client leaves: the store and the session stay one.
"""

from __future__ import annotations

import asyncio
import sys
from array import array
from collections import OrderedDict
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from math import isnan, nan
from typing import Self, TypeVar

from clawrl_gym.core.errors import StoreError
from clawrl_gym.core.ownership import name_of
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.processes.slow_machine import ReplyTimes
from clawrl_gym.core.types import Message, Turn
from clawrl_gym.dialogue.graph import (
    NextState,
    TurnGraph,
    TurnNode,
    interrupted_before,
    is_part_of,
)
from clawrl_gym.dialogue.prompts import PreviousTurn
from clawrl_gym.gateway.hooks import Hooks
from clawrl_gym.gateway.wire.identify import Identifier, Identity
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.store import Store

WARM_TURNS = 2
"""Turns that are kept whole while the session is warm: the newest, and one to fork from."""
REPLAY_S = 120.0
"""Seconds in which an equal request may be a retry where the client does not say so."""
_NODE_BYTES = 1000
_TOOL_BYTES = 5000
_MAX_REQUESTS = 64
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class TurnRequest:
    """A request for a turn, inside its session."""

    session: Session
    identity: Identity
    messages: list[Message]
    """Messages as they were sent."""
    arrived_s: float
    life: int
    """The session's life that it came into."""
    is_under_way: bool = True


@dataclass(slots=True)
class _EqualRequests:
    """Lets equal requests through one after another."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    count: int = 0
    """Requests that are through or wait."""


@dataclass(slots=True)
class Session:
    """One conversation."""

    id: str
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Locked while it is read, opened, ended or deleted."""
    is_loaded: bool = False
    """True once it is in the store and its turns are here."""
    is_rollout: bool = False
    ended: bool = False
    life: int = 0
    """Grows when the session is deleted: what belongs to an earlier life is not recorded."""
    users: int = 0
    """Requests and tasks inside; it is not forgotten meanwhile."""
    next_index: int = 0
    graph: TurnGraph = field(default_factory=TurnGraph)
    reply_times: ReplyTimes = field(default_factory=ReplyTimes)
    """Sampling speed of its replies since it was read."""
    counted_bytes: int = 0
    """The size that was last counted for it."""
    _requests: list[TurnRequest] = field(default_factory=list)
    """Requests since the oldest in flight, in order of arrival."""
    _warm: OrderedDict[int, WarmTurn] = field(default_factory=OrderedDict)
    _equal_requests: dict[bytes, _EqualRequests] = field(default_factory=dict)

    @asynccontextmanager
    async def one_at_a_time(self, exact_request: bytes) -> AsyncIterator[None]:
        """Equal requests go one after another, so that a retry finds the reply of the first."""
        equal = self._equal_requests.setdefault(exact_request, _EqualRequests())
        equal.count += 1
        try:
            async with equal.lock:
                yield
        finally:
            equal.count -= 1
            if not equal.count:
                del self._equal_requests[exact_request]

    @contextmanager
    def under_way(self, request: TurnRequest) -> Iterator[None]:
        """Remember a request until all that came before it are done."""
        self._requests.append(request)
        try:
            yield
        finally:
            request.is_under_way = False
            while self._requests and (
                not self._requests[0].is_under_way or len(self._requests) > _MAX_REQUESTS
            ):
                del self._requests[0]

    def requests_after(self, request: TurnRequest) -> list[TurnRequest]:
        """Main requests that came while this one was under way."""
        if request not in self._requests:
            return []
        later = self._requests[self._requests.index(request) + 1 :]
        return [another for another in later if another.identity.kind == "main"]

    def check(self, life: int) -> None:
        """Raise Refusal (409) for what belongs to a session that is over."""
        if life != self.life:
            raise Refusal(
                409, f"session {name_of(self.id)!r} was deleted meanwhile: ask again",
                "session_deleted",
            )  # fmt: skip
        if self.ended and self.is_rollout:
            raise Refusal(409, f"session {self.id!r} has ended: begin another one", "session_ended")

    def retried_turn(self, request: TurnRequest) -> TurnNode | None:
        """The turn that this very request made, when it is repeated for the same reply.

        A rollout only ever repeats a request whose answer it has not got. A live client that says
        how often it tried is believed. So is one that is still waiting for the first answer, or
        cannot have got it. Else an equal request in a session that the client itself named is a
        retry for a while, as harnesses without such a header send it; and a wish for another reply
        where the client has the first one, as chat programs send it.
        """
        for turn in reversed(self.graph.turns):
            is_equal = turn.exact_request == request.identity.exact_request
            if is_equal and self._is_replayed(turn, request):
                return turn
        return None

    def _is_replayed(self, turn: TurnNode, request: TurnRequest) -> bool:
        identity = request.identity
        if turn.turn_id not in self.graph.waiting or turn.is_interrupted:
            return False
        if self.is_rollout or identity.is_retry or turn.created_s >= request.arrived_s:
            return True
        if turn.kind != "main" or request.arrived_s - turn.created_s > REPLAY_S:
            return False
        if turn.turn_id in self.graph.delivered:
            return identity.is_explicit and identity.is_retry is None
        return True

    def next_states_in(self, request: TurnRequest) -> list[NextState]:
        """The next states in a main request."""
        under_way = {
            another.identity.branch.leaf
            for another in self._requests
            if another.is_under_way and another is not request
        }
        under_way |= {turn.request for turn in self.graph.turns if turn.is_interrupted}
        branch = request.identity.branch
        next_states = self.graph.next_states(branch, under_way)
        next_states += self.graph.dropped_next_state(branch)
        if next_states or not self.is_rollout:
            return next_states
        return self.graph.straight_next_state(branch)

    def begin_rollout(self) -> None:
        """Begin a new episode: nothing of it is in the store but that it began."""
        self.is_rollout = self.is_loaded = True

    def add(self, node: TurnNode, turn: Turn) -> None:
        """A turn was recorded; a later request may extend it."""
        self.graph.add(node)
        self.warm(node, turn)

    def warm(self, node: TurnNode, turn: Turn) -> None:
        """Keep a turn whole for a while."""
        self._warm[node.turn_id] = WarmTurn.of(turn)
        self._warm.move_to_end(node.turn_id)
        while len(self._warm) > WARM_TURNS:
            self._warm.popitem(last=False)

    def warm_turn(self, node: TurnNode) -> PreviousTurn | None:
        """A turn that is kept whole."""
        warm = self._warm.get(node.turn_id)
        if warm is None:
            return None
        self._warm.move_to_end(node.turn_id)
        return PreviousTurn(warm.whole(), node.rendering)

    def drop_turns(self) -> None:
        """Drop turns that nothing follows any more."""
        self.graph.clear()
        self._warm.clear()

    def delete(self) -> None:
        """A later use begins another session of this name."""
        self.drop_turns()
        self.life += 1
        self.next_index = 0
        self.is_loaded = self.is_rollout = self.ended = False

    def size_bytes(self) -> int:
        """Memory that it takes, about."""
        return _NODE_BYTES * len(self.graph.turns) + sum(w.size_bytes for w in self._warm.values())


@dataclass(frozen=True, slots=True)
class WarmTurn:
    """A turn that is kept whole, its streams as arrays: lists take ten times as much."""

    turn: Turn
    """The turn without its streams."""
    prompt_ids_T: array[int]
    sampled_ids_T: array[int]
    logprobs_T: array[float]
    """NaN stands for None."""
    versions_T: array[int]
    size_bytes: int
    """Approximate bytes of memory."""

    @classmethod
    def of(cls, turn: Turn) -> Self:
        prompt_T, sampled_T = array("i", turn.prompt_ids_T), array("i", turn.sampled_ids_T)
        logprobs_T = array(
            "d", (nan if logprob is None else logprob for logprob in turn.logprobs_T)
        )
        versions_T = array("i", turn.versions_T)
        streams = (prompt_T, sampled_T, logprobs_T, versions_T)
        texts = map(text_of, (*turn.messages, turn.reply))
        size_bytes = (
            _TOOL_BYTES * len(turn.tools)
            + sum(len(stream) * stream.itemsize for stream in streams)
            + sum(sys.getsizeof(text) for text in texts)
        )
        without = replace(turn, prompt_ids_T=[], sampled_ids_T=[], logprobs_T=[], versions_T=[])
        return cls(without, *streams, size_bytes)

    def whole(self) -> Turn:
        return replace(
            self.turn,
            prompt_ids_T=self.prompt_ids_T.tolist(),
            sampled_ids_T=self.sampled_ids_T.tolist(),
            logprobs_T=[None if isnan(logprob) else logprob for logprob in self.logprobs_T],
            versions_T=self.versions_T.tolist(),
        )


class TurnRecorder:
    """Records turns of sessions, and the next states that requests bring."""

    def __init__(self, store: Store, identifier: Identifier, hooks: Hooks) -> None:
        self._store = store
        self._identifier = identifier
        self._hooks = hooks
        self._tasks: set[asyncio.Task[object]] = set()

    async def stored_reply(self, request: TurnRequest) -> Turn | None:
        """The turn that this very request made, when it is repeated for the same reply."""
        node = request.session.retried_turn(request)
        previous = None if node is None else await self._whole(request.session, node)
        return None if previous is None else previous.turn

    def set_delivered(self, request: TurnRequest, turn: Turn) -> None:
        """A reply has reached its client: the same request is then a wish for another one."""
        graph = request.session.graph
        if turn.id in graph.waiting:
            graph.delivered.add(turn.id)

    async def record_next_states(self, request: TurnRequest) -> None:
        """Record what a main request brings to the turns before it."""
        if request.identity.kind == "main":
            session = request.session
            next_states = session.next_states_in(request)
            next_states += await self._of_interrupted(request, session.graph.turns)
            for node, answer in next_states:
                await self.shielded(self.record_answer(session, request.life, node, answer))

    async def previous_turn(self, request: TurnRequest) -> PreviousTurn | None:
        """The turn that a request continues; else the newest of its kind, None for a first."""
        graph, identity = request.session.graph, request.identity
        node = graph.parent_of(identity.branch) or graph.newest(identity.kind)
        return None if node is None else await self._whole(request.session, node)

    async def record(self, request: TurnRequest, turn: Turn, rendered_ids_T: list[int]) -> Turn:
        """Store a finished turn; returns it with its index and its position.

        Raises Refusal (409) when a rollout's session has ended or the session was deleted
        meanwhile. It is finished even when its client leaves: the store and the session stay one.
        """
        return await self.shielded(self._record(request, turn, rendered_ids_T))

    async def record_answer(
        self, session: Session, life: int, node: TurnNode, answer: list[Message]
    ) -> None:
        """Record the next state of a turn, once."""
        graph = session.graph
        if node.turn_id not in graph.waiting or life != session.life:
            return
        graph.close(node.turn_id)  # at once: another request may bring it too
        try:
            await self._store.add_next_state(node.turn_id, answer)
        except StoreError:
            session.check(life)
            graph.waiting.add(node.turn_id)
            raise
        self._identifier.set_answered(session.id, node)
        if session.is_rollout or node.is_interrupted or node.kind != "main":
            return
        previous = await self._whole(session, node)
        if previous is not None:
            self._hooks.on_next_state(previous.turn)

    async def shielded(self, recording: Coroutine[object, None, T]) -> T:
        """Finish what is being recorded, also when its caller is cancelled."""
        task = asyncio.ensure_future(recording)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def finish(self, timeout_s: float) -> None:
        """Wait for all that is being recorded."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)

    async def _record(self, request: TurnRequest, turn: Turn, rendered_ids_T: list[int]) -> Turn:
        session, identity = request.session, request.identity
        session.check(request.life)
        node = TurnNode.of(turn, identity.branch, identity.exact_request, rendered_ids_T)
        numbered = replace(turn, index=session.next_index)
        session.next_index += 1
        try:
            turn_id = await self._store.add_turn(numbered, node.to_text())
        except StoreError:
            session.check(request.life)
            raise
        stored, node = replace(numbered, id=turn_id), replace(node, turn_id=turn_id)
        if request.life == session.life:
            session.add(node, stored)
            if identity.kind == "main" and not session.is_rollout:
                self._identifier.add_turn(session.id, node)
            self._hooks.on_turn(stored)
            await self._record_early_answer(request, node)
        return stored

    async def _record_early_answer(self, request: TurnRequest, node: TurnNode) -> None:
        """Record the next state that came while the turn was still being made."""
        session = request.session
        for later in session.requests_after(request) if node.kind == "main" else ():
            waiting = session.graph.waiting & {node.turn_id}
            next_states = session.graph.next_states(later.identity.branch, waiting=waiting)
            for _, answer in next_states or await self._of_interrupted(later, [node]):
                await self.record_answer(session, request.life, node, answer)

    async def _of_interrupted(
        self, request: TurnRequest, turns: Sequence[TurnNode]
    ) -> list[NextState]:
        """Next states for a turn whose client left: a request may send back what it had seen."""
        branch, session = request.identity.branch, request.session
        for node in interrupted_before(branch, turns):
            reply = branch.replies[-1]
            previous = await self._whole(session, node)
            if previous is not None and is_part_of(branch.messages[reply], previous.turn.reply):
                is_waiting = node.turn_id in session.graph.waiting
                answer = branch.answer_to(reply) if is_waiting else []
                return [(node, answer)] if answer else []
        return []

    async def _whole(self, session: Session, node: TurnNode) -> PreviousTurn | None:
        """A turn, read again when it is not here; None when it was deleted meanwhile."""
        previous = session.warm_turn(node)
        if previous is not None:
            return previous
        life = session.life
        turn = await self._store.turn(node.turn_id)
        if turn is None or life != session.life:
            return None
        session.warm(node, turn)
        return PreviousTurn(turn, node.rendering)
