"""The view of a run in progress: live on a terminal, plain lines elsewhere.

A view receives events and shows them; it never queries, decides or waits. Its calls may come from
any thread. What is shown of training and of serving is a `ViewLayout` each.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Mapping
from typing import Protocol, TextIO

from rich.console import Console, RenderableType

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.redact import clean
from clawrl_gym.core.types import Turn, Verdict
from clawrl_gym.ui.judging import Reading, mark, why
from clawrl_gym.ui.panel import ViewLayout
from clawrl_gym.ui.screen import LiveScreen, can_draw
from clawrl_gym.ui.state import RunState, calls_of, versions_of
from clawrl_gym.ui.text import duration, number, one_line, writable


class RunView(Protocol):
    """A view of a run for people, while it runs."""

    def phase(self, name: str, detail: str = "") -> None:
        """A phase begins or its detail changes; phases may overlap.

        A detail that begins with `ready` or `done` ends it; the first `step` ends all of start-up.
        """
        ...

    def message(self, text: str) -> None:
        """Something worth a line."""
        ...

    def update(self, gauges: Mapping[str, float]) -> None:
        """Live gauges, by metric name."""
        ...

    def step(self, step: int, values: Mapping[str, float]) -> None:
        """An update serves, or an evaluation is done."""
        ...

    def turn(self, turn: Turn) -> None:
        """A turn of a conversation was recorded."""
        ...

    def verdict(self, verdict: Verdict) -> None:
        """A turn of a conversation was judged."""
        ...

    def distilled(self, reading: Reading) -> None:
        """A teacher read a turn of the newest update."""
        ...

    def close(self) -> None:
        """Show only messages from now on, as plain lines; idempotent."""
        ...


class LiveView:
    """A panel on a screen of its own; messages stand above it."""

    def __init__(
        self, console: Console, layout: ViewLayout, *, title: str, total_steps: int | None = None
    ) -> None:
        self._state = RunState(one_line(title), total_steps)
        self._layout = layout
        self._lock = threading.RLock()
        self._screen = LiveScreen(console, self._draw)

    def _draw(self, width: int, height: int) -> RenderableType:
        with self._lock:
            return self._layout.panel(self._state, width, height)

    def phase(self, name: str, detail: str = "") -> None:
        """Enter a phase or change its detail."""
        with self._lock:
            self._state.begin(one_line(name), one_line(clean(detail)))

    def message(self, text: str) -> None:
        """Show above the panel."""
        self._screen.message(clean(text))

    def update(self, gauges: Mapping[str, float]) -> None:
        """Show gauges."""
        with self._lock:
            self._state.take(gauges)

    def step(self, step: int, values: Mapping[str, float]) -> None:
        """Show an update or an evaluation."""
        with self._lock:
            self._state.take_step(step, values)

    def turn(self, turn: Turn) -> None:
        """Show a turn in its session's line."""
        with self._lock:
            self._state.take_turn(turn)

    def verdict(self, verdict: Verdict) -> None:
        """Show a verdict in its session's line."""
        with self._lock:
            self._state.take_verdict(verdict)

    def distilled(self, reading: Reading) -> None:
        """Show how a teacher read a turn."""
        with self._lock:
            self._state.reading = reading

    def close(self) -> None:
        """Leave the messages and the last state on the terminal."""
        with self._lock:
            self._state.end_phases()
            self._state.closed = True
        self._screen.close()


class LineView:
    """Plain lines without control characters, for logs, pipes and CI: one a phase, one a step, one
    a message; of conversations ids and numbers only, because logs are kept longer than they are.
    """

    def __init__(
        self, out: TextIO, layout: ViewLayout, *, title: str, total_steps: int | None = None
    ) -> None:
        self._out = out
        self._layout = layout
        self._state = RunState(one_line(title), total_steps)
        self._write(self._state.title)

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):  # a reader that went away (`| head`) must not end a run
            self._out.write(writable(clean(text), self._out.encoding) + "\n")
            self._out.flush()

    def phase(self, name: str, detail: str = "") -> None:
        """Say that a phase begins, what it is at, and how long it took."""
        name, detail = one_line(name), one_line(detail)
        ended = self._state.begin(name, detail)
        took = f" ({duration(ended.lasted_s())})" if ended else ""
        self._write(f"{name}: {detail}{took}" if detail else f"{name} ...")

    def message(self, text: str) -> None:
        """Write a message as one line."""
        self._write(one_line(text))

    def update(self, gauges: Mapping[str, float]) -> None:
        """Gauges are remembered for the next line; they make none of their own."""
        self._state.take(gauges)

    def step(self, step: int, values: Mapping[str, float]) -> None:
        """The lines of the layout, and one for errors that were not counted before."""
        before = self._state.errors()
        self._state.take_step(step, values)
        for line in self._layout.step_lines(self._state, step, values):
            self._write(line)
        new = {kind: n for kind, n in self._state.errors().items() if before.get(kind, 0) != n}
        if new:
            self._write("errors so far: " + ", ".join(f"{k} {number(n)}" for k, n in new.items()))

    def turn(self, turn: Turn) -> None:
        """Show its kind, size and weight versions."""
        name = f"{turn.session_id}#{turn.index}"
        kind = turn.kind if turn.kind == "main" else f"side ({turn.rule})"
        calls = f"  {calls_of(turn)}" if turn.reply.get("tool_calls") else ""
        self._write(
            f"turn {name}  {kind}  {len(turn.prompt_ids_T)} + {len(turn.sampled_ids_T)} tokens  "
            f"{versions_of(turn)}{calls}"
        )

    def verdict(self, verdict: Verdict) -> None:
        """Show its mark, and its basis."""
        reason = one_line(why(verdict))
        self._write(f"verdict on turn {verdict.turn_id}: {mark(verdict)}  {verdict.kind}  {reason}")

    def distilled(self, reading: Reading) -> None:
        """Show nothing: a line without colours would only repeat the conversation."""

    def close(self) -> None:
        """Do nothing: nothing is left to draw; idempotent."""


def make_view(
    mode: str, layout: ViewLayout, *, title: str, total_steps: int | None = None
) -> RunView:
    """The view of the configuration's `ui`: auto, live or line. Raises ConfigError for another."""
    if mode not in ("auto", "live", "line"):
        raise ConfigError(f"got ui={mode!r}, expected 'auto', 'live' or 'line'")
    if mode != "line" and can_draw(sys.stdout):
        return LiveView(Console(file=sys.stdout), layout, title=title, total_steps=total_steps)
    view = LineView(sys.stdout, layout, title=title, total_steps=total_steps)
    if mode == "live":
        view.message("ui=live needs a terminal that redraws in place and knows UTF-8: lines then")
    return view
