"""Sessions as the gateway knows them: which are open, which request belongs where, how they end.

Everything here can be read again from the store: a session that nobody uses takes no memory, but
for the last used ones (`live.warm_sessions`), and a gateway that was killed resumes exactly where
it stopped. It talks to no policy.

The end of a live session is not final: a later request opens it again, and its turns are numbered
on; a reply that was still being made is kept. A rollout's session that has ended refuses (409).
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from clawrl_gym.config import LiveConfig
from clawrl_gym.core.errors import StoreError
from clawrl_gym.core.ownership import OWNER, user_of
from clawrl_gym.core.types import Json, Message, StopReason
from clawrl_gym.dialogue.graph import MAX_TURNS, TurnGraph, TurnNode, is_conversation
from clawrl_gym.gateway.admission.allowances import Allowances
from clawrl_gym.gateway.admission.callers import no_session
from clawrl_gym.gateway.hooks import Hooks
from clawrl_gym.gateway.sessions.session import Session, TurnRecorder, TurnRequest
from clawrl_gym.gateway.wire.identify import Identifier, Identity, Origin, Reading
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.gateway.wire.requests import Labels
from clawrl_gym.store import SessionRow, Store, StoredNode
from clawrl_gym.store.users import Users

MAX_OPEN = 100_000
MAX_OPEN_PER_USER = 1000
MAX_BYTES = 256 * 2**20
"""Memory that idle sessions may take, about; beyond it fewer stay than configured."""
MAX_ROLLOUTS = 20_000
"""Rollouts between two turns; one whose worker died never ends."""
_INDEXED_TURNS = 100_000
"""Turns of open sessions whose hashes are read at the start."""
_REAP_EVERY_S = 60.0
_AT_ONCE = 64
"""Sessions that are ended or deleted together."""
_FULL_RETRY_S = 60.0
_log = logging.getLogger(__name__)


class SessionCache:
    """The sessions in memory: those in use, open rollouts, and the last used others.

    A session's hashes are small; the turns that are kept whole are not, so both the number of
    sessions and what they take are limited. A rollout comes back with its next turn, so it stays
    while there is memory for it.
    """

    def __init__(self, store: Store, warm_sessions: int, max_bytes: int = MAX_BYTES) -> None:
        self._store = store
        self._warm_sessions = warm_sessions
        self._max_bytes = max_bytes
        self._sessions: dict[str, Session] = {}
        self._idle: OrderedDict[str, Session] = OrderedDict()
        self._idle_rollouts: OrderedDict[str, Session] = OrderedDict()
        """Idle episodes that have not ended."""
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @asynccontextmanager
    async def entered(self, session_id: str) -> AsyncIterator[Session]:
        """The session's place in memory, which stays while it has users."""
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = Session(session_id)
        session.users += 1
        self._idle.pop(session_id, None)
        self._idle_rollouts.pop(session_id, None)
        try:
            yield session
        finally:
            session.users -= 1
            if not session.users:
                self._rest(session)
            self._count(session)
            self._forget_some()

    def get(self, session_id: str) -> Session | None:
        """The session, where it is here now."""
        return self._sessions.get(session_id)

    async def load(self, session: Session, row: SessionRow) -> None:
        """Read a stored session's turns."""
        turns = await self._store.nodes_of(session.id, MAX_TURNS)
        session.is_rollout = row.source == "rollout"
        session.ended = row.ended_s is not None
        session.next_index = 1 + max((turn.index for turn in turns), default=-1)
        with_node = [turn for turn in turns if turn.text]
        session.graph = TurnGraph(
            turns=[_node_of(turn) for turn in with_node],
            waiting={turn.turn_id for turn in with_node if not turn.has_next_state},
        )
        session.is_loaded = True

    def _rest(self, session: Session) -> None:
        if not session.is_loaded:
            del self._sessions[session.id]
        elif session.is_rollout and not session.ended:
            self._idle_rollouts[session.id] = session
        else:
            self._idle[session.id] = session

    def _count(self, session: Session) -> None:
        size = session.size_bytes() if session.id in self._sessions else 0
        self.size_bytes += size - session.counted_bytes
        session.counted_bytes = size

    def _forget_some(self) -> None:
        while (
            len(self._idle) > self._warm_sessions
            or len(self._idle_rollouts) > MAX_ROLLOUTS
            or (self.size_bytes > self._max_bytes and (self._idle or self._idle_rollouts))
        ):
            too_many = len(self._idle_rollouts) > MAX_ROLLOUTS
            resting = self._idle_rollouts if too_many or not self._idle else self._idle
            _, oldest = resting.popitem(last=False)
            del self._sessions[oldest.id]
            self.size_bytes -= oldest.counted_bytes


