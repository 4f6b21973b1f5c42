"""What replies ask for, in all the ways in which they are written: as it was, word for word.

`python -m tests.project.test_golden_replies` writes it anew; look at what changed before it is
kept. Odd replies are kept in full, the many ways to write the arguments of a name as a digest for
each name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.agents.tool_calls import Call, Reply
from clawrl_gym.envs.gui.action import GuiAction
from clawrl_gym.envs.gui.aliases import NAMES
from clawrl_gym.envs.gui.keys import UnknownKey, parse_keys
from clawrl_gym.envs.gui.parse import (
    MAX_TEXT_CHARS,
    CoordinateSpace,
    describe_missing_action,
    parse_reply,
)
from clawrl_gym.envs.gui.schema import in_words, tool
from clawrl_gym.envs.gui.text_calls import MAX_CHARS, format_action

FILE = Path(__file__).parents[1] / "fixtures" / "golden" / "replies.json"
FRAME = CoordinateSpace(1024, 640, 2048, 640)

ARGUMENTS = (
    "", "()", "(,)", "(12)", "('12')", "(12, 7)", "(1, 2, 3)", "(1, 2, 3, 4)", "(1, 2, 3, 4, 5)",
    '("down")', "(UP, 2)", '(3, "up")', '(3, "up", 2)', '(10, 20, "left")', '(10, 20, "left", 3)',
    "(x=10, y=20)", "(x=10)", "(to_x=1, to_y=2)", "(to_x=1)", "(id=3, x=1, y=2)", "(ID=3)",
    "(id=3, to_id=4)", "(3, to_x=5, to_y=6)", "(x=1, y=2, to_id=3)", "(to_id=4, to_x=1, to_y=2)",
    "([10, 20])", "((10, 20))", "([7])", "([1, 2, 3])", "(coordinate=[10, 20])", "([[1, 2]])",
    '("a text")', '(3, "a text")', '(text="a")', '(3, "")', '(3, text="")', '("")', "(a, b)",
    "(3, a, b)", "(a text of words)", '("a", b)', '("Enter")', '(3, "ctrl+a")', '(keys="x")',
    '("3", "4")', "(2.5)", "(0)", "(10)", "(10.5)", "(50)", "(51)", "(-1)", "(3, foo=1)",
    "(3, id=3)", '("success")', '("FAILURE")', '(status="failure")', '("failure", 3)',
    "(http://a/b)", "(a.b:80/c)", "(//a/b)", "(mailto:a@b)", "(element=3)", '(3, value="x")',
    "(x=2048, y=640)", "(x=2049, y=1)", "(x=1, y=641)", "(x=-1, y=1)", "(True)", "(1e400)", "(3",
    '(3, "a', "(3, {a})", "(3, <a>)", "(3, )", "(id=1, id=2)", "(a=1, a=2)", "(3 == 4)",
    " 12", " 3 4", ' 3 "pens"', ' 3, "pens"', " Enter", " down", " down 2", ' "quoted"', " a b",
    " [12]", " 12.", " 1.5", " 'it", " `12`", "`", " x=1", " (12)", " (see above)", "  ",
)  # fmt: skip
"""Behind a name."""

CALLED: tuple[dict[str, object], ...] = (
    {}, {"id": 3}, {"id": "3"}, {"id": 3.0}, {"id": [3]}, {"id": [3, 4]}, {"id": True},
    {"id": "[ 12.00 ]"}, {"id": 10**9}, {"id": 3, "text": "a"}, {"text": "a"}, {"text": ""},
    {"text": 3}, {"text": 2.5}, {"text": False}, {"text": ["a"]}, {"id": 3, "keys": "Enter"},
    {"keys": ["ctrl", "a"]}, {"keys": 7}, {"keys": None}, {"keys": {}}, {"keys": ""},
    {"x": 10, "y": 20}, {"x": "10", "y": "2.5"}, {"x": None, "y": 1}, {"x": [1], "y": 2},
    {"x": "far", "y": 2}, {"x": True, "y": 2}, {"coordinate": [1, 2]}, {"coordinate": [1]},
    {"start_coordinate": [1, 2], "end_coordinate": [3, 4]}, {"id": 1, "to_id": 2},
    {"path": [[1, 2], [3, 4]]}, {"direction": "LEFT", "amount": "2"}, {"direction": "in"},
    {"direction": 3}, {"amount": 0}, {"amount": 50}, {"amount": 50.5}, {"amount": "much"},
    {"seconds": 10}, {"seconds": 11}, {"seconds": "1e999"}, {"seconds": "nan"}, {"tab": 2},
    {"tab": "first"}, {"tab": 2.5}, {"button": "right", "id": 3}, {"status": "failure"},
    {"status": "success", "text": "b"}, {"scroll_amount": 3}, {"pixels": -64}, {"scroll_y": 64},
    {"options": ["red"], "id": 3}, {"unheard_of_" * 9: 1}, {"url": " example.org "},
)  # fmt: skip
"""The arguments of a tool call, beside the action."""

LONG = "a" * (MAX_TEXT_CHARS + 1)
ODD = (
    "", "no action", "clik(3)", "clik(3)\nclik(4)\nclack(5)\nclick (see)", "`print(1)`;",
    "click(1)click(2)", "click(1);click(2)", "click(1), click(2)", "click(1) and click(2)",
    "click(1); `type(2, \"a\")`", "click(1) ; click (2)", "click(1); nothing(2)", "a click(1)",
    "click(1\nclick(2)", "click(1\nclick(2", "click(1); click(2\nclick(3)", "click (1\nclick(2)",
    "click (1), click(2)", "click (1), click(", "click (a b), click(2)", "CLICK(1); Click(2)",
    "12. click(1)", "123. click(1)", "> * - click(1)", "+ click 1", "\taction : click(1)",
    "Action: `click 1`", "action:click(1)", "**click(1)**", "1) click(1)", "actions: click(1)",
    "click(1)\r\nclick(2)", "clicks(1)", "click_(1)", "scroll", "scroll up", "wait 2", "wait up",
    "press ctrl+a", "press a b", "key Return", "goto a.b", "goto a b", "navigate a.b", "back",
    "back 1", "back()", "back(1)", "new_tab a.b", "done", "done.", "done!", "answer 42",
    'answer "42"', 'answer "a" "b"', "answer 42 43", "answer yes", "answer(Yes, it is)",
    'answer("Yes", it is)', "answer(a=1)", "answer(1, 2)", "fill(Yes, it is)", "answer([a, b])",
    "answer(it's, isn't it)", "answer('it's')", "answer(\"a\\\"b\")", 'answer("""a"b""")',
    "answer('''a'b''')", "answer(`a`)", 'answer("a" "b")', 'answer("a" + "b")', "answer('')",
    r'answer("\u00e9\x41\n\r\t\b\f\\\/\'\q\u12")', r'answer("\ud83d\ude00")',
    r'answer("\ud83d")', r'answer("\x1b")', 'answer("a\\', 'answer("a\\"', r"answer(a\nb)",
    'answer("a\x00b")', "answer(a\nb)", "answer({a})", "answer(f(1, 2), [3, (4)])", "answer(])",
    "answer((1, 2)", "answer([1, 2)", "answer([1, [2, 3], 'a, b'])", "answer(a, )", "answer(, a)",
    "answer(,)", "answer(text=a, text=b)", "answer(text = 'a' )", "answer(text='a', )",
    "answer(text=)", "answer(text==a)", "answer(a=b)", "answer( a  b )", f"answer({'b ' * 60})",
    f"answer({'a' * 81})", f"answer({'a' * 72})", f"answer({'a' * 73})", f"click({'7' * 90})",
    f"answer({LONG})", f"answer({LONG[1:]})", f'answer("{"a" * MAX_CHARS}")',
    f"answer({'a' * MAX_CHARS})", "click(1)\n" * 70, "click 1\n" * 70,
    "<think>click(1)</think>click(2)", "<think>click(1)", "a</think>b</think>click(1)",
    "click(1)<think>click(2)</think>click(3)", "click(1)</think>", "click(1)<think>\nclick(2)",
    "<think></think>clak(1)", "<think>clak(1)</think>",
    "<tool_call>", "<tool_call>{}", "<tool_call>{}</tool_call>", "<tool_call></tool_call>",
    "a<tool_call>" + "b" * 100, "<TOOL_CALL>{}</TOOL_CALL>", "<tool_call>[]</tool_call>",
    '<tool_call>{"name": "click"}</tool_call>', '<tool_call>{"name": "back"}</tool_call>',
    '<tool_call>{"name": "click", "arguments": {"id": 3}}</tool_call>click(4)',
    '<tool_call>{"name": "CLICK", "parameters": {"id": 3}}</tool_call> click(4)',
    '<tool_call>{"name": "click", "arguments": {"id": 3}, "parameters": {"id": 4}}</tool_call>',
    '<tool_call>{"name": "click", "arguments": [3]}</tool_call>\nclick(4)',
    '<tool_call>{"name": "click", "arguments": "{\\"id\\": 3}"}</tool_call>',
    '<tool_call>{"name": "click", "arguments": "3"}</tool_call>',
    '<tool_call>{"name": "click", "arguments": {"action": "hover", "id": 3}}</tool_call>',
    '<tool_call>{"name": "computer_use", "arguments": {"action": "hover", "id": 3}}</tool_call>',
    '<tool_call>{"name": "computer", "arguments": {"id": 3}}</tool_call>',
    '<tool_call>{"name": "fly", "arguments": {"id": 3}}</tool_call>',
    '<tool_call>{"arguments": {"action": "back"}}</tool_call>',
    '<tool_call>```json\n{"name": "back"}\n```</tool_call>',
    '<tool_call>```{"name": "back"}```</tool_call>',
    "click([1, 2], coordinate=[3, 4])", 'terminate("success", status="failure")',
    '<tool_call>{"name": "back"}</tool_call><tool_call>{"name": "done"}</tool_call>',
)  # fmt: skip

