"""Layout of a serving run: the four loops, lessons, and its newest sessions."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from clawrl_gym.ui.judging import LABEL, MARK_COLOURS, reading_line
from clawrl_gym.ui.panel import Gauge, ViewLayout, learning_lines, loop_table, spinner
from clawrl_gym.ui.state import RunState, SessionLine
from clawrl_gym.ui.text import age, duration, number, until

_WIDE = 100
"""Columns from which the replies are shown, too."""
_LOOPS: dict[str, list[Gauge]] = {
    "serve": [
        ("policy/version", "version", number),
        ("serve/inside", "inside", number),
        ("serve/tokens_per_s", "tokens/s", number),
        ("swap/pause_s", "last swap", duration),
    ],
    "collect": [
        ("sessions/open", "sessions", number),
        ("turns/main", "turns", number),
        ("turns/side", "side turns", number),
        ("turns/machine_like", "machine-like", number),
        ("judge/waiting", "to be judged", number),
    ],
    "judge": [
        ("verdicts/positive", "good", number),
        ("verdicts/neutral", "neutral", number),
        ("verdicts/negative", "bad", number),
        ("verdicts/abstained", "abstained", number),
    ],
    "train": [
        ("ready/samples", "ready", number),
        ("ready/flush_s", "next update", until),
        ("learner/loss", "loss", number),
        ("verdicts/mean", "mean verdict", number),
    ],
}
_LEARNING = {"judge/hinted", "judge/agreement", "judge/votes_invalid", "teacher/gap_mean"}
"""Measures that a rule judge without hints has not; with one, lines on learning are shown."""


def _sections(state: RunState, width: int, height: int) -> list[RenderableType]:
    sections: list[RenderableType] = [
        _status(state),
        Text(),
        loop_table(_LOOPS, state.gauges, width),
    ]
    if _LEARNING & state.gauges.keys():
        sections += [Text(), *learning_lines(state.gauges)]
    if state.hint is not None:
        sections.append(_hint(*state.hint))
    if state.reading is not None:
        sections.append(reading_line(state.reading))
    if state.sessions:
        sections += [Text(), _sessions(state, width)]
    return sections


def _status(state: RunState) -> Text:
    line = Text(overflow="ellipsis", no_wrap=True)
    if state.closed:
        return line.append(f"■ stopped after {duration(state.elapsed_s())}", style="bold")
    for phase in state.open_phases:
        line.append(f"{spinner()} {phase.name} ", style="bold")
        line.append(f"{duration(phase.lasted_s())}  {phase.detail}  ", style=LABEL)
    if not state.open_phases:
        line.append("● serving ", style="bold green3")
        line.append(f"for {duration(state.elapsed_s())}", style=LABEL)
    if state.update_age_s is not None:
        line.append(f"   update {state.step} was {age(state.update_age_s)} ago", style=LABEL)
    return line


def _hint(session_id: str, words: str) -> Text:
    line = Text("newest hint ", style=LABEL, no_wrap=True, overflow="ellipsis")
    return line.append(f"{session_id} ").append(words, "default")


def _sessions(state: RunState, width: int) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), expand=True, header_style=LABEL)
    table.add_column("session", no_wrap=True, max_width=22)
    table.add_column("turns", justify="right", no_wrap=True)
    table.add_column("ago", justify="right", no_wrap=True)
    table.add_column("verdicts", no_wrap=True)
    table.add_column("said", no_wrap=True, overflow="ellipsis", ratio=1)
    if width >= _WIDE:
        table.add_column("answered", no_wrap=True, overflow="ellipsis", ratio=1)
    for line in reversed(state.sessions.values()):
        cells = [line.id, _turns(line), age(time.monotonic() - line.last_s)]
        texts = [escape(line.user_text), escape(f"{line.versions} {line.reply}".strip())]
        texts = texts if width >= _WIDE else texts[:1]
        table.add_row(*map(escape, cells), _verdicts(line), *texts)
    return table


def _turns(line: SessionLine) -> str:
    return f"{line.turns}+{line.side_turns}" if line.side_turns else str(line.turns)


def _verdicts(line: SessionLine) -> Text:
    text = Text()
    for mark in line.verdicts:
        text.append(mark, style=MARK_COLOURS[mark])
    return text


def _step_lines(state: RunState, step: int, values: Mapping[str, float]) -> list[str]:
    gap = values.get("teacher/gap_mean")
    teacher = "" if gap is None else f"teacher gap {number(gap)}  "
    return [
        f"update {step}: {number(values.get('batch/samples'))} turns  "
        f"loss {number(values.get('learner/loss'))}  {teacher}"
        f"step {duration(values.get('learner/step_s', 0.0))}  "
        f"swap {duration(values.get('swap/pause_s', 0.0))}"
    ]


SERVING = ViewLayout(_sections, _step_lines)
