"""Replies become actions: lines of text, tool calls, other tools' names, and what is none."""

import json
import re
from dataclasses import fields
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawrl_gym.agents.tool_calls import Call, Reply
from clawrl_gym.envs.gui.action import GuiAction, Kind
from clawrl_gym.envs.gui.parse import CoordinateSpace, describe_missing_action, parse_reply
from clawrl_gym.envs.gui.schema import FORMS, in_words, tool
from clawrl_gym.envs.gui.text_calls import MAX_CALLS, format_action
from clawrl_gym.envs.toolcall.schema import arguments_of, check_tool

FRAME = CoordinateSpace(1024, 640, 1024, 640)
TOOL = tool(1024, 640)


def requested_in(text, frame=FRAME):
    return parse_reply(Reply(text), frame)


def actions(text, frame=FRAME):
    requested = requested_in(text, frame)
    assert [one.wrong for one in requested if one.action is None] == []
    return [one.action for one in requested]


def requested_by_call(frame=FRAME, name="computer", /, **arguments):
    [one] = parse_reply(Reply("", (Call("1", name, json.dumps(arguments)),)), frame)
    return one


def action_called(**arguments):
    one = requested_by_call(FRAME, "computer", **arguments)
    assert one.action is not None, one.wrong
    return one.action


CLICK = GuiAction("click", id=12)


@pytest.mark.parametrize(
    "text",
    [
        "click(12)", 'click("12")', "click([12])", "click('[12]')", "click(id=12)", "click 12",
        "click [12]", "CLICK(12)", " click( 12 ) ", "click(12,)", "click(12.0)", "`click(12)`",
        "- click(12)", "1. click(12)", "> click(12)", "Action: click(12)", "action: `click(12)`",
        "left_click(12)", "click(element=12)", "click(12) to buy it", "click(12)  # the button",
        "click(12);", "I buy it.\nclick(12)\nThat was it.", "```python\nclick(12)\n```",
        "<think>click(3)\n</think>click(12)", "click(3)\n</think>\nclick(12)",
        "Done with thinking\nclick(12)", 'mouse_click(bid="12")',
        '<tool_call>{"name": "computer", "arguments": {"action": "click", "id": 12}}</tool_call>',
        '<tool_call>\n{"name": "click", "arguments": {"id": 12}}\n</tool_call>',
        '<tool_call>\n```json\n{"name": "click", "arguments": "{\\"id\\": 12}"}\n```</tool_call>',
    ],
)  # fmt: skip
def test_a_click_is_understood_however_it_is_written(text):
    assert actions(text) == [CLICK]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("type(3, 'pens')", "pens"),
        ('type(3, "it\'s")', "it's"),
        ('type(3, "say \\"hi\\"")', 'say "hi"'),
        ('type(3, "C:\\data \\d+")', "C:\\data \\d+"),
        ('type(3, "a\\nb\\tc")', "a\nb\tc"),
        ('type(3, "Dear Kim,\nsee you\n\nBob")', "Dear Kim,\nsee you\n\nBob"),
        ('type(3, """a\n"b" c""")', 'a\n"b" c'),
        ('type(3, "\\u00e9 \\ud83d\\ude00")', "é 😀"),
        ("type(3, text='x')", "x"),
        ("type(id=3, value='x')", "x"),
        ('fill("3", "x")', "x"),
        ('type 3 "two words"', "two words"),
        ("type(3, hello)", "hello"),
        ("type(3, 007)", "007"),
        ("type(3, 1.50)", "1.50"),
        ('type(3, "")', ""),
        ('type(3, "click(4)\nclick(5)")', "click(4)\nclick(5)"),
        ('type(3, "a) b, c(")', "a) b, c("),
    ],
)
def test_what_is_typed_stays_as_it_was_written(text, expected):
    assert actions(text) == [GuiAction("type", id=3, text=expected)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("press Enter", GuiAction("press", keys="Enter")),
        ("press(ctrl+a)", GuiAction("press", keys="Control+a")),
        ('press(4, "Return")', GuiAction("press", id=4, keys="Enter")),
        ('press("+")', GuiAction("press", keys="+")),
        ('press("Control++")', GuiAction("press", keys="Control++")),
        ('press(" ")', GuiAction("press", keys="Space")),
        ('press("Page_Down")', GuiAction("press", keys="PageDown")),
        ('press("pgdown")', GuiAction("press", keys="PageDown")),
        ("press(ctrl-a)", GuiAction("press", keys="Control+a")),
        ('press("ctrl-shift-t")', GuiAction("press", keys="Control+Shift+t")),
        ("scroll down", GuiAction("scroll")),
        ("scroll(up)", GuiAction("scroll", direction="up")),
        ('scroll("down", 2)', GuiAction("scroll", amount=2)),
        ('scroll(4, "left")', GuiAction("scroll", id=4, direction="left")),
        ('scroll("down", x=1, y=2)', GuiAction("scroll", x=1, y=2)),
        ("scroll(4)", GuiAction("scroll", id=4)),
        ("click(3, 4)", GuiAction("click", x=3, y=4)),
        ("click(x=3, y=4.5)", GuiAction("click", x=3, y=4.5)),
        ("click([3, 4])", GuiAction("click", x=3, y=4)),
        ("drag(3, 4)", GuiAction("drag", id=3, to_id=4)),
        ("drag(1, 2, 3, 4)", GuiAction("drag", x=1, y=2, to_x=3, to_y=4)),
        ("drag(3, to_x=5, to_y=6)", GuiAction("drag", id=3, to_x=5, to_y=6)),
        ("wait", GuiAction("wait")),
        ("wait(seconds=2)", GuiAction("wait", seconds=2)),
        ("goto shop/item?a=1", GuiAction("goto", text="http://shop/item?a=1")),
        ("goto(localhost:8000/x)", GuiAction("goto", text="http://localhost:8000/x")),
        ('goto(url="https://a.b/c(d)")', GuiAction("goto", text="https://a.b/c(d)")),
        ("new_tab", GuiAction("new_tab")),
        ("switch_tab(2)", GuiAction("switch_tab", tab=2)),
        ("answer(Yes, it is)", GuiAction("answer", text="Yes, it is")),
        ("answer(42)", GuiAction("answer", text="42")),
        ('terminate("success")', GuiAction("done")),
        ("terminate(status='failure')", GuiAction("give_up")),
        ("give_up()", GuiAction("give_up")),
        ('give_up("no such item")', GuiAction("give_up", text="no such item")),
    ],
)
def test_every_other_action_is_read_too(text, expected):
    assert actions(text) == [expected]


