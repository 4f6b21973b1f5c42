"""Parts of every run's panel: its frame, the table of the loops, and shared lines.

A `ViewLayout` defines the panel of a kind of run (`training.py`, `serving.py`), for any width from
40 columns up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from clawrl_gym.ui.judging import LABEL, judging_line, teacher_line
from clawrl_gym.ui.state import RunState
from clawrl_gym.ui.text import age

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_LOOP_COLOURS = {
    "serve": "dodger_blue1",
    "collect": "dark_cyan",
    "judge": "orange3",
    "train": "medium_purple1",
}

_LOOP_COLUMN, _GAUGE_COLUMN = 13, 20
"""Columns of the terminal that a loop's name with the frame takes, and a gauge at most."""
_FRESH_S = 5.0
"""Gauges come twice a second; older ones are those of a run that is stuck or still starts."""

Form = Callable[[float], str]
"""A function that writes a value."""
Gauge = tuple[str, str, Form]
"""(metric, label, form)."""


@dataclass(frozen=True, slots=True)
class ViewLayout:
    """The layout of one kind of run."""

    sections: Callable[[RunState, int, int], list[RenderableType]]
    """(state, width, height) of the panel -> its sections from the top, `height` in rows."""
    step_lines: Callable[[RunState, int, Mapping[str, float]], list[str]]
    """(state, step, values) -> what line mode writes for a step that the state has taken in."""

    def panel(self, state: RunState, width: int, height: int = 24) -> Panel:
        """The whole view; it says when its numbers are not of this moment."""
        is_old = not state.closed and state.gauges_age_s > _FRESH_S
        return Panel(
            Group(*self.sections(state, width, height)),
            title=f"[bold default]{escape(state.title)}[/]", title_align="left",
            subtitle=f"numbers of {age(state.gauges_age_s)} ago" if is_old else None,
            subtitle_align="right",
            border_style="grey42", box=box.ROUNDED, padding=(0, 1), width=width,
        )  # fmt: skip


def spinner() -> str:
    """The moment's frame of the spinner."""
    return _SPINNER[int(time.monotonic() * 10) % len(_SPINNER)]


def loop_table(
    rows: Mapping[str, Sequence[Gauge]], gauges: Mapping[str, float], width: int
) -> Table:
    """One row a loop, with its gauges: in columns, or one after the other in a narrow panel."""
    columns = max(map(len, rows.values()))
    in_columns = width >= _LOOP_COLUMN + columns * _GAUGE_COLUMN
    grid = Table.grid(padding=(0, 2), expand=True)
    grid.add_column(no_wrap=True, width=7)
    for _ in range(columns if in_columns else 1):
        grid.add_column(no_wrap=in_columns, ratio=1)
    for loop, fields in rows.items():
        cells = [_cell(label, gauges.get(name), form) for name, label, form in fields]
        shown = cells if in_columns else [_filled(cells, width - _LOOP_COLUMN)]
        grid.add_row(Text(loop, style=f"bold {_LOOP_COLOURS[loop]}"), *shown)
    return grid


def _cell(label: str, value: float | None, form: Form) -> Text:
    cell = Text(f"{label} ", style=LABEL)
    return cell.append("-" if value is None else form(value), style="default")


def _filled(cells: Sequence[Text], width: int) -> Text:
    """Lines of whole cells, one after the other: no value stands apart from its label."""
    lines: list[list[Text]] = [[]]
    for cell in cells:
        if lines[-1] and Text("  ").join([*lines[-1], cell]).cell_len > width:
            lines.append([])
        lines[-1].append(cell)
    return Text("\n").join(Text("  ").join(line) for line in lines)


def learning_lines(gauges: Mapping[str, float]) -> list[Text]:
    """Lines about judge and teacher; none in a run that has neither."""
    return [line for line in (judging_line(gauges), teacher_line(gauges)) if line is not None]
