"""The view of a running run: live on a terminal, plain lines elsewhere.

A view is told things and draws them; it never asks, decides or waits. Its calls may come from any
thread.
"""

from __future__ import annotations

import os
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Generic, Protocol, TypeVar

from rich.console import Console, RenderableType
from rich.live import Live

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.ui.judging import Reading
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

    def taught(self, reading: Reading) -> None:
        """A teacher read a turn of the newest update."""
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


S = TypeVar("S", bound=ViewState)


class LivePanel(ABC, Generic[S]):
    """A panel that is redrawn in place; messages scroll above it. Subclasses draw their state."""

    def __init__(self, console: Console, state: S) -> None:
        self._state = state
        self._lock = threading.RLock()
        self._console = console
        self._live = Live(
            console=console, get_renderable=self._draw, refresh_per_second=5, transient=False
        )
        self._live.start()

    @abstractmethod
    def _render(self) -> RenderableType:
        """The panel as it is now; called with the lock held."""

    def _draw(self) -> RenderableType:
        with self._lock:
            return self._render()

    def phase(self, name: str, detail: str = "") -> None:
        """Enter a phase or change its detail."""
        with self._lock:
            self._state.begin(one_line(name), one_line(detail))

    def update(self, state: Mapping[str, float]) -> None:
        """Show gauges."""
        with self._lock:
            self._state.take(state)

    def step(self, step: int, values: Mapping[str, float]) -> None:
        """An update or an evaluation is done."""
        with self._lock:
            self._state.take_step(step, values)

    def taught(self, reading: Reading) -> None:
        """Show how a teacher read a turn."""
        with self._lock:
            self._state.reading = reading

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


class LiveView(LivePanel[ViewState]):
    """The panel of a training run."""

    def __init__(self, console: Console, *, total_steps: int, title: str) -> None:
        super().__init__(console, ViewState(title=one_line(title), total_steps=total_steps))

    def _render(self) -> RenderableType:
        return render(self._state, self._console.width, self._console.height)


def make_view(mode: str, *, total_steps: int, title: str) -> RunView:
    """The view of the configuration's `ui`: auto, live or line."""
    if is_live(mode):
        return LiveView(Console(), total_steps=total_steps, title=title)
    return LineView(sys.stdout, total_steps=total_steps, title=title)


def is_live(mode: str) -> bool:
    """Whether `ui` means the panel here. Raises ConfigError for an unknown one."""
    if mode not in ("auto", "live", "line"):
        raise ConfigError(f"got ui={mode!r}, expected 'auto', 'live' or 'line'")
    return mode == "live" or (mode == "auto" and can_draw())


def can_draw() -> bool:
    """Whether standard output is a terminal that can redraw in place and knows block characters."""
    dumb = os.environ.get("TERM", "") in ("", "dumb", "unknown")
    return sys.stdout.isatty() and not dumb and "utf" in (sys.stdout.encoding or "").lower()
