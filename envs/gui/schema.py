"""The actions as a model learns of them: one tool, or the same in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import get_args

from clawrl_gym.core.types import Tool
from clawrl_gym.envs.gui.action import Direction

TOOL = "computer"
MAX_ACTIONS = 16
"""Most actions of one reply."""
POINT, TO = ("id", "x", "y"), ("to_id", "to_x", "to_y")
"""A place: an element's number, or two coordinates."""


@dataclass(frozen=True, slots=True)
class Form:
    """Written form of an action: its orders of arguments, the usual one first."""

    orders: tuple[tuple[str, ...], ...]
    says: str
    example: str
    needs: tuple[str, ...] = ()
    """Fields that must be given; "id" and "to_id" stand for any way to name a place."""

    @property
    def fields(self) -> frozenset[str]:
        """All that may be given."""
        return frozenset(name for order in self.orders for name in order)


def _pointing(kind: str, says: str) -> Form:
    return Form((("id",), ("x", "y")), says, f"{kind}(12)", ("id",))


FORMS: Mapping[str, Form] = MappingProxyType({
    "click": _pointing("click", "click an element"),
    "double_click": _pointing("double_click", "click twice"),
    "triple_click": _pointing("triple_click", "click three times: selects a line"),
    "right_click": _pointing("right_click", "click with the right button"),
    "hover": _pointing("hover", "move the mouse there"),
    "type": Form(
        (("id", "text"), ("text",)),
        "write text into a field in place of what it holds; without id: where the focus is",
        'type(3, "pens")', ("text",),
    ),
    "press": Form(
        (("keys",), ("id", "keys")),
        "press a key or a combination, on an element when id is given",
        'press("Control+a")', ("keys",),
    ),
    "select": Form(
        (("id", "text"),), "choose an option by its label", 'select(4, "Blue")', ("id", "text"),
    ),
    "scroll": Form(
        (
            ("direction",), ("direction", "amount"), ("id", "direction"), ("id",), ("x", "y"),
            ("id", "direction", "amount"), ("x", "y", "direction"),
            ("x", "y", "direction", "amount"),
        ),
        "scroll the page, or what is at id; amount is in heights of what is seen",
        'scroll("down")',
    ),
    "drag": Form(
        (
            ("id", "to_id"), ("x", "y", "to_x", "to_y"), ("id", "to_x", "to_y"),
            ("x", "y", "to_id"), ("to_id",), ("to_x", "to_y"),
        ),
        "drag one place to another; without the first: from where the mouse is",
        "drag(5, 9)", ("to_id",),
    ),
    "wait": Form((("seconds",),), "wait some seconds", "wait(1)"),
    "goto": Form((("text",),), "open a URL", 'goto("http://shop/")', ("text",)),
    "back": Form(((),), "go back to the page before", "back()"),
    "forward": Form(((),), "go forward again", "forward()"),
    "reload": Form(((),), "load the page again", "reload()"),
    "new_tab": Form((("text",), ()), "open a tab, with a URL if given", "new_tab()"),
    "switch_tab": Form((("tab",),), "go to a tab by its number", "switch_tab(2)", ("tab",)),
    "close_tab": Form((("tab",), ()), "close this tab, or one by its number", "close_tab()"),
    "screenshot": Form(((),), "only look again", "screenshot()"),
    "answer": Form(
        (("text",),), "end the task with the answer it asks for", 'answer("42")', ("text",),
    ),
    "done": Form(((),), "end the task: all is done", "done()"),
    "give_up": Form(
        (("text",), ()), "end the task: it cannot be done", 'give_up("there is no such item")',
    ),
})  # fmt: skip
"""All actions that there are: nothing else is offered, and all of these work."""

_TEXTS = (
    "type: what is typed; select: the option's label; goto, new_tab: the URL; answer: the answer; "
    "give_up: why"
)


def tool(width: int, height: int, thousandths: bool = False) -> Tool:
    """The tool in OpenAI's form, for a page of this size in CSS pixels."""
    across = "thousandths of the width, 0 to 1000" if thousandths else f"pixels, 0 to {width}"
    down = "thousandths of the height, 0 to 1000" if thousandths else f"pixels, 0 to {height}"
    actions = "; ".join(f"{kind}: {form.says}" for kind, form in FORMS.items())
    properties: dict[str, object] = {
        "action": {"type": "string", "enum": list(FORMS), "description": actions},
        "id": _field("integer", "number of the element that is acted on, as the page shows it"),
        "x": _field("number", f"instead of id: from the left edge in {across}"),
        "y": _field("number", f"instead of id: from the upper edge in {down}"),
        "to_id": _field("integer", "drag: number of the element where it ends"),
        "to_x": _field("number", "drag: instead of to_id, like x"),
        "to_y": _field("number", "drag: instead of to_id, like y"),
        "text": _field("string", _TEXTS),
        "keys": _field("string", "press: a key such as Enter, or a combination as Control+a"),
        "direction": {
            "type": "string", "enum": list(get_args(Direction)),
            "description": "scroll: where to; down unless given",
        },
        "amount": _field("number", "scroll: how far, in heights of what is seen; 1 unless given"),
        "seconds": _field("number", "wait: how long; 1 unless given"),
        "tab": _field("integer", "switch_tab, close_tab: number of the tab, from 1"),
    }  # fmt: skip
    return {
        "type": "function",
        "function": {
            "name": TOOL,
            "description": "Act on the web page that is seen; the page comes back as it is then.",
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": ["action"],
                "additionalProperties": False,
            },
        },
    }


def in_words(tool: Tool) -> str:
    """The same tool as instructions for a model that acts by writing lines of text."""
    properties = tool["function"]["parameters"]["properties"]
    lines = [f"{FORMS[kind].example}: {FORMS[kind].says}" for kind in properties["action"]["enum"]]
    return (
        "Act by writing actions, one a line:\n" + "\n".join(lines) + "\n"
        "Numbers name the elements of the page, [12] is 12. A place may also be given as x=, y= "
        f"(x {properties['x']['description'].partition(': ')[2]}; "
        f"y {properties['y']['description'].partition(': ')[2]}), and where a drag ends as to_x=, "
        f"to_y=. At most {MAX_ACTIONS} actions a reply are carried out, in order, up to the first "
        "that fails or opens another page; then the page comes back as it is."
    )


def _field(kind: str, says: str) -> dict[str, str]:
    return {"type": kind, "description": says}
