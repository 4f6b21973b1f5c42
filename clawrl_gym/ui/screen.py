"""A terminal that is redrawn as a whole, five times a second, with messages above the drawing.

It takes the terminal's second screen, which neither scrolls nor wraps what it showed before:
however often a window changes its size, no torn frame stays. At the end messages and last drawing
are left on the first screen, where they can be scrolled back to. What the process prints meanwhile
becomes messages.
"""

from __future__ import annotations

import io
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import IO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from clawrl_gym.ui.text import one_line

Draw = Callable[[int, int], RenderableType]
"""(width, height) of the terminal -> what is shown now; called from a thread of its own."""
Row = list[Segment]

_FRAMES_PER_S = 5
_MOST_MESSAGES = 2000
"""Older ones are left out; they are many only where something goes wrong again and again."""
_LAST_ROWS = 2
"""Rows that stay of a drawing that is too high: its state, and its lower edge."""


def can_draw(stream: IO[str]) -> bool:
    """Whether a stream is a terminal that can redraw in place and knows block characters."""
    dumb = os.environ.get("TERM", "") in ("", "dumb", "unknown")
    encoding = getattr(stream, "encoding", None) or ""  # a StringIO says None
    return stream.isatty() and not dumb and "utf" in encoding.lower()


class LiveScreen:
    """The terminal until `close`. Its calls may come from any thread."""

    def __init__(self, console: Console, draw: Draw) -> None:
        self._console = console
        self._draw = draw
        self._messages: deque[str] = deque(maxlen=_MOST_MESSAGES)
        self._closing = threading.RLock()
        self._is_open = True
        self._live = Live(
            console=console, get_renderable=self._frame, screen=True,
            refresh_per_second=_FRAMES_PER_S, redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip
        self._live.start()
        self._printed = ExitStack()
        for redirect in (redirect_stdout, redirect_stderr):
            writer = self._printed.enter_context(_LineWriter(self.message))
            self._printed.enter_context(redirect(writer))

    def message(self, text: str) -> None:
        """A line above the drawing; once closed, a plain line."""
        with self._closing:
            if self._is_open:
                self._messages.append(one_line(text))
            else:
                self._print(one_line(text))

    def close(self) -> None:
        """Give the terminal back, with the messages and the last drawing on it; idempotent."""
        with self._closing:
            if not self._is_open:
                return
            self._printed.close()
            self._is_open = False
        self._live.stop()
        for text in self._messages:
            self._print(text)
        self._console.print(self._draw(*self._console.size))

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _frame(self) -> RenderableType:
        width, height = self._console.size
        options = self._console.options.update(width=width)
        drawn = self._console.render_lines(self._draw(width, height), options, pad=False)
        rows = fitted(drawn, height)
        for text in reversed(list(self._messages)):
            wrapped = self._console.render_lines(Text(text), options, pad=False)
            if len(wrapped) + len(rows) > height:
                break
            rows = [*wrapped, *rows]
        return _Rows(rows)


def fitted(rows: Sequence[Row], height: int) -> list[Row]:
    """At most `height` rows: first the blank ones go, then those in the middle."""
    fitting = list(rows)
    for at in range(len(fitting) - 1, -1, -1):
        if len(fitting) > height and not "".join(s.text for s in fitting[at]).strip("│| "):
            del fitting[at]
    if len(fitting) <= height:
        return fitting
    last = min(_LAST_ROWS, height)
    return [*fitting[: height - last], *fitting[len(fitting) - last :]]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows that were laid out before."""

    rows: list[Row]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for row in self.rows:
            yield from row
            yield Segment.line()


class _LineWriter(io.TextIOBase):
    """A standard stream whose lines go elsewhere."""

    def __init__(self, write_line: Callable[[str], None]) -> None:
        self._write_line = write_line
        self._begun = ""

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            if line.strip():
                self._write_line(line)
        return len(text)

    def close(self) -> None:
        """A line that was begun is one, too."""
        if self._begun:
            self.write("\n")
        super().close()