class Sessions:
    """All sessions of one gateway."""

    def __init__(
        self,
        store: Store,
        config: LiveConfig = LiveConfig(),  # noqa: B008 (frozen)
        max_open: int = MAX_OPEN,
        hooks: Hooks = Hooks(),  # noqa: B008 (frozen)
        users: Users | None = None,
        max_open_per_user: int = MAX_OPEN_PER_USER,
        allowances: Allowances | None = None,
    ) -> None:
        """`users`: who has sessions beside the owner, and for how long they are kept.
        `allowances`: how many of them each may begin; None: any number.

        Raises ConfigError for rules and patterns that cannot be used.
        """
        self._store = store
        self._cache = SessionCache(store, config.warm_sessions)
        self._identifier = Identifier(config)
        self._hooks = hooks
        self._config = config
        self.recorder = TurnRecorder(store, self._identifier, hooks)
        self._max_open = max_open
        self._max_open_per_user = max_open_per_user
        self._users = users
        self._allowances = allowances
        self._last_s: dict[str, float] = {}
        """Last use of each live session that is open, in memory or not."""

    def __len__(self) -> int:
        """Sessions in memory."""
        return len(self._cache)

    def warm(self, session_id: str) -> Session | None:
        """A session that is held in memory."""
        return self._cache.get(session_id)

    @property
    def open_count(self) -> int:
        """Live sessions that are open."""
        return len(self._last_s)

    async def start(self) -> None:
        """Learn from the store which sessions are open and their last turns."""
        for session in await self._store.open_live_sessions():
            self._last_s[session.id] = session.last_s
        for row in reversed(await self._store.open_nodes(_INDEXED_TURNS)):
            if row.text and row.kind == "main":
                self._identifier.add_turn(row.session_id, _node_of(row), not row.has_next_state)

    def identify(
        self, messages: list[Message], body: Json, origin: Origin, reading: Reading | None = None
    ) -> Identity:
        """Tell what a request is. Raises Refusal (400) for a session id that cannot be one."""
        return self._identifier.identify(messages, body, origin, reading)

    @asynccontextmanager
    async def request(
        self, identity: Identity, labels: Labels, messages: list[Message]
    ) -> AsyncIterator[TurnRequest]:
        """Inside its session, after all equal requests before it.

        Raises Refusal: the session has ended and is not live (409), too many are open (429).
        """
        arrived_s = time.time()
        row = _row(identity.session_id, labels, identity.matched_by)
        async with self._inside(identity.session_id, row, reopens=True, admits=True) as session:
            request = TurnRequest(session, identity, messages, arrived_s, session.life)
            with session.under_way(request):
                async with session.one_at_a_time(identity.exact_request):
                    session.check(request.life)
                    yield request

    @asynccontextmanager
    async def use(
        self, session_id: str, labels: Labels | None, *, stays: bool = False
    ) -> AsyncIterator[Session]:
        """A session as it is; without labels it is not made. `stays`: one that is made stays open.

        Raises Refusal: there is none (404), too many are open (429).
        """
        row = None if labels is None else _row(session_id, labels, None)
        async with self._inside(session_id, row, reopens=False, admits=stays) as session:
            yield session

    async def end(
        self,
        session: Session,
        state: list[Message] | None,
        reward: float | None,
        stop_reason: str,
        error: str | None,
        solved: bool | None = None,
    ) -> bool:
        """Record the outcome, and the next state of the last turn; False when it had ended."""

        async def end_alone() -> bool:
            async with session.opening:  # else a request could open it while it ends
                return await self._end(session, state, reward, stop_reason, error, solved)

        return await self.recorder.shielded(end_alone())

    async def delete(self, session_id: str) -> bool:
        """Delete a session with all its data; False when there is none. Requests in it fail."""
        return await self.recorder.shielded(self._delete([session_id], math.inf)) > 0

    async def delete_user(self, user: str) -> int:
        """Delete all sessions of a user whose requests have ended; returns how many there were."""
        deleted = 0
        while session_ids := await self._store.sessions_of_user(user):
            for at in range(0, len(session_ids), _AT_ONCE):
                some = session_ids[at : at + _AT_ONCE]
                deleted += await self.recorder.shielded(self._delete(some, math.inf))
        await self._store.delete_user(user)
        return deleted

    async def reap(self) -> None:
        """End idle live sessions and delete expired ones, for ever."""
        pause_s = min(_REAP_EVERY_S, self._config.idle_end_s / 4)
        while True:
            await asyncio.sleep(pause_s)
            try:
                await self.reap_once(time.time())
            except StoreError as error:
                _log.error("expired sessions are deleted at the next try: %s", error)

    async def reap_once(self, now_s: float) -> None:
        """End what is idle, and delete what has expired, at a time."""
        before_s = now_s - self._config.idle_end_s
        idle = [session_id for session_id, last_s in self._last_s.items() if last_s < before_s]
        for at in range(0, len(idle), _AT_ONCE):
            ends = (self._end_idle(session_id, before_s) for session_id in idle[at : at + _AT_ONCE])
            await asyncio.gather(*ends)
        users = [] if self._users is None else self._users.all()
        own_days = {u.name: u.retention_days for u in users if u.retention_days is not None}
        for user, days in own_days.items():
            before_s = now_s - 86_400 * days
            await self._delete_expired(await self._store.expired_sessions(before_s, user), before_s)
        if self._config.retention_days is not None:
            before_s = now_s - 86_400 * self._config.retention_days
            expired = await self._store.expired_sessions(before_s)
            others = [session_id for session_id in expired if user_of(session_id) not in own_days]
            await self._delete_expired(others, before_s)

    async def _delete_expired(self, session_ids: list[str], before_s: float) -> None:
        for at in range(0, len(session_ids), _AT_ONCE):
            await self.recorder.shielded(self._delete(session_ids[at : at + _AT_ONCE], before_s))

    async def _end(
        self,
        session: Session,
        state: list[Message] | None,
        reward: float | None,
        stop_reason: str,
        error: str | None,
        solved: bool | None = None,
    ) -> bool:
        had_ended, session.ended = session.ended, True
        last_s = self._last_s.pop(session.id, None)
        newest = session.graph.newest("main")
        lasting = self._identifier.transient.removed_from(state or [])
        answer = [message for message in lasting if is_conversation(message)]
        try:
            if newest is not None and answer:
                await self.recorder.record_answer(session, session.life, newest, answer)
            if session.is_rollout:
                session.drop_turns()
            ended = await self._store.end_session(
                session.id, reward=reward, stop_reason=stop_reason, error=error, solved=solved
            )
        except StoreError:  # it is open still, and idle some time
            session.ended = had_ended
            if last_s is not None:
                self._last_s[session.id] = last_s
            raise
        if ended and not session.is_rollout:
            self._hooks.on_end(session.id)
        return ended

    async def _end_idle(self, session_id: str, before_s: float) -> None:
        async with self._cache.entered(session_id) as session, session.opening:
            last_s = self._last_s.get(session_id, math.inf)
            if session.users > 1 or last_s >= before_s:
                return
            try:
                await self._end(session, None, None, StopReason.IDLE.value, None)
            except StoreError as error:
                _log.error("idle session %s is ended at the next try: %s", session_id, error)

    async def _delete(self, session_ids: list[str], ended_before_s: float) -> int:
        """Delete what is there, and ended before (`math.inf`: or has not ended); returns how
        many."""
        async with AsyncExitStack() as stack:
            deleted_ids = []
            for session_id in sorted(session_ids):  # in one order: two of these do not deadlock
                session = await stack.enter_async_context(self._cache.entered(session_id))
                await stack.enter_async_context(session.opening)
                row = await self._store.session(session_id)
                if row is None or not _ended_before(row, ended_before_s):
                    continue  # somebody has come back, perhaps
                session.delete()
                self._last_s.pop(session_id, None)
                self._identifier.forget(session_id)
                self._hooks.on_delete(session_id)
                deleted_ids.append(session_id)
            count = await self._store.delete_sessions(deleted_ids)
            for session_id in deleted_ids:
                self._hooks.on_deleted(session_id)
            return count

    @asynccontextmanager
    async def _inside(
        self, session_id: str, row: SessionRow | None, *, reopens: bool, admits: bool
    ) -> AsyncIterator[Session]:
        async with self._cache.entered(session_id) as session:
            async with session.opening:
                await self._open(session, row, reopens, admits)
            try:
                yield session
            finally:
                self._touch(session)

    async def _open(
        self, session: Session, row: SessionRow | None, reopens: bool, admits: bool
    ) -> None:
        """Read a session or begin it, and open it again where it has ended."""
        if not session.is_loaded:
            await self._load(session, row, admits)
        if session.ended and reopens and not session.is_rollout:
            self._admit(session.id)
            await self._store.reopen_session(session.id)
            session.ended = False
        self._touch(session)

    async def _load(self, session: Session, row: SessionRow | None, admits: bool) -> None:
        if row is not None and row.source == "rollout" and await self._store.add_session(row):
            return session.begin_rollout()  # nearly always: it is new
        stored = await self._store.session(session.id) or row
        if stored is None:
            raise no_session(session.id)
        if stored is row:
            if self._allowances is not None and row.source == "live":
                self._allowances.check(user_of(session.id), "new_sessions_per_day")
            if admits and row.source == "live":
                self._admit(session.id)
            await self._begin(row)
        await self._cache.load(session, stored)

    async def _begin(self, row: SessionRow) -> None:
        try:
            await self._store.add_session(row)
        except StoreError:
            self._last_s.pop(row.id, None)
            raise

    def _touch(self, session: Session) -> None:
        if session.is_loaded and not session.is_rollout and not session.ended:
            self._last_s[session.id] = time.time()

    def _admit(self, session_id: str) -> None:
        if session_id not in self._last_s:
            user = user_of(session_id)
            if len(self._last_s) >= self._max_open:
                raise _too_many(f"{self._max_open} sessions are open")
            if user != OWNER and self._open_of(user) >= self._max_open_per_user:
                raise _too_many(f"{self._max_open_per_user} sessions of yours are open")
        self._last_s[session_id] = time.time()

    def _open_of(self, user: str) -> int:
        return sum(user_of(session_id) == user for session_id in self._last_s)


def _ended_before(row: SessionRow, ended_before_s: float) -> bool:
    if ended_before_s == math.inf:
        return True
    return row.ended_s is not None and row.ended_s < ended_before_s


def _too_many(what: str) -> Refusal:
    return Refusal(
        429,
        f"{what}, expected fewer before another one begins: end some, or wait until idle ones have "
        "ended",
        code="session_limit",
        retry_after_s=_FULL_RETRY_S,
    )


def _row(session_id: str, labels: Labels, matched_by: str | None) -> SessionRow:
    """A session as it begins. An episode has a task; one that is only measured has no group."""
    is_rollout = labels.group_id is not None or labels.task_id is not None
    return SessionRow(
        id=session_id,
        task_id=labels.task_id,
        group_id=labels.group_id,
        split=labels.split,
        source="rollout" if is_rollout else "live",
        created_s=time.time(),
        matched_by=None if is_rollout else matched_by,
    )


def _node_of(stored: StoredNode) -> TurnNode:
    return TurnNode.from_text(
        stored.text, stored.turn_id, stored.kind, stored.finish_reason, stored.created_s
    )
