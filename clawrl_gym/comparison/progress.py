"""Progress of a bench in the terminal: a bar for all processes and one for this one, else lines.

Both show what the run is doing, by the newest line of its log, from the first second on.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from clawrl_gym.comparison.measurement import Measurement
from clawrl_gym.comparison.plan import PlannedRun
from clawrl_gym.comparison.record import RunRecord
from clawrl_gym.ui.screen import LiveScreen, can_draw
from clawrl_gym.ui.text import duration, writable

_SAY_EVERY_S = 20.0
"""Seconds between two lines on a run's progress, where there is no terminal."""


class RunProgress:
    """Shows the run that goes now; a line for each that ended."""

    def __init__(
        self, console: Console, total: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._total = total
        self._clock = clock
        self._ended_runs = 0
        self._begun: set[str] = set()
        self._started_s = clock()
        self._newest_line = ""
        self._said_s: float | None = None
        """Time of the last line on the run's progress."""
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.completed:.0f}/{task.total:.0f} {task.fields[unit]}"),
            TimeElapsedColumn(),
            console=console,
            auto_refresh=False,
        )
        self._all_runs = self._bars.add_task("all runs", total=total, unit="runs")
        self._this_run = self._bars.add_task("", total=1, unit="updates", visible=False)
        self._screen = LiveScreen(console, self._draw) if can_draw(console.file) else None

    def begins(self, run: PlannedRun | Measurement, how: str) -> None:
        self._begun.add(run.name)
        self._newest_line, self._said_s = "starting", None
        self._say(f"{run.name} {how}; it writes {run.log_file}")
        self._bars.reset(
            self._this_run, description=run.name, total=run.steps, completed=0, visible=True,
            unit=run.unit,
        )  # fmt: skip

    def reached(self, run: PlannedRun | Measurement, step: int, newest_line: str) -> None:
        self._bars.update(self._this_run, completed=step)
        if not newest_line or newest_line == self._newest_line:
            return
        self._newest_line = newest_line
        now_s = self._clock()
        if self._screen is None and (self._said_s is None or now_s - self._said_s >= _SAY_EVERY_S):
            self._said_s = now_s
            self._say(f"{run.name}: {newest_line}")

    def ended(self, run: PlannedRun | Measurement, record: RunRecord) -> None:
        self._ended_runs += isinstance(run, PlannedRun)
        self._newest_line = ""
        self._bars.update(self._all_runs, completed=self._ended_runs)
        self._bars.update(self._this_run, visible=False)
        took = duration(record.wall_s)
        if not record.finished:
            words = f"failed after {took}: {record.failure}"
        elif run.name in self._begun:
            words = f"done in {took}"
        else:
            words = f"was done before, in {took}"
        self._say(f"{run.name} {words} ({self._ended_runs} of {self._total} runs)")

    def close(self) -> None:
        """Close it; idempotent."""
        if self._screen is not None:
            self._screen.close()

    def _draw(self, width: int, height: int) -> RenderableType:
        newest = Text(f"  {self._newest_line}", style="grey62", no_wrap=True, overflow="ellipsis")
        return Group(self._bars, newest) if self._newest_line else self._bars

    def _say(self, text: str) -> None:
        line = f"{duration(self._clock() - self._started_s):>7}  {text}"
        if self._screen is not None:
            self._screen.message(line)
        else:
            line = writable(line, self._console.encoding)
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
