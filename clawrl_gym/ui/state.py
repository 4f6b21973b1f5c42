"""The state that a view draws: phases, gauges, curves, sessions; no drawing.

Training and serving share it: a training run has a last update and held-out results, a serving run
has sessions and no end of its own.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from clawrl_gym.core.metrics import (
    ELAPSED_S,
    ERRORS_PREFIX,
    FAILURES_PREFIX,
    HELDOUT_SUCCESS,
    LEFT_S,
)
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import Turn, Verdict
from clawrl_gym.ui.judging import Reading, mark
from clawrl_gym.ui.text import HELDOUT_PREFIX, one_line

_ENDINGS = ("ready", "done")
_CURVES = ("train/reward", "train/success", HELDOUT_SUCCESS)
_MOST_SESSIONS = 8
_MOST_MARKS = 24
_MOST_TURNS = 1000


@dataclass(slots=True)
class RunPhase:
    """One stretch of the run with a name."""

    name: str
    start_s: float
    detail: str = ""
    end_s: float | None = None
    """Time of its end; None while it lasts."""

    def lasted_s(self) -> float:
        """Seconds so far, or altogether."""
        return (self.end_s or time.monotonic()) - self.start_s


@dataclass(slots=True)
class SessionLine:
    """One session as the view shows it."""

    id: str
    turns: int = 0
    side_turns: int = 0
    last_s: float = 0.0
    """Monotonic time of its last turn."""
    user_text: str = ""
    """The newest words of its user."""
    reply: str = ""
    versions: str = ""
    verdicts: list[str] = field(default_factory=list)
    """`+`, `0`, `-` or `?` (abstained) a judged turn, oldest first."""


@dataclass(slots=True)
class RunState:
    """Everything a view draws; times are monotonic seconds."""

    title: str
    total_steps: int | None = None
    """Updates of a training run; None for serving, which has no end of its own."""
    start_s: float = field(default_factory=time.monotonic)
    phases: list[RunPhase] = field(default_factory=list)
    gauges: dict[str, float] = field(default_factory=dict)
    curves: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Points (step, value) of the curves that are drawn."""
    heldout: list[dict[str, float]] = field(default_factory=list)
    """Every held-out evaluation, in order."""
    step: int = 0
    first_step: tuple[int, float] | None = None
    """The first update seen and when: the time left is counted from there."""
    last_update_s: float | None = None
    """Time of the newest update."""
    gauges_s: float | None = None
    """Time of the newest gauges."""
    left_reported_s: float = 0.0
    """Time of the run's last estimate of its remaining time."""
    sessions: OrderedDict[str, SessionLine] = field(default_factory=OrderedDict)
    """The newest ones, the newest last."""
    session_of_turn: OrderedDict[int, str] = field(default_factory=OrderedDict)
    """Session id by turn id, of the newest turns."""
    hint: tuple[str, str] | None = None
    """Session and words of the newest hint."""
    reading: Reading | None = None
    """The teacher's reading of a turn of the newest update that had one."""
    closed: bool = False

    def begin(self, name: str, detail: str) -> RunPhase | None:
        """Enter a phase or change its detail; phases may overlap.

        A detail that begins with `ready` or `done` ends the phase; it is returned then.
        """
        phase = next((p for p in self.phases if p.name == name and p.end_s is None), None)
        if phase is None:
            phase = RunPhase(name, time.monotonic())
            self.phases.append(phase)
        phase.detail = detail
        if detail.lower().startswith(_ENDINGS):
            phase.end_s = time.monotonic()
            return phase
        return None

    @property
    def open_phases(self) -> list[RunPhase]:
        """The phases that last, oldest first."""
        return [phase for phase in self.phases if phase.end_s is None]

    def end_phases(self) -> None:
        """End every phase that lasts."""
        for phase in self.open_phases:
            phase.end_s = time.monotonic()

    def take(self, values: Mapping[str, float]) -> None:
        """Take gauges in; one that is not a finite number now is unknown again."""
        self.gauges_s = time.monotonic()
        for name, value in values.items():
            if math.isfinite(value):
                self.gauges[name] = value
            else:
                self.gauges.pop(name, None)
        if LEFT_S in values and LEFT_S in self.gauges:
            self.left_reported_s = time.monotonic()

    def take_step(self, step: int, values: Mapping[str, float]) -> None:
        """Take the values of a step in: gauges, curves, held-out results."""
        if step > self.step:
            self.step, self.last_update_s = step, time.monotonic()
        if self.first_step is None and step > 0:
            self.first_step = (step, time.monotonic())
        self.take(values)
        for name in _CURVES:
            if math.isfinite(values.get(name, math.nan)):
                self.curves.setdefault(name, []).append((float(step), values[name]))
        if HELDOUT_SUCCESS in values:
            result = {name: v for name, v in values.items() if name.startswith(HELDOUT_PREFIX)}
            self.heldout.append({**result, "step": step})

    def take_turn(self, turn: Turn) -> None:
        """A turn was recorded."""
        line = self.sessions.pop(turn.session_id, None) or SessionLine(turn.session_id)
        self.sessions[turn.session_id] = line
        while len(self.sessions) > _MOST_SESSIONS:
            self.sessions.popitem(last=False)
        line.last_s = time.monotonic()
        if turn.kind == "side":
            line.side_turns += 1
            return
        line.turns += 1
        line.user_text = last_user_text(turn)
        line.reply = one_line(text_of(turn.reply) or calls_of(turn), 200)
        line.versions = versions_of(turn)
        if turn.id is not None:
            self.session_of_turn[turn.id] = turn.session_id
            while len(self.session_of_turn) > _MOST_TURNS:
                self.session_of_turn.popitem(last=False)

    def take_verdict(self, verdict: Verdict) -> None:
        """A turn was judged."""
        session_id = self.session_of_turn.get(verdict.turn_id, "")
        line = self.sessions.get(session_id)
        taught = [verdict.detail.get("text") or "", *verdict.hints]  # a person's words go first
        words = next(filter(None, taught), None)
        if words is not None:
            self.hint = session_id, one_line(words, 300)
        if line is not None:
            line.verdicts = [*line.verdicts, mark(verdict)][-_MOST_MARKS:]

    def elapsed_s(self) -> float:
        """Since the run began (of a resumed run: by its own `time/elapsed_s`, if it has one)."""
        return max(self.gauges.get(ELAPSED_S, 0.0), time.monotonic() - self.start_s)

    def left_s(self) -> float | None:
        """Until the last update, by the run's newest estimate; None when that is none, or up."""
        if LEFT_S not in self.gauges or self.step >= (self.total_steps or 0):
            return None
        left_s = self.gauges[LEFT_S] - (time.monotonic() - self.left_reported_s)
        return left_s if left_s > 0 else None

    @property
    def is_late(self) -> bool:
        """The run's newest estimate is up and updates are missing still."""
        missing = self.step < (self.total_steps or 0)
        return missing and LEFT_S in self.gauges and self.left_s() is None

    @property
    def update_age_s(self) -> float | None:
        """Seconds since the newest update; None before the first."""
        return None if self.last_update_s is None else time.monotonic() - self.last_update_s

    @property
    def gauges_age_s(self) -> float:
        """Seconds since the newest gauges; 0 before the first."""
        return 0.0 if self.gauges_s is None else time.monotonic() - self.gauges_s

    def errors(self) -> dict[str, float]:
        """Errors of the infrastructure by kind, without the kinds that did not occur."""
        return self._counts(ERRORS_PREFIX)

    def failures(self) -> dict[str, float]:
        """Episodes that the agent itself ended without a grade, by kind."""
        return self._counts(FAILURES_PREFIX)

    def _counts(self, prefix: str) -> dict[str, float]:
        return {
            name.removeprefix(prefix): count
            for name, count in sorted(self.gauges.items())
            if name.startswith(prefix) and count > 0
        }


def last_user_text(turn: Turn) -> str:
    """The user's last message, as one line."""
    texts = [text_of(message) for message in turn.messages if message.get("role") == "user"]
    return one_line(texts[-1], 200) if texts else ""


def calls_of(turn: Turn) -> str:
    """The tools that a reply calls."""
    calls = turn.reply.get("tool_calls") or []
    return ", ".join(str(call.get("function", {}).get("name", "?")) + "()" for call in calls)


def versions_of(turn: Turn) -> str:
    """`v3`, or `v3-4` for a reply that a swap went through."""
    versions = sorted({version for version in turn.versions_T if version >= 0})
    if not versions:
        return ""
    return f"v{versions[0]}" if len(versions) == 1 else f"v{versions[0]}-{versions[-1]}"
