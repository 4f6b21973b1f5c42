"""Main turns that look as if a program had written them, though no rule of `live.clients` held.

A client of which no rule is known asks for titles, summaries and wake-ups as a person would ask.
Such requests give themselves away by what they have in common: the same beginning in many sessions,
the same beginning at regular intervals, or texts that came faster than anybody types. It is a
guess, which decides nothing. The owner is told how many there are, and which rule would make them
side turns.

Everything is held in memory, by session, and goes when its session is deleted.
"""

from __future__ import annotations

import itertools
import re
import statistics
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import Turn
from clawrl_gym.gateway.wire.identify import TransientBlocks

HEAD_CHARS = 48
"""Characters of a message's beginning that are compared."""
_TELLING_CHARS = 24
"""A shorter beginning ("good morning") is what different people write, too."""
_SESSIONS = 3
"""Sessions with the same beginning."""
_BEATS = 4
"""Turns at regular intervals."""
_SHORTEST_BEAT_S = 20.0
_TOLERANCE = 0.1
"""Largest distance of an interval from a multiple of the usual one, as a share of it."""
_CHARS_PER_S = 20.0
"""Characters per second that nobody types faster than."""
_UNTYPED = 3
"""Turns that came faster than typed."""
_MAX_GROUPS = 4096
_MAX_TIMES = 64
"""Turns of one group, in one session."""
_STAMP = re.compile(r"\A(?:\[[^\]\n]{10,60}\] )?")
_STAMP_PATTERN = r"\A(?:\[[^\]\n]{10,60}\] )?\s*"
_VARIES = re.compile(r"(?P<id>\b(?=[0-9a-f-]*\d)[0-9a-f-]{8,})|(?P<number>\d+)|(?P<space>\s+)")
_PATTERNS = {"id": r"[0-9a-f-]+", "number": r"\d+", "space": r"\s+"}


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A rule for turns that look machine-made."""

    turns: int
    sessions: int
    why: str
    last_user: str
    """Regular expression of the rule."""

    @property
    def name(self) -> str:
        """A name of its own, so that a second rule does not take the place of the first."""
        return f"machine_{_digest(self.last_user)[:3].hex()}"

    def override(self) -> str:
        """The rule as one `KEY=VALUE` of `serve`."""
        # Hydra reads backslashes as they are, but before a quote.
        quoted = re.sub(r"(\\*)('|\Z)", r"\1\1\2", self.last_user)
        pattern = quoted.replace("'", "\\'")
        return f"live.clients.{self.name}.kinds=[{{name: {self.name}, last_user: '{pattern}'}}]"

    def yaml(self) -> str:
        """The rule as one line of a file of `conf/live/`."""
        pattern = self.last_user.replace("'", "''")
        rule = f"{{name: {self.name}, last_user: '{pattern}'}}"
        return f"clients: {{{self.name}: {{kinds: [{rule}]}}}}"


@dataclass(slots=True)
class _Group:
    """Turns whose newest message begins alike."""

    last_user: str
    is_telling: bool
    """The beginning is long enough to say something by itself."""
    times_s: dict[str, list[float]] = field(default_factory=dict)
    """Times of its turns, by session."""
    untyped: dict[str, int] = field(default_factory=dict)
    """Turns that came faster than typed, by session."""
    why: str = ""
    """Why it looks machine-made; nothing where it does not."""

    @property
    def turns(self) -> int:
        return sum(map(len, self.times_s.values()))

    def look(self) -> None:
        times_s = sorted(time for times in self.times_s.values() for time in times)
        untyped = sum(self.untyped.values())
        if self.is_telling and len(self.times_s) >= _SESSIONS:
            self.why = f"the same beginning in {len(self.times_s)} sessions"
        elif _are_regular(times_s):
            self.why = "they come at regular intervals"
        elif self.is_telling and untyped >= _UNTYPED:
            self.why = f"{untyped} came faster than anybody types"
        else:
            self.why = ""


class MachineTurns:
    """Counts main turns that look machine-made, and suggests rules for them."""

    def __init__(self, transient: Sequence[str] = ()) -> None:
        """`transient`: blocks that are left out of messages, see `live.clients`."""
        self._transient = TransientBlocks(transient)
        self._groups: OrderedDict[bytes, _Group] = OrderedDict()
        self._last_s: dict[str, float] = {}
        """Time at which each session's last turn was done."""
        self.main_turns = 0
        """Main turns of sessions that were not deleted."""
        self._turns_of: dict[str, int] = {}

    @property
    def turns(self) -> int:
        """Main turns that look machine-made."""
        return sum(group.turns for group in self._groups.values() if group.why)

    def add(self, turn: Turn) -> None:
        """A turn of a live conversation was recorded."""
        if turn.kind != "main":
            return
        session_id = turn.session_id
        before_s = self._last_s.get(session_id)
        self._last_s[session_id] = turn.created_s
        self.main_turns += 1
        self._turns_of[session_id] = self._turns_of.get(session_id, 0) + 1
        lasting = self._transient.removed_from(turn.messages[-2:])
        if not lasting or lasting[-1].get("role") != "user":
            return  # a step of the agent's own loop
        text = text_of(lasting[-1])
        group = self._group_of(text)
        if group is None:
            return
        times_s = group.times_s.setdefault(session_id, [])
        times_s.append(turn.created_s)
        del times_s[:-_MAX_TIMES]
        if before_s is not None and 0 <= turn.created_s - before_s < len(text) / _CHARS_PER_S:
            group.untyped[session_id] = group.untyped.get(session_id, 0) + 1
        group.look()

    def forget(self, session_id: str) -> None:
        """A session was deleted: nothing of it stays."""
        self._last_s.pop(session_id, None)
        self.main_turns -= self._turns_of.pop(session_id, 0)
        for key, group in list(self._groups.items()):
            if group.times_s.pop(session_id, None) is None:
                continue
            group.untyped.pop(session_id, None)
            if group.times_s:
                group.look()
            else:
                del self._groups[key]

    def suggestions(self) -> list[Suggestion]:
        """Rules that would make them side turns, the one for most turns first."""
        found = [
            Suggestion(group.turns, len(group.times_s), group.why, group.last_user)
            for group in self._groups.values()
            if group.why
        ]
        return sorted(found, key=lambda suggestion: -suggestion.turns)

    def _group_of(self, text: str) -> _Group | None:
        """The group of messages with the same beginning, numbers and ids aside; None for a message
        without a text."""
        head = text[_end_of_stamp(text) :].strip()[:HEAD_CHARS]
        if not head:
            return None
        pattern = _pattern_of(head)
        if len(text.strip()) <= HEAD_CHARS:
            pattern += r"\s*\Z"
        key = _digest(pattern)
        group = self._groups.get(key)
        if group is None:
            group = _Group(_STAMP_PATTERN + pattern, len(head) >= _TELLING_CHARS)
            self._groups[key] = group
            if len(self._groups) > _MAX_GROUPS:
                self._groups.popitem(last=False)
        self._groups.move_to_end(key)
        return group


