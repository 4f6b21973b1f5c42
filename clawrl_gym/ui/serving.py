"""The view of a serving run: live on a terminal, one line an event elsewhere.

Like the view of a training run it is told things and draws them; its calls may come from any
thread.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from typing import Protocol, TextIO

from rich.console import Console, RenderableType
from rich.live import Live

from clawrl_gym.errors import ConfigError
from clawrl_gym.types import Turn, Verdict
from clawrl_gym.ui.line import LineView
from clawrl_gym.ui.serving_panel import render
from clawrl_gym.ui.serving_state import (
    ServeState,
    calls_of,
    mark,
    versions_of,
)
from clawrl_gym.ui.terminal import View, can_draw
from clawrl_gym.ui.text import duration, number, one_line


class ServeView(View, Protocol):
    """What people see while a policy serves and learns."""

    def update(self, state: Mapping[str, float]) -> None:
        """Live gauges, by metric name."""
        ...

    def turn(self, turn: Turn) -> None:
        """A turn was recorded."""
        ...

    def verdict(self, verdict: Verdict) -> None:
        """A turn was judged."""
        ...

    def step(self, step: int, values: Mapping[str, float]) -> None:
        """An update serves."""
        ...


class ServeLiveView:
    """A panel that is redrawn in place; messages scroll above it."""

    def __init__(self, console: Console, title: str) -> None:
        self._state = ServeState(title=one_line(title), total_steps=0)
        self._lock = threading.RLock()
        self._console = console
        self._live = Live(
            console=console, get_renderable=self._draw, refresh_per_second=4, transient=False
        )
        self._live.start()

    def _draw(self) -> RenderableType:
        with self._lock:
            return render(self._state, self._console.width)

    def phase(self, name: str, detail: str = "") -> None:
        with self._lock:
            self._state.begin(one_line(name), one_line(detail))

    def update(self, state: Mapping[str, float]) -> None:
        with self._lock:
            self._state.take(state)

    def turn(self, turn: Turn) -> None:
        with self._lock:
            self._state.turn(turn)

    def verdict(self, verdict: Verdict) -> None:
        with self._lock:
            self._state.verdict(verdict)

    def step(self, step: int, values: Mapping[str, float]) -> None:
        with self._lock:
            self._state.update(step, values)

    def message(self, text: str) -> None:
        self._console.print(one_line(text), markup=False, highlight=False)

    def close(self) -> None:
        with self._lock:
            if self._state.closed:
                return
            self._state.closed = True
        self._live.stop()


class ServeLineView(LineView):
    """One line a turn, a verdict and an update; nothing of what was said."""

    def __init__(self, out: TextIO, title: str) -> None:
        super().__init__(out, total_steps=0, title=title)

    def turn(self, turn: Turn) -> None:
        """Ids and numbers only: logs are kept longer than conversations."""
        name = f"{turn.session_id}#{turn.index}"
        kind = turn.kind if turn.kind == "main" else f"side ({turn.rule})"
        called = f"  {calls_of(turn)}" if turn.reply.get("tool_calls") else ""
        self._write(
            f"turn {name}  {kind}  {len(turn.prompt_ids_T)} + {len(turn.sampled_ids_T)} tokens  "
            f"{versions_of(turn)}{called}"
        )

    def verdict(self, verdict: Verdict) -> None:
        reason = verdict.detail.get("rule") or verdict.detail.get("reason", "")
        self._write(f"verdict on turn {verdict.turn_id}: {mark(verdict)}  {verdict.kind}  {reason}")

    def step(self, step: int, values: Mapping[str, float]) -> None:
        self._write(
            f"update {step}: {number(values.get('batch/samples'))} turns  "
            f"loss {number(values.get('learner/loss'))}  "
            f"step {duration(values.get('learner/step_s', 0.0))}  "
            f"swap {duration(values.get('swap/pause_s', 0.0))}"
        )


def make_serve_view(mode: str, *, title: str) -> ServeView:
    """The view of the configuration's `ui`: auto, live or line."""
    if mode not in ("auto", "live", "line"):
        raise ConfigError(f"got ui={mode!r}, expected 'auto', 'live' or 'line'")
    if mode == "live" or (mode == "auto" and can_draw()):
        return ServeLiveView(Console(), title)
    return ServeLineView(sys.stdout, title)