def test_without_more_words_scrolling_goes_one_screen_down_and_waiting_lasts_a_second():
    (scroll,), (wait,) = actions("scroll()"), actions("wait")
    assert (scroll.direction, scroll.amount, wait.seconds) == ("down", 1.0, 1.0)


@pytest.mark.parametrize(
    "text",
    [
        "", "Done.", "I am done", "click the button", "wait for the page", "back to the shop",
        "click (see above)", "type in the name", "answer the question", "select the option",
        "We could click(3) here", "press on", "scroll down to the end", "<think>click(12)",
        "<think>\nclick(12)\n</think>", "print(3)", "the click(12", "open the page (Shop)",
    ],
)  # fmt: skip
def test_prose_is_no_action(text):
    assert requested_in(text) == ()


def test_json_that_the_model_merely_thinks_of_is_never_carried_out():
    """Defect 4.3 of the reference: any JSON of one line in the reasoning was executed."""
    form = '{"name": "computer", "arguments": {"action": "click", "id": 3}}'
    for text in (form, '{"action": "click", "id": 3}', f"so:\n{form}\n", f"<think>{form}</think>"):
        assert requested_in(text) == ()
    thinking = f"<think><tool_call>{form}</tool_call></think>"
    assert requested_in(thinking) == ()
    assert actions(f"{thinking}<tool_call>{form}</tool_call>") == [GuiAction("click", id=3)]


