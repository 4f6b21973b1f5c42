"""The live view's screen: whole at any size, and nothing lost at its end."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import pytest
from rich.console import Console, ConsoleDimensions
from rich.panel import Panel
from rich.segment import Segment
from rich.text import Text

from clawrl_gym.ui.screen import LiveScreen, fitted
from clawrl_gym.ui.training import TRAINING
from clawrl_gym.ui.view import LiveView
from tests.support.emulator import Terminal
from tests.support.waiting import becomes_true
from tests.ui.test_ui import drive

SIZES = [(110, 40), (100, 30), (72, 24), (60, 24), (90, 12), (40, 8), (120, 45), (20, 5), (80, 24)]


class Window:
    """A console on a terminal whose window people drag."""

    def __init__(self, columns: int = 100, rows: int = 30) -> None:
        self.terminal = Terminal(columns, rows)
        self.console = Console(file=self.terminal, width=columns, height=rows, force_terminal=True)

    def drag(self, columns: int, rows: int) -> None:
        self.console.size = ConsoleDimensions(columns, rows)
        self.terminal.resize(columns, rows)


@pytest.fixture
def window() -> Window:
    return Window()


@pytest.fixture
def screen(window: Window) -> Iterator[LiveScreen]:
    one = LiveScreen(window.console, lambda width, _: Panel(Text("the panel"), width=width))
    yield one
    one.close()


def refresh(screen: LiveScreen) -> None:
    """A frame now, and not in a fifth of a second."""
    screen._live.refresh()


def test_however_a_window_is_dragged_there_is_one_panel_and_it_is_whole(window: Window) -> None:
    view = LiveView(window.console, TRAINING, total_steps=7, title="runs/x")
    drive(view)
    for columns, rows in SIZES:
        window.drag(columns, rows)
        refresh(view._screen)
        shown = window.terminal.text.splitlines()
        assert next(line[0] for line in shown if line.strip()) == "╭", (columns, rows)
        assert "".join(shown).count("╭") == "".join(shown).count("╰") == 1, (columns, rows)
        assert {line[columns - 1] for line in shown if line.strip()} <= set("╮│╯")
    view.close()
    assert "".join(window.terminal.lines).count("╭") == 1


def test_messages_stand_above_the_panel_as_far_as_there_is_room(
    window: Window, screen: LiveScreen
) -> None:
    for index in range(40):
        screen.message(f"message {index}")
    window.drag(30, 10)
    refresh(screen)
    shown = window.terminal.text.splitlines()
    assert [line.strip() for line in shown[:7]] == [f"message {index}" for index in range(33, 40)]
    assert shown[7].startswith("╭")


def test_at_the_end_all_messages_and_the_panel_are_where_they_can_be_scrolled_to(
    window: Window, screen: LiveScreen
) -> None:
    window.drag(20, 5)
    for index in range(40):
        screen.message(f"message {index} " + "x" * 60)
    screen.close()
    screen.close()
    screen.message("after it")
    lines = window.terminal.lines
    assert lines[0] == "message 0 " + "x" * 60, "unwrapped, so that it can be copied"
    assert lines[39].startswith("message 39")
    assert "the panel" in lines[41]
    assert lines[43] == "after it"
    assert window.terminal.has_cursor
    assert window.terminal.window is None


def test_what_the_process_prints_becomes_messages_until_the_end(
    window: Window, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = LiveScreen(window.console, lambda *_: Text("the panel"))
    print("to the one", end="")  # noqa: T201
    print(" stream")  # noqa: T201
    sys.stderr.write("to the other\n\n\x1b[2Jstream\nbegun")
    screen.close()
    sys.stderr.write("plain again\n")
    assert window.terminal.lines[:4] == ["to the one stream", "to the other", "stream", "begun"]
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "plain again\n")


def test_a_frame_is_drawn_without_anybody_asking(window: Window) -> None:
    screen = LiveScreen(window.console, lambda *_: Text(f"at {time.monotonic()}"))
    refresh(screen)
    before = window.terminal.text
    assert becomes_true(lambda: window.terminal.text != before)
    screen.close()


def test_what_does_not_fit_loses_blank_rows_then_its_middle() -> None:
    rows = [[Segment(text)] for text in ("╭─╮", "│a│", "│ │", "│b│", "│ │", "│c│", "╰─╯")]
    text = ["".join(segment.text for segment in row) for row in fitted(rows, 9)]
    assert text == ["╭─╮", "│a│", "│ │", "│b│", "│ │", "│c│", "╰─╯"]
    fitting = {
        height: "".join(s.text for row in fitted(rows, height) for s in row).replace("│", "")
        for height in (6, 5, 4, 3, 2, 1)
    }
    assert fitting == {
        6: "╭─╮a bc╰─╯", 5: "╭─╮abc╰─╯", 4: "╭─╮ac╰─╯", 3: "╭─╮c╰─╯", 2: "c╰─╯", 1: "╰─╯",
    }  # fmt: skip