ACTIONS = (
    GuiAction("click"), GuiAction("click", id=0), GuiAction("click", x=0, y=0.5),
    GuiAction("hover", id=1, x=2, y=3), GuiAction("type", text="é\n"), GuiAction("type", id=2),
    GuiAction("press", keys="“"), GuiAction("press", id=2, keys="a"), GuiAction("select", id=1),
    GuiAction("scroll"), GuiAction("scroll", id=1, direction="up", amount=0.25),
    GuiAction("scroll", x=1, y=2, amount=2), GuiAction("drag", id=1, to_id=2), GuiAction("drag"),
    GuiAction("drag", id=1, to_x=3, to_y=4), GuiAction("drag", x=1, y=2, to_id=3),
    GuiAction("drag", to_id=3), GuiAction("wait", seconds=2.5), GuiAction("goto", text="a"),
    GuiAction("new_tab"), GuiAction("new_tab", text="a"), GuiAction("switch_tab"),
    GuiAction("switch_tab", tab=0), GuiAction("close_tab", tab=3), GuiAction("answer"),
    GuiAction("give_up"), GuiAction("give_up", text="a"), GuiAction("done", text="a"),
    GuiAction("back"), GuiAction("screenshot"),
)  # fmt: skip

KEYS = (
    "", " ", "  ", "a", "A", "é", "+", "++", "a+", "Control++", "Control + +", "ctrl+a", "ctrl-a",
    "CTRL + Shift + Tab", "ctrl-shift-a", "a-b", "-", "ctrl-", "-a", "Page_Up", "page down",
    "F1", "f12", "F13", "f0", "Return", "Enter+a", "a+b", "ctrl", "ctrl+shift", "cmd+ctrl+a",
    "minus", "ctrl+minus", "ctrl+plus", "spacebar", "hyper", "\x07", "ab", "ctrl+\t", "ctrl+ ",
    "ctrl++a", "+a", "option-left", "ctrl-alt-del", "x" * 70,
)  # fmt: skip