def test_several_actions_of_a_reply_keep_their_order():
    text = 'type(1, "a"); type(2, "b")\nI press it:\nclick(3) click(4)\n<tool_call>{"name": "done"}'
    *requested, last = requested_in(text)
    assert [one.source for one in requested] == [
        'type(1, "a")',
        'type(2, "b")',
        "click(3)",
        "click(4)",
    ]
    assert last.action is None
    assert "not closed" in last.wrong


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("click()", r"got click without id, expected click\(12\)"),
        ("click(button)", r"got id=button, expected a number of the page such as 12"),
        ("click(3.5)", r"got id=3.5"),
        ("click(True)", r"got id=True"),
        ("click(-1)", r"got id=-1"),
        ("click(99999999999999999999)", r"got id=9999"),
        ("click(12, text='x')", r"got text in click, expected click\(12\)"),
        ("click(id=1, x=2, y=3)", r"got id, x, y, expected id, or x and y"),
        ("click(x=2)", r"got x, expected id, or x and y"),
        ("click(1, 2, 3)", r"got 3 arguments, expected click\(12\)"),
        ("click(1, id=1)", r"got"),
        ("click(x=1500, y=3)", r"got x=1500, expected 0 to 1024"),
        ("click(x=nan, y=3)", r"got x=nan, expected a number"),
        ("click(", r"without its closing bracket"),
        ('type(3, "a', r'without its closing "'),
        ('type(3, "say "hi"")', r"expected one text in quotes"),
        ("type(3, {a})", r"expected a number, a word, or a text in quotes"),
        ("press(Hyper+x)", r"got keys=Hyper\+x, expected a key such as Enter"),
        ("press(a+b)", r"got keys="),
        ("select(3)", r"got 1 arguments, expected select\(4, "),
        ("scroll(sideways)", r"got direction=sideways, expected one of up, down, left, right"),
        ("scroll(down, 1000)", r"got amount=1000, expected more than 0 and at most 50"),
        ("wait(3600)", r"got seconds=3600, expected more than 0 and at most 10"),
        ("answer()", r'got answer without text, expected answer\("42"\)'),
        ("switch_tab()", r"got switch_tab without tab"),
        ("drag(3, x=1, y=2, to_id=4)", r"got id, x, y, expected id, or x and y"),
        ("click(id=1, id=2)", r"got id twice"),
    ],
)
def test_what_is_wrong_is_said_with_what_was_got_and_what_is_expected(text, wrong):
    [one] = requested_in(text)
    assert one.action is None
    assert re.search(wrong, one.wrong), one.wrong


@pytest.mark.parametrize("char", ["\x00", "\x03", "\x1b", "\x7f", "\x85", "\x0b"])
def test_control_characters_are_refused_and_line_breaks_are_typed(char):
    """Defect 4.3 of the reference: control characters in typed text made broken programs of it."""
    one = requested_by_call(action="type", id=3, text=f"a{char}b")
    assert one.action is None
    assert "control character" in one.wrong
    assert action_called(action="type", id=3, text="a\r\nb\tc\rd").text == "a\nb\tc\nd"


def test_text_that_would_be_a_program_elsewhere_is_only_text():
    """Defect 4.3 of the reference: texts and keys were put into Python that was then executed."""
    evil = "'); import os; os.system('id') #"
    assert action_called(action="type", id=3, text=evil).text == evil
    assert requested_by_call(action="press", keys=evil).action is None
    assert requested_by_call(action="click", id="__import__('os')").action is None


def test_half_a_character_is_refused():
    assert "not valid Unicode" in requested_in('type(3, "\\ud83d")')[0].wrong
    assert requested_by_call(action="type", text="\ud83d").action is None


def test_thousandths_count_to_a_thousand():
    """Defect 4.3 of the reference: coordinates of 0 to 1000 were scaled by 999."""
    frame = CoordinateSpace(1920, 1080, 1000, 1000)
    [middle] = actions("click(x=500, y=500)", frame)
    assert (middle.x, middle.y) == (960, 540)
    [first] = actions("click(x=0, y=0)", frame)
    assert (first.x, first.y) == (0, 0)
    [last] = actions("click(x=1000, y=1000)", frame)
    assert (last.x, last.y) == (1919, 1079)
    assert "expected 0 to 1000" in requested_in("click(x=1001, y=0)", frame)[0].wrong


def test_pixels_of_a_picture_become_css_pixels():
    [action] = actions("click(x=300, y=200)", CoordinateSpace(160, 210, 320, 420))
    assert (action.x, action.y) == (150, 100)


