"""An index of conversations by their hashes: who made this reply after these messages?

Bounded, and forgetful by the session: the longest unused one leaves whole. Three kinds of keys lead
to sessions: the chain of a turn with its reply, the chain of a request, and the pair of a reply
with the message before it, which outlives a compacted history.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from clawrl_gym.core.types import INTERRUPTED
from clawrl_gym.dialogue.graph import Branch, TurnNode

MAX_KEYS = 262_144
_TURNS_A_SESSION = 32
"""Newest turns that a request may go on from."""
_TURN, _REQUEST, _PAIR = b"t", b"r", b"p"


@dataclass(slots=True)
class _Known:
    """A session in the index."""

    keys: deque[bytes] = field(default_factory=deque)
    used: int = 0
    """Greater is later."""


class SessionIndex:
    """Sessions by what was said in them."""

    def __init__(self, max_keys: int = MAX_KEYS) -> None:
        self._max_keys = max_keys
        self._places: dict[bytes, dict[str, bool]] = {}
        """Sessions by key. True: the turn waits for its next state, or the request for a reply."""
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._uses = 0

    def __len__(self) -> int:
        return len(self._places)

    def begun(self, session_id: str, trail: Branch) -> None:
        """A request came; asked again before it is answered, it is known."""
        self._put(session_id, _REQUEST + trail.whole, True)

    def learn(self, session_id: str, mark: TurnNode, is_waiting: bool) -> None:
        """A turn was recorded."""
        self._put(session_id, _REQUEST + mark.request, mark.finish_reason == INTERRUPTED)
        if mark.pair is not None:
            self._put(session_id, _PAIR + mark.pair, False)
        self._put(session_id, _TURN + mark.chain, is_waiting)

    def answered(self, session_id: str, mark: TurnNode) -> None:
        """A turn has its next state."""
        places = self._places.get(_TURN + mark.chain, {})
        if session_id in places:
            places[session_id] = False

    def forget(self, session_id: str) -> None:
        known = self._known.pop(session_id, None)
        for key in known.keys if known is not None else ():
            self._drop(session_id, key)

    def find(self, trail: Branch, *, claims: bool, is_retry: bool) -> str | None:
        """The session that a request belongs to; None for a new one.

        With `claims` it answers the turn that it goes on from, so that the next request with the
        same history may be another person's.
        """
        found = self._find(trail, claims, is_retry)
        if found is not None:
            self._use(found)
        return found

    def _find(self, trail: Branch, claims: bool, is_retry: bool) -> str | None:
        asked = self._places.get(_REQUEST + trail.whole, {})
        if not trail.replies:
            return self._best(asked, {}) if is_retry else None
        for at in reversed(trail.replies):
            places = self._places.get(_TURN + trail.chains[at + 1], {})
            best = self._best(places, asked)
            if best is not None:
                if claims and trail.after(at):
                    places[best] = False
                return best
            unfinished = self._places.get(_REQUEST + trail.chains[at], {})
            waiting = {session_id: True for session_id, waits in unfinished.items() if waits}
            if waiting:
                return self._best(waiting, asked)
        pair = trail.pair(trail.replies[-1])
        alike = {} if pair is None else self._places.get(_PAIR + pair, {})
        return next(iter(alike)) if len(alike) == 1 else None

    def _best(self, places: dict[str, bool], asked: dict[str, bool]) -> str | None:
        return max(
            places,
            key=lambda name: (name in asked, places[name], self._known[name].used),
            default=None,
        )

    def _put(self, session_id: str, key: bytes, flag: bool) -> None:
        known = self._use(session_id)
        places = self._places.setdefault(key, {})
        if session_id not in places:
            known.keys.append(key)
        places[session_id] = flag
        if len(known.keys) > 3 * _TURNS_A_SESSION:
            self._drop(session_id, known.keys.popleft())
        while len(self._places) > self._max_keys and len(self._known) > 1:
            self.forget(next(iter(self._known)))

    def _use(self, session_id: str) -> _Known:
        known = self._known.setdefault(session_id, _Known())
        self._known.move_to_end(session_id)
        self._uses += 1
        known.used = self._uses
        return known

    def _drop(self, session_id: str, key: bytes) -> None:
        places = self._places.get(key, {})
        places.pop(session_id, None)
        if not places:
            self._places.pop(key, None)