def requested(reply: Reply) -> list[str]:
    """Each thing that the reply asks for, as a line; or what it is told."""
    found = parse_reply(reply, FRAME)
    said = [
        f"{one.source} => {one.wrong if one.action is None else in_short(one.action)}"
        for one in found
    ]
    return said or [describe_missing_action(reply)]


def in_short(action: GuiAction) -> str:
    """Its kind, and what is not as it is unless something else is said."""
    given = {one.name: getattr(action, one.name) for one in fields(action)}
    usual = {one.name: one.default for one in fields(action)}
    changed = {name: value for name, value in given.items() if value != usual[name]}
    return " ".join(f"{name}={value!r}" for name, value in changed.items())


def in_text(text: str) -> list[str]:
    lines = requested(Reply(text))
    shown = [line if len(line) < 300 else f"{line[:90]}... {digest([line])}" for line in lines]
    return shown if len(shown) < 9 else [*shown[:2], f"{len(shown)} actions"]


def called(name: str) -> Iterable[list[str]]:
    """What calls of the tool, and of one with the action's own name, ask for."""
    for arguments in CALLED:
        calls = (
            Call("1", "computer", json.dumps({"action": name, **arguments})),
            Call("2", name, json.dumps(arguments)),
        )
        yield requested(Reply("click(1)", calls))


def digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def written(name: str) -> dict[str, str]:
    """Digests of all that is written with a name."""
    return {
        "in text": digest([in_text(f"{name}{arguments}") for arguments in ARGUMENTS]),
        "called": digest(list(called(name))),
    }


def keys_of(text: str) -> str:
    try:
        return " ".join(parse_keys(text))
    except UnknownKey as error:
        return f"refused: {error}"


def tools() -> list[str]:
    return [digest(tool(640, 480)), digest(tool(640, 480, True)), in_words(tool(640, 480, True))]


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    return dict(json.loads(FILE.read_text("utf-8")))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_with_a_name_asks_for_what_it_did(
    name: str, golden: dict[str, Any]
) -> None:
    assert written(name) == golden["names"][name]


def test_odd_replies_ask_for_what_they_did(golden: dict[str, Any]) -> None:
    assert [in_text(text) for text in ODD] == golden["odd"]


def test_actions_are_written_as_they_were(golden: dict[str, Any]) -> None:
    assert [format_action(action) for action in ACTIONS] == golden["actions"]


def test_keys_have_the_names_that_they_had(golden: dict[str, Any]) -> None:
    assert [keys_of(text) for text in KEYS] == golden["keys"]


def test_the_tool_is_said_to_a_model_as_it_was(golden: dict[str, Any]) -> None:
    assert tools() == golden["tools"]


if __name__ == "__main__":
    contents = {
        "names": {name: written(name) for name in NAMES},
        "odd": [in_text(text) for text in ODD],
        "actions": [format_action(action) for action in ACTIONS],
        "keys": [keys_of(text) for text in KEYS],
        "tools": tools(),
    }
    FILE.write_text(json.dumps(contents, indent=1) + "\n", "utf-8")
