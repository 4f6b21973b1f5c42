"""Actions of an agent on a page: one schema, written as a call in text or as a tool call.

click(12)                    {"action": "click", "id": 12}
click(x=120, y=80)           {"action": "click", "x": 120, "y": 80}
type(3, "pens")              {"action": "type", "id": 3, "text": "pens"}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "click", "double_click", "triple_click", "right_click", "hover",  # id, or x and y
    "type",  # text; with id: the field's text is replaced; without: where the focus is
    "press",  # keys: "Enter", "Control+a"; with id: focused first
    "select",  # id, text: the option's label
    "scroll",  # direction, amount (pages); id, or x and y: what is scrolled
    "drag",  # from id or x and y to to_id or to_x and to_y
    "wait",  # seconds
    "goto", "back", "forward", "reload",
    "new_tab", "switch_tab", "close_tab",  # url; tab (from 1)
    "screenshot",  # look again; nothing is done
    "answer", "done", "give_up",  # text: what the task asked for; -; why
]  # fmt: skip
Direction = Literal["up", "down", "left", "right"]
ENDINGS = frozenset({"answer", "done", "give_up"})
"""Only these end a task; only "give_up" says that it cannot be done."""


@dataclass(frozen=True, slots=True)
class GuiAction:
    """One action; which fields count follows from its kind."""

    kind: Kind
    id: int | None = None
    x: float | None = None
    y: float | None = None
    """CSS pixels of the viewport."""
    to_id: int | None = None
    to_x: float | None = None
    to_y: float | None = None
    text: str = ""
    """type: what is typed; select: the option; goto and new_tab: the URL; answer, give_up."""
    keys: str = ""
    direction: Direction = "down"
    amount: float = 1.0
    """scroll: in heights of what is scrolled."""
    seconds: float = 1.0
    tab: int | None = None
