"""The view of a running run: live on a terminal, plain lines elsewhere.

A view is told things and draws them; it never asks, decides or waits. Its calls may come from any
thread.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from typing import Protocol

from rich.console import Console, RenderableType
from rich.live import Live

from clawrl_gym.errors import ConfigError
from clawrl_gym.ui.line import LineView
from clawrl_gym.ui.panel import render
from clawrl_gym.ui.state import ViewState
from clawrl_gym.ui.text import one_line


class View(Protocol):
    """What every view is told."""

    def phase(self, name: str, detail: str = "") -> None:
        """A phase begins or its detail changes; phases may overlap.

        A detail that begins with `ready` or `done` ends it; the first `step` ends all of start-up.
        """
        ...

    def message(self, text: str) -> None:
        """Something worth a line."""
        ...

    def close(self) -> None:
        """The run is over; idempotent."""
        ...


class RunView(View, Protocol):
    """What people see while a training run goes on."""

    def update(self, state: Mapping[str, float]) -> None:
        """Live gauges, by metric name."""
        ...

    def step(self, step: int, values: Mapping[str, float]) -> None:
        """An update or an evaluation is done."""
        ...


class LiveView:
    """A panel that is redrawn in place; messages scroll above it."""

    def __init__(self, console: Console, *, total_steps: int, title: str) -> None:
        self._state = ViewState(title=one_line(title), total_steps=total_steps)
        self._lock = threading.RLock()
        self._console = console
        self._live = Live(
            console=console, get_renderable=self._draw, refresh_per_second=5, transient=False
        )
        self._live.start()

    def _draw(self) -> RenderableType:
        with self._lock:
            return render(self._state, self._console.width, self._console.height)

    def phase(self, name: str, detail: str = "") -> None:
        """Enter a phase or change its detail."""
        with self._lock:
            self._state.begin(one_line(name), one_line(detail))

    def update(self, state: Mapping[str, float]) -> None:
        """Show gauges."""
        with self._lock:
            self._state.take(state)

    def step(self, step: int, values: Mapping[str, float]) -> None:
        """Extend the curves."""
        with self._lock:
            self._state.take_step(step, values)

    def message(self, text: str) -> None:
        """Print above the panel."""
        self._console.print(one_line(text), markup=False, highlight=False)

    def close(self) -> None:
        """Draw the last state and leave it on the screen."""
        with self._lock:
            if self._state.closed:
                return
            self._state.end_phases()
            self._state.closed = True
        self._live.stop()


def make_view(mode: str, *, total_steps: int, title: str) -> RunView:
    """The view of the configuration's `ui`: auto, live or line."""
    if mode not in ("auto", "live", "line"):
        raise ConfigError(f"got ui={mode!r}, expected 'auto', 'live' or 'line'")
    if mode == "live" or (mode == "auto" and can_draw()):
        return LiveView(Console(), total_steps=total_steps, title=title)
    return LineView(sys.stdout, total_steps=total_steps, title=title)


def can_draw() -> bool:
    """Whether standard output is a terminal that can redraw in place and knows block characters."""
    dumb = os.environ.get("TERM", "") in ("", "dumb", "unknown")
    return sys.stdout.isatty() and not dumb and "utf" in (sys.stdout.encoding or "").lower()
