"""Pages in words, replies carried out, and what a grade says is missing: word for word as it was.

`python -m tests.gui.test_golden_page_texts` writes it anew; look at what changed before it is kept.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from clawrl_gym.envs.gui.action import GuiAction
from clawrl_gym.envs.gui.answers import same_answer
from clawrl_gym.envs.gui.config import GuiEnvConfig
from clawrl_gym.envs.gui.execution import MousePosition, execute
from clawrl_gym.envs.gui.grading import InfeasibleGrader, StateGrader, differences
from clawrl_gym.envs.gui.observation import Element, Line, View
from clawrl_gym.envs.gui.parse import RequestedAction
from clawrl_gym.envs.gui.task import FinalState, GuiTask, Locator, Step, find_element, resolve
from clawrl_gym.envs.gui.text import element_text, heading, line_text, render, tokens
from tests.gui.gui_fakes import FakeScreen

FILE = Path(__file__).parents[1] / "fixtures" / "golden" / "page_texts.json"


def link(number: int, y: float, name: str = "go on") -> Element:
    return Element(number, "link", f"{name} {number}", box=(5, y, 50, 20))


def column(first_y: float, count: int, step: float = 30) -> tuple[Line, ...]:
    return tuple((link(n, first_y + n * step),) for n in range(1, count + 1))


WORDS: tuple[Line, ...] = tuple((f"paragraph {n}",) for n in range(12))
PAGES: Mapping[str, tuple[Line, ...]] = {
    "in sight": column(0, 20),
    "scrolled": column(-300, 20),
    "all above": column(-900, 20),
    "all below": column(900, 20),
    "mere text": WORDS,
    "text between": (*column(-200, 2), *WORDS, *column(300, 2)),
    "text around": (*WORDS, (link(1, 95),), *WORDS),
    "text above": (*WORDS, (link(1, 30),), (link(2, 400),)),
    "text below": ((link(1, -400),), (link(2, 140),), *WORDS),
    "a bar that stays": ((link(99, 0, "home"),), *column(-200, 15)),
    "not laid out": ((Element(1, "link", "hidden"), link(2, 150)), *column(160, 9)),
    "huge": (("x" * 500,), ("y" * 500,)),
    "huge, not ASCII": (("é" * 500,),),
    "nothing": (),
}
BUDGETS, HEIGHTS = (20, 60, 100, 160, 400), (None, 100.0, 300.0)

ELEMENTS = (
    Element(1, "link", ""), Element(2, "button", 'a "b"\n[3]'), Element(3, "textbox", "n", "v"),
    Element(4, "textbox", "n", "v" * 500), Element(5, "textbox", "n", "v" * 501),
    Element(6, "combobox", "n", "a", ("focused",), ("a", "b\r\nc")),
    Element(7, "listbox", "n", options=tuple(map(str, range(30)))),
    Element(8, "listbox", "n", options=tuple(map(str, range(31)))),
    Element(9, "checkbox", "n", states=("checked", "disabled")), Element(10, "link", "a\rb\tc\x07"),
)  # fmt: skip
HEADINGS = (
    View("u", "t", ()), View("u" * 200, "t" * 80, ()), View("u" * 201, "t" * 81, ()),
    View("u\nv", "t\r\nv", (), ("one",)), View("u", "t", (), ("one", "two"), 2),
    View("u", "t", (), ("o" * 40, "t" * 41, ), 1), View("u", "t", (), tuple("abcdefgh"), 3),
)  # fmt: skip
TEXTS = ("", "a", "abc", "abcd", "a b c", "12", "a1b2", "é", "日本語", "\ud800", "[12] link", "\n")

VALUES: tuple[object, ...] = (
    1, 1.0, True, None, "a", "a" * 118, "a" * 119, [], [1], (1,), [1, 2], [2], {}, {"a": 1},
    {"a": True}, {"a": {"b": [1, {"c": 2}]}}, {"a": {"b": [1, {"c": 3}], "d": 4}}, {"b": 1, "a": 2},
)  # fmt: skip
ANSWERS = (
    "", ".", "a", " A. ", "a..", "a b", "a  b", "1", "1.0", "1.", "01", "$1", "$1.00", "1000",
    "1,000", "$1,000.00", "10,00", "1,0000", "1,000,000", "1000000", ",100", "100", "-1,000",
    "-1000", "0.5", ".5", "1e3", "nan", "inf", "Infinity", "1,000.5", "1000.50", "$", "-",
    "1234,567",
)  # fmt: skip


def clipped(contents: str) -> list[str]:
    return [
        line if len(line) < 200 else f"{line[:60]}... {len(line)}" for line in contents.split("\n")
    ]


def rendered() -> dict[str, list[list[str]]]:
    return {
        name: [
            clipped(render(View("http://a/", "Page", lines), budget, height))
            for budget, height in itertools.product(BUDGETS, HEIGHTS)
        ]
        for name, lines in PAGES.items()
    }


def written() -> dict[str, Sequence[object]]:
    return {
        "elements": [clipped(element_text(element)) for element in ELEMENTS],
        "headings": [heading(view) for view in HEADINGS],
        "lines": [
            line_text(("a [1]", ELEMENTS[0], "[23] b\n")),
            line_text(()),
            line_text(("[a]",)),
        ],
        "tokens": [tokens(text) for text in TEXTS],
    }


def found() -> dict[str, Sequence[object]]:
    """Elements that locators mean, and the actions of steps."""
    lines: tuple[Line, ...] = (
        ("# one", Element(1, "button", "Go"), Element(2, "button", "Go")),
        ("two", Element(3, "button", "Go"), Element(4, "link", "Go"), Element(5, "link", "three")),
    )
    go = Locator("button", "Go")
    locators = (
        go, Locator("button", "Go", 1), Locator("button", "Go", 2), Locator("button", "Go", 3),
        Locator("button", "Go", near="two"), Locator("button", "Go", near="three"),
        Locator("button", "Go", 1, "one"), Locator("link", "Go"), Locator("link", "go"),
        Locator("button", "Go", near="four"),
    )  # fmt: skip
    steps = (
        Step("click", go), Step("drag", go, Locator("link", "Go")),
        Step("drag", go, Locator("x", "")), Step("drag", Locator("x", ""), go),
        Step("type", go, text="a"), Step("press", keys="a"),
    )  # fmt: skip
    return {
        "elements": [find_element(locator, lines) for locator in locators],
        "actions": [repr(resolve(step, lines)) for step in steps],
    }


def graded() -> dict[str, Sequence[object]]:
    states: tuple[Mapping[str, object], ...] = ({}, {"a": {"x": 1}}, {"a": {"x": 2}, "b": 3})
    ends = [
        FinalState(state, answer, gave_up)
        for state in states
        for answer in (None, "7", "8" * 200)
        for gave_up in (False, True)
    ]
    graders = (
        StateGrader({"a": {"x": 1}}), StateGrader({"a": {"x": 1}}, "7.0"), StateGrader({}, "7"),
        InfeasibleGrader(), InfeasibleGrader({"a": {"x": 1}}),
    )  # fmt: skip
    return {
        "differences": [
            [clipped(one) for one in differences(expected, actual, "at")]
            for expected, actual in itertools.product(VALUES, VALUES)
        ],
        "same": [
            f"{one!r} {other!r}"
            for one, other in itertools.combinations(ANSWERS, 2)
            if same_answer(one, other)
        ],
        "grades": [grader.grade(end) for grader in graders for end in ends],
    }


def carried_out() -> dict[str, Sequence[object]]:
    """What comes of replies, on a shop with a field and a button that leads elsewhere."""
    task = GuiTask("t", "f", "train", "Do.", "http://shop/", StateGrader({}))
    hover, click = GuiAction("hover", id=1), GuiAction("click", id=2)
    drag, typed = GuiAction("drag", to_id=1), GuiAction("type", id=1, text="a")
    replies: Mapping[str, Sequence[GuiAction | str]] = {
        "nothing": (),
        "all": (hover, typed),
        "another page": (typed, click, hover, typed),
        "another page at last": (typed, click),
        "missing": (hover, GuiAction("click", id=7), typed),
        "wrong": (typed, "got it wrong", typed, "wrong, too"),
        "only wrong": ("got it wrong",),
        "ended": (hover, GuiAction("answer", text="7"), typed),
        "no place to drag from": (drag, typed),
        "dragged from the mouse": (hover, drag, drag),
        "dragged on": (GuiAction("drag", x=1, y=2, to_x=3, to_y=4), drag),
        "dragged after keys": (GuiAction("hover", x=5, y=6), GuiAction("press", keys="a"), drag),
        "sixteen": (hover,) * 16,
        "seventeen": (hover,) * 17,
        "seventeen, the sixteenth wrong": (*(hover,) * 15, "got it wrong", hover),
    }
    said: dict[str, Sequence[object]] = {}
    for name, actions in replies.items():
        requested = [
            RequestedAction("no action", wrong=one)
            if isinstance(one, str)
            else RequestedAction(one.kind, one)
            for one in actions
        ]
        screen, mouse = FakeScreen(task, GuiEnvConfig()), MousePosition()
        execution = execute(requested, screen, mouse)
        said[name] = [
            execution.results, execution.messages, execution.failure, repr(execution.ending),
            [[one.action.kind, one.failed] for one in execution.attempts],
            [repr(action) for action in screen.acted if action.kind == "drag"], repr(mouse.at),
        ]  # fmt: skip
    return said


GROUPS: Mapping[str, Callable[[], Mapping[str, object]]] = {
    "rendered": rendered, "written": written, "found": found, "graded": graded,
    "carried out": carried_out,
}  # fmt: skip


@pytest.mark.parametrize("group", GROUPS)
def test_what_is_said_is_what_it_was(group: str) -> None:
    golden = json.loads(FILE.read_text("utf-8"))[group]
    now = json.loads(json.dumps(GROUPS[group]()))
    assert now.keys() == golden.keys()
    for name, content in now.items():
        assert content == golden[name], name


if __name__ == "__main__":
    contents = {group: now() for group, now in GROUPS.items()}
    FILE.write_text(json.dumps(contents, indent=0) + "\n", "utf-8")