def _digest(pattern: str) -> bytes:
    return blake2b(pattern.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _escaped(text: str) -> str:
    """An expression that matches a text, in characters that a terminal only shows."""
    return "".join(
        re.escape(char) if char.isprintable() else f"\\U{ord(char):08x}" for char in text
    )


def _end_of_stamp(text: str) -> int:
    stamp = _STAMP.match(text)
    return stamp.end() if stamp is not None else 0


def _pattern_of(head: str) -> str:
    """A regular expression of a beginning, with room for other numbers and ids."""
    pieces: list[str] = []
    position = 0
    for varying in _VARIES.finditer(head):
        pieces.append(_escaped(head[position : varying.start()]))
        pieces.append(_PATTERNS[varying.lastgroup or "space"])
        position = varying.end()
    return "".join([*pieces, _escaped(head[position:])])


def _are_regular(times_s: Sequence[float]) -> bool:
    """The intervals are one length, or multiples of it where some turns were left out."""
    if len(times_s) < _BEATS:
        return False
    intervals_s = [after - before for before, after in itertools.pairwise(times_s)]
    usual_s = statistics.median(intervals_s)
    if usual_s < _SHORTEST_BEAT_S:
        return False
    beats = [interval / usual_s for interval in intervals_s]
    return all(round(beat) >= 1 and abs(beat - round(beat)) <= _TOLERANCE for beat in beats)