POINT = {"coordinate": [30, 40]}
ALIASES = [
    ({"action": "left_click", **POINT}, GuiAction("click", x=30, y=40)),
    (
        {"action": "click", "x": 30, "y": 40, "button": "right"},
        GuiAction("right_click", x=30, y=40),
    ),
    ({"action": "click", "x": 30, "y": 40, "button": "left"}, GuiAction("click", x=30, y=40)),
    ({"action": "right_click", **POINT}, GuiAction("right_click", x=30, y=40)),
    ({"action": "double_click", **POINT}, GuiAction("double_click", x=30, y=40)),
    ({"action": "triple_click", **POINT}, GuiAction("triple_click", x=30, y=40)),
    ({"action": "mouse_move", **POINT}, GuiAction("hover", x=30, y=40)),
    ({"action": "key", "keys": ["ctrl", "c"]}, GuiAction("press", keys="Control+c")),
    ({"action": "key", "text": "ctrl+c"}, GuiAction("press", keys="Control+c")),
    ({"action": "keypress", "keys": ["ENTER"]}, GuiAction("press", keys="Enter")),
    ({"action": "wait", "time": 3}, GuiAction("wait", seconds=3)),
    ({"action": "wait", "duration": 3}, GuiAction("wait", seconds=3)),
    ({"action": "scroll", "pixels": -320}, GuiAction("scroll", direction="down", amount=0.5)),
    ({"action": "scroll", "pixels": 320}, GuiAction("scroll", direction="up", amount=0.5)),
    ({"action": "hscroll", "pixels": 320}, GuiAction("scroll", direction="right", amount=0.5)),
    (
        {"action": "scroll", **POINT, "scroll_direction": "down", "scroll_amount": 3.2},
        GuiAction("scroll", x=30, y=40, amount=0.5),
    ),
    (
        {"action": "scroll", "x": 30, "y": 40, "scroll_x": 0, "scroll_y": 640},
        GuiAction("scroll", x=30, y=40, amount=1.0),
    ),
    (
        {"action": "left_click_drag", "start_coordinate": [1, 2], **POINT},
        GuiAction("drag", x=1, y=2, to_x=30, to_y=40),
    ),
    ({"action": "left_click_drag", **POINT}, GuiAction("drag", to_x=30, to_y=40)),
    (
        {"action": "drag", "path": [{"x": 1, "y": 2}, {"x": 9, "y": 9}, {"x": 3, "y": 4}]},
        GuiAction("drag", x=1, y=2, to_x=3, to_y=4),
    ),
    ({"action": "terminate", "status": "success"}, GuiAction("done")),
    ({"action": "terminate", "status": "failure"}, GuiAction("give_up")),
    ({"action": "answer", "text": "7"}, GuiAction("answer", text="7")),
    ({"action": "answer", "text": 7}, GuiAction("answer", text="7")),
    ({"action": "answer", "text": 7.5}, GuiAction("answer", text="7.5")),
    ({"action": "click", "id": 3, "text": None, "keys": ""}, GuiAction("click", id=3)),
]


@pytest.mark.parametrize(("arguments", "expected"), ALIASES)
def test_actions_of_other_computer_tools_mean_ours(arguments, expected):
    """Defect 4.3 of the reference: triple_click and hscroll did nothing, wait.time was ignored."""
    assert action_called(**arguments) == expected


@pytest.mark.parametrize(
    "name", ["middle_click", "left_mouse_down", "cursor_position", "", 3, None]
)
def test_an_action_that_we_have_not_is_answered_with_those_that_we_have(name):
    wrong = requested_by_call(action=name).wrong
    assert "expected one of: click, double_click" in wrong


@pytest.mark.parametrize(
    ("name", "arguments", "wrong"),
    [
        ("computer", "{", "not JSON"),
        ("computer", "[]", "no JSON object"),
        ("computer", '{"action": "done", "action": "give_up"}', "given twice"),
        ("computer", '{"action": "wait", "seconds": NaN}', "not a JSON number"),
        ("computer", "[" * 100_000, "not JSON"),
        ("shell", '{"action": "click", "id": 3}', "got the tool 'shell', expected 'computer'"),
        ("shell", "{}", "got the tool 'shell'"),
    ],
)
def test_a_call_that_is_none_is_answered(name, arguments, wrong):
    [one] = parse_reply(Reply("", (Call("1", name, arguments),)), FRAME)
    assert one.action is None
    assert wrong in one.wrong


def test_a_reply_without_actions_is_told_what_they_are():
    assert describe_missing_action(Reply("hello")).startswith(
        "got no action, expected one a line, such as"
    )
    assert describe_missing_action(Reply("clik(3)")).startswith("got clik(), which is no action")


