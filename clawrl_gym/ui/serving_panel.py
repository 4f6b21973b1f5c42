"""Draws a ServeState as one rich panel."""

from __future__ import annotations

import time

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from clawrl_gym.ui.judging import LABEL, MARKS, reading_line
from clawrl_gym.ui.panel import COLOURS, Form, cell, learning_lines, spinner
from clawrl_gym.ui.serving_state import ServeState, SessionLine
from clawrl_gym.ui.text import duration, number

_ROWS: dict[str, list[tuple[str, str, Form]]] = {
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
        ("ready/flush_s", "update within", duration),
        ("learner/loss", "loss", number),
        ("verdicts/mean", "mean verdict", number),
    ],
}
_TOLD = {"judge/hinted", "judge/agreement", "judge/votes_invalid", "teacher/gap_mean"}
"""Measures that a rule judge without hints has not; with one of them there is more to tell."""


def render(state: ServeState, width: int) -> RenderableType:
    """The whole view."""
    parts: list[RenderableType] = [_status(state), Text(), _loops(state)]
    if _TOLD & state.gauges.keys():
        parts += [Text(), *learning_lines(state.gauges)]
    if state.hint is not None:
        parts.append(_hint(*state.hint))
    if state.reading is not None:
        parts.append(reading_line(state.reading))
    if state.sessions:
        parts += [Text(), _sessions(state, width)]
    return Panel(
        Group(*parts), title=f"[bold default]{escape(state.title)}[/]", title_align="left",
        border_style="grey42", box=box.ROUNDED, padding=(0, 1), width=width,
    )  # fmt: skip


def _status(state: ServeState) -> Text:
    line = Text(overflow="ellipsis", no_wrap=True)
    if state.closed:
        return line.append(f"■ stopped after {duration(state.elapsed_s())}", style="bold")
    for phase in state.open_phases:
        line.append(f"{spinner()} {phase.name} ", style="bold")
        line.append(f"{duration(phase.lasted_s())}  {phase.detail}  ", style=LABEL)
    if not state.open_phases:
        line.append("● serving ", style="bold green3")
        line.append(f"for {duration(state.elapsed_s())}", style=LABEL)
    if state.last_update_s is not None:
        ago = duration(time.monotonic() - state.last_update_s)
        line.append(f"   update {state.step} was {ago} ago", style=LABEL)
    return line


def _loops(state: ServeState) -> RenderableType:
    grid = Table.grid(padding=(0, 2), expand=True)
    grid.add_column(no_wrap=True, width=7)
    for _ in range(4):
        grid.add_column(no_wrap=True, ratio=1)
    for loop, fields in _ROWS.items():
        cells = [cell(label, state.gauges.get(name), form) for name, label, form in fields]
        grid.add_row(Text(loop, style=f"bold {COLOURS[loop]}"), *cells)
    return grid


def _hint(session_id: str, words: str) -> Text:
    line = Text("newest hint ", style=LABEL, no_wrap=True, overflow="ellipsis")
    return line.append(f"{session_id} ").append(words, "default")


def _sessions(state: ServeState, width: int) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), expand=True, header_style=LABEL)
    table.add_column("session", no_wrap=True, max_width=22)
    table.add_column("turns", justify="right", no_wrap=True)
    table.add_column("ago", justify="right", no_wrap=True)
    table.add_column("verdicts", no_wrap=True)
    table.add_column("said", no_wrap=True, overflow="ellipsis", ratio=1)
    if width >= 100:
        table.add_column("answered", no_wrap=True, overflow="ellipsis", ratio=1)
    for line in reversed(state.sessions.values()):
        cells = [line.id, _turns(line), _ago(line)]
        told = [escape(line.said), escape(f"{line.versions} {line.reply}".strip())]
        table.add_row(*map(escape, cells), _verdicts(line), *told[: 2 if width >= 100 else 1])
    return table


def _turns(line: SessionLine) -> str:
    return f"{line.turns}+{line.side}" if line.side else str(line.turns)


def _ago(line: SessionLine) -> str:
    return duration(float(max(1, round(time.monotonic() - line.last_s)))).replace(".0", "")


def _verdicts(line: SessionLine) -> Text:
    text = Text()
    for mark in line.verdicts:
        text.append(mark, style=MARKS[mark])
    return text
