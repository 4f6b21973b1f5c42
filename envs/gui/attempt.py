"""Attempted actions on a page, for people who look at them later."""

from __future__ import annotations

from dataclasses import dataclass

from clawrl_gym.envs.gui.action import GuiAction
from clawrl_gym.envs.gui.observation import Element, View


@dataclass(frozen=True, slots=True)
class Attempt:
    """One action that was tried."""

    action: GuiAction
    failed: str = ""
    """Why it did nothing; empty when it was carried out."""


def element_of(number: int | None, view: View) -> Element | None:
    """The element with this number, when the page has it."""
    return next((one for one in view.elements if one.id == number), None)


def caption(attempt: Attempt, view: View) -> str:
    """The attempt in words, with names instead of numbers where the page gives them."""
    words = " ".join(
        part for part in (_verb(attempt.action), *_objects(attempt.action, view)) if part
    )
    return f"{words}: {attempt.failed}" if attempt.failed else words


def _verb(action: GuiAction) -> str:
    return action.kind.replace("_", " ")


def _objects(action: GuiAction, view: View) -> list[str]:
    """Words after the verb."""
    where = _place(action.id, action.x, action.y, view)
    text = f"“{action.text}”"
    match action.kind:
        case "type":
            return [text, f"into {where}" if where else ""]
        case "select":
            return [text, f"in {where}" if where else ""]
        case "press":
            return [action.keys, f"in {where}" if where else ""]
        case "scroll":
            return [action.direction, where if action.id is None else f"in {where}"]
        case "drag":
            end = _place(action.to_id, action.to_x, action.to_y, view)
            return [where.removeprefix("at "), "to", end.removeprefix("at ")]
        case "wait":
            return [f"{action.seconds:g} s"]
        case "goto" | "new_tab":
            return [action.text]
        case "switch_tab" | "close_tab":
            return ["" if action.tab is None else str(action.tab)]
        case "answer" | "give_up":
            return [text if action.text else ""]
    return [where]


def _place(number: int | None, x: float | None, y: float | None, view: View) -> str:
    if number is None:
        return "" if x is None or y is None else f"at {x:.0f}, {y:.0f}"
    element = element_of(number, view)
    name = element and (element.name or element.role)
    return f"“{name}”" if name else f"[{number}]"
