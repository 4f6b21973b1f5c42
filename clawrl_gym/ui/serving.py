"""The view of a serving run: live on a terminal, one line an event elsewhere.

Like the view of a training run it is told things and draws them; its calls may come from any
thread.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Protocol, TextIO

from rich.console import Console, RenderableType

from clawrl_gym.core.types import Turn, Verdict
from clawrl_gym.ui.judging import mark, why
from clawrl_gym.ui.line import LineView
from clawrl_gym.ui.serving_panel import render
from clawrl_gym.ui.serving_state import ServeState, calls_of, versions_of
from clawrl_gym.ui.text import duration, number, one_line
from clawrl_gym.ui.view import LivePanel, View, is_live


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


class ServeLiveView(LivePanel[ServeState]):
    """The panel of a serving run."""

    def __init__(self, console: Console, title: str) -> None:
        super().__init__(console, ServeState(title=one_line(title), total_steps=0))

    def _render(self) -> RenderableType:
        return render(self._state, self._console.width)

    def turn(self, turn: Turn) -> None:
        """Show a turn in its session's line."""
        with self._lock:
            self._state.turn(turn)

    def verdict(self, verdict: Verdict) -> None:
        """Show a verdict in its session's line."""
        with self._lock:
            self._state.verdict(verdict)


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
        told = one_line(why(verdict))
        self._write(f"verdict on turn {verdict.turn_id}: {mark(verdict)}  {verdict.kind}  {told}")

    def step(self, step: int, values: Mapping[str, float]) -> None:
        self._write(
            f"update {step}: {number(values.get('batch/samples'))} turns  "
            f"loss {number(values.get('learner/loss'))}  {_teacher(values)}"
            f"step {duration(values.get('learner/step_s', 0.0))}  "
            f"swap {duration(values.get('swap/pause_s', 0.0))}"
        )


def _teacher(values: Mapping[str, float]) -> str:
    gap = values.get("teacher/gap_mean")
    return "" if gap is None else f"teacher gap {number(gap)}  "


def make_serve_view(mode: str, *, title: str) -> ServeView:
    """The view of the configuration's `ui`: auto, live or line."""
    if is_live(mode):
        return ServeLiveView(Console(), title)
    return ServeLineView(sys.stdout, title)