ONE_OF_EACH = [
    *(GuiAction(kind, id=3) for kind in ("click", "double_click", "triple_click", "right_click")),
    GuiAction("hover", id=3), GuiAction("hover", x=1, y=2),
    GuiAction("type", id=3, text='a "b"\n\\c'), GuiAction("type", text="x"),
    GuiAction("press", keys="Control+a"), GuiAction("press", id=3, keys="+"),
    GuiAction("select", id=3, text="Blue, or green"),
    GuiAction("scroll", direction="up", amount=2), GuiAction("scroll", x=1, y=2),
    GuiAction("drag", id=3, to_id=4), GuiAction("drag", x=1, y=2, to_id=4),
    GuiAction("wait", seconds=2), GuiAction("goto", text="http://shop/"), GuiAction("back"),
    GuiAction("forward"), GuiAction("reload"), GuiAction("new_tab"),
    GuiAction("new_tab", text="http://a/"),
    GuiAction("switch_tab", tab=2), GuiAction("close_tab"), GuiAction("close_tab", tab=1),
    GuiAction("screenshot"), GuiAction("answer", text="4,5"), GuiAction("done"),
    GuiAction("give_up"),
    GuiAction("give_up", text="why not"),
]  # fmt: skip


@pytest.mark.parametrize("action", ONE_OF_EACH)
def test_an_action_is_written_so_that_it_is_read_again(action):
    assert actions(format_action(action)) == [action]


def test_the_advertised_actions_are_exactly_those_that_work():
    """Defect 4.3 of the reference: it advertised actions that nothing handled."""
    action_names = TOOL["function"]["parameters"]["properties"]["action"]["enum"]
    assert sorted(action_names) == sorted(get_args(Kind)) == sorted(FORMS)
    assert {action.kind for action in ONE_OF_EACH} == set(action_names)
    for form in FORMS.values():
        assert len(actions(form.example)) == 1
        assert form.example in in_words(TOOL)


@pytest.mark.parametrize("action", ONE_OF_EACH)
def test_a_call_by_the_schema_works(action):
    form = FORMS[action.kind]
    plain = {one.name: one.default for one in fields(GuiAction) if one.name != "kind"}
    changed_fields = {n: getattr(action, n) for n in form.fields if getattr(action, n) != plain[n]}
    arguments = {"action": action.kind, **changed_fields}
    assert arguments_of(json.dumps(arguments), TOOL) == arguments
    assert action_called(**arguments) == action


def test_the_schema_is_one_and_every_field_is_described():
    check_tool(TOOL)
    properties = TOOL["function"]["parameters"]["properties"]
    assert set(properties) - {"action"} == {n for form in FORMS.values() for n in form.fields}
    assert all(described["description"] for described in properties.values())
    assert "0 to 1024" in properties["x"]["description"]
    words = in_words(tool(1000, 1000, thousandths=True))
    assert "thousandths of the width, 0 to 1000" in words


@settings(deadline=None, max_examples=300)
@given(st.text(alphabet=st.sampled_from("clickdone(),=\"'[]{}\\`<>/ \n12.-_;:typ"), max_size=80))
def test_no_text_breaks_the_reader(text):
    for one in requested_in(text):
        assert (one.action is None) == bool(one.wrong)


@settings(deadline=None, max_examples=200)
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["action", "id", "x", "y", "text", "keys"]), inner)
        ),
        max_leaves=8,
    )
)
def test_no_arguments_break_the_reader(arguments):
    [one] = parse_reply(Reply("", (Call("1", "computer", json.dumps(arguments)),)), FRAME)
    assert (one.action is None) == bool(one.wrong)


@settings(deadline=None)
@given(st.text(max_size=40).map(lambda text: text.replace("\r", "")))
def test_any_text_that_can_be_typed_survives_being_written(text):
    action = GuiAction("type", id=3, text=text)
    [one] = requested_in(format_action(action))
    assert one.action == action or "control character" in one.wrong or "Unicode" in one.wrong


@pytest.mark.parametrize(
    "piece", ["click(\n", "click('\n", "<tool_call>", "click([", "`", "<think>"]
)
def test_of_a_reply_made_to_cost_time_only_so_much_is_read(piece):
    assert len(requested_in(piece * (200_000 // len(piece)))) <= MAX_CALLS


@pytest.mark.parametrize("name", ["[]", "{}", "3", "null"])
def test_a_tool_whose_name_is_no_text_is_told_to_the_model(name: str) -> None:
    [action] = requested_in(f'<tool_call>{{"name": {name}, "arguments": {{}}}}</tool_call>')
    assert action.action is None
    assert action.wrong.startswith("got the tool ")


@pytest.mark.parametrize("text", [True, [7], {"a": 7}])
def test_what_is_neither_text_nor_a_number_is_not_typed(text):
    assert "expected a text" in requested_by_call(action="answer", text=text).wrong
