"""How a bench goes, in the terminal: a bar for all runs and one for this one, else lines."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from clawrl_gym.comparison.plan import PlannedRun
from clawrl_gym.comparison.record import RunRecord
from clawrl_gym.ui.text import duration


class RunProgress:
    """Shows the run that goes now; a line for each that ended."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._ended_runs = 0
        self._begun: set[str] = set()
        self._started_s = time.monotonic()
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            TextColumn("{task.completed:.0f}/{task.total:.0f} {task.fields[unit]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._all_runs = self._bars.add_task("all runs", total=total, unit="runs")
        self._this_run = self._bars.add_task("", total=1, unit="updates", visible=False)
        self._bars.start()

    def begins(self, run: PlannedRun, how: str) -> None:
        self._begun.add(run.name)
        self._say(f"{run.name} {how}; it writes {run.log_file}")
        self._bars.reset(
            self._this_run, description=run.name, total=run.steps, completed=0, visible=True
        )

    def reached(self, run: PlannedRun, step: int) -> None:
        self._bars.update(self._this_run, completed=step)

    def ended(self, run: PlannedRun, record: RunRecord) -> None:
        self._ended_runs += 1
        self._bars.update(self._all_runs, completed=self._ended_runs)
        took = duration(record.wall_s)
        if not record.finished:
            words = f"failed after {took}: {record.failure}"
        elif run.name in self._begun:
            words = f"done in {took}"
        else:
            words = f"was done before, in {took}"
        self._say(f"{run.name} {words} ({self._ended_runs} of {self._total} runs)")

    def close(self) -> None:
        """Idempotent."""
        self._bars.stop()

    def _say(self, text: str) -> None:
        since = duration(time.monotonic() - self._started_s)
        self._console.print(f"{since:>7}  {text}", markup=False, highlight=False, soft_wrap=True)
