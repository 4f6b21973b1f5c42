"""What the view of a serving run knows: sessions, recent events, gauges; no drawing."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import Turn, Verdict
from clawrl_gym.ui.judging import mark
from clawrl_gym.ui.state import ViewState
from clawrl_gym.ui.text import one_line

_SESSIONS = 8
_UPDATES = 400


@dataclass(slots=True)
class SessionLine:
    """One session as the view shows it."""

    id: str
    turns: int = 0
    side: int = 0
    last_s: float = 0.0
    """Monotonic time of its last turn."""
    said: str = ""
    """The newest words of its user."""
    reply: str = ""
    versions: str = ""
    verdicts: list[str] = field(default_factory=list)
    """`+`, `0`, `-` or `?` (abstained) a judged turn, oldest first."""


@dataclass(slots=True)
class ServeState(ViewState):
    """Everything the view of a serving run draws; times are monotonic seconds."""

    sessions: OrderedDict[str, SessionLine] = field(default_factory=OrderedDict)
    """The newest ones, the newest last."""
    owners: OrderedDict[int, str] = field(default_factory=OrderedDict)
    """Session of a turn id."""
    rewards: deque[float] = field(default_factory=lambda: deque(maxlen=_UPDATES))
    """Of the newest verdicts."""
    hint: tuple[str, str] | None = None
    """Session and words of the newest hint."""
    last_update_s: float | None = None

    def turn(self, turn: Turn) -> None:
        """A turn was recorded."""
        line = self.sessions.pop(turn.session_id, None) or SessionLine(turn.session_id)
        self.sessions[turn.session_id] = line
        while len(self.sessions) > _SESSIONS:
            self.sessions.popitem(last=False)
        line.last_s = time.monotonic()
        if turn.kind == "side":
            line.side += 1
            return
        line.turns += 1
        line.said = last_words(turn)
        line.reply = one_line(text_of(turn.reply) or calls_of(turn), 200)
        line.versions = versions_of(turn)
        if turn.id is not None:
            self.owners[turn.id] = turn.session_id
            while len(self.owners) > 1000:
                self.owners.popitem(last=False)

    def verdict(self, verdict: Verdict) -> None:
        """A turn was judged."""
        session_id = self.owners.get(verdict.turn_id, "")
        line = self.sessions.get(session_id)
        if verdict.hints:
            self.hint = session_id, one_line(verdict.hints[0], 300)
        if line is not None:
            line.verdicts = [*line.verdicts, mark(verdict)][-24:]
        if verdict.reward is not None:
            self.rewards.append(verdict.reward)

    def take_step(self, step: int, values: Mapping[str, float]) -> None:
        """An update serves."""
        ViewState.take_step(self, step, values)
        self.last_update_s = time.monotonic()


def last_words(turn: Turn) -> str:
    """What the user said last, as one line."""
    said = [text_of(m) for m in turn.messages if m.get("role") == "user"]
    return one_line(said[-1], 200) if said else ""


def calls_of(turn: Turn) -> str:
    """The tools that a reply calls."""
    calls = turn.reply.get("tool_calls") or []
    return ", ".join(str(call.get("function", {}).get("name", "?")) + "()" for call in calls)


def versions_of(turn: Turn) -> str:
    """`v3`, or `v3-4` for a reply that a swap went through."""
    known = sorted({version for version in turn.versions_T if version >= 0})
    if not known:
        return ""
    return f"v{known[0]}" if len(known) == 1 else f"v{known[0]}-{known[-1]}"
