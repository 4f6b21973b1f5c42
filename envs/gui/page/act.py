"""Carry out one action on a page with trusted input: mouse, keyboard, options, scrolling.

What the page does not allow is reported in words, for the model; only a page that hangs or is gone
raises.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, TypedDict

from clawrl_gym.envs.gui.action import GuiAction
from clawrl_gym.envs.gui.keys import UnknownKey, parse_keys
from clawrl_gym.envs.gui.page.idle import wait_until_idle
from clawrl_gym.envs.gui.page.tab import DocumentLeft, PageHangs, Tab

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Point = tuple[float, float]
_DRAG_MOVES = 10
_MOST_KEYS = 20
"""Characters that are typed key by key: the last ones; what precedes them is put in at once."""


class ScriptOutcome(TypedDict, total=False):
    """Answer of one of our scripts."""

    why: str
    """Reason why it cannot be done."""
    x: float
    y: float
    how: str
    """State of a field: "set" when its value is set already, else it is typed into."""
    lines: bool
    """The field takes several lines."""
    empty: bool


class MouseEvent(TypedDict):
    """Parameters of CDP's `Input.dispatchMouseEvent`."""

    type: str
    x: float
    y: float
    button: str
    clickCount: int
    buttons: int


class ActionRefused(Exception):
    """Why an action cannot be done, in words for the model."""


async def carry_out(tab: Tab, action: GuiAction, timeout_s: float) -> str | None:
    """Do it and wait for what it has begun. None when it was done, else why not."""
    handler = _HANDLERS.get(action.kind)
    if handler is None:
        return f"{action.kind} is not done on a page"
    tab.begin()
    try:
        async with asyncio.timeout(timeout_s) as limit:
            await handler(tab, action, timeout_s)
            left_s = max(0.1, (limit.when() or 0.0) - asyncio.get_running_loop().time())
            await wait_until_idle(tab, left_s)
    except ActionRefused as reason:
        return str(reason)
    except DocumentLeft:
        return "the page went away before it could be done"
    except TimeoutError:
        raise PageHangs(f"the page does not answer within {timeout_s:g} s") from None
    return None


# -- mouse ---------------------------------------------------------------------------------------
async def _point(tab: Tab, action: GuiAction, doing: str, timeout_s: float) -> Point:
    return await _place(tab, action.id, action.x, action.y, doing, timeout_s)


async def _place(
    tab: Tab, id: int | None, x: float | None, y: float | None, doing: str, timeout_s: float
) -> Point:
    if id is not None:
        place = await _query(tab, timeout_s, "locate", id, doing)
        return place["x"], place["y"]
    if x is None or y is None or not (math.isfinite(x) and math.isfinite(y)):
        raise ActionRefused("say where: the number of an element, or x and y")
    await _query(tab, timeout_s, "place", x, y)
    return x, y


async def _query(tab: Tab, timeout_s: float, name: str, *args: object) -> ScriptOutcome:
    outcome: ScriptOutcome = await tab.query(name, *args, timeout_s=timeout_s)
    if "why" in outcome:
        raise ActionRefused(outcome["why"])
    return outcome


def _mouse(
    kind: str, at: Point, button: str = "none", count: int = 0, buttons: int = 0
) -> MouseEvent:
    return {
        "type": kind,
        "x": at[0],
        "y": at[1],
        "button": button,
        "clickCount": count,
        "buttons": buttons,
    }


def _clicker(
    times: int, button: str = "left"
) -> Callable[[Tab, GuiAction, float], Awaitable[None]]:
    async def click(tab: Tab, action: GuiAction, timeout_s: float) -> None:
        at = await _point(tab, action, "click", timeout_s)
        events = [_mouse("mouseMoved", at)]
        buttons = 2 if button == "right" else 1
        for count in range(1, times + 1):
            events.append(_mouse("mousePressed", at, button, count, buttons))
            events.append(_mouse("mouseReleased", at, button, count))
        await _send_mouse(tab, events, timeout_s)

    return click


async def _send_mouse(tab: Tab, events: list[MouseEvent], timeout_s: float) -> None:
    """Send events in order, without waiting for each."""
    sent = [tab.send("Input.dispatchMouseEvent", event, timeout_s) for event in events]
    await asyncio.gather(*sent)


async def _hover(tab: Tab, action: GuiAction, timeout_s: float) -> None:
    at = await _point(tab, action, "hover", timeout_s)
    await _send_mouse(tab, [_mouse("mouseMoved", at)], timeout_s)


async def _drag(tab: Tab, action: GuiAction, timeout_s: float) -> None:
    """Playwright's mouse carries what HTML5 drag and drop holds."""
    await _point(tab, action, "drag", timeout_s)
    end = await _place(tab, action.to_id, action.to_x, action.to_y, "drag", timeout_s)
    start = await _point(tab, action, "drag", timeout_s)  # the page may have been scrolled for it
    if action.to_id is not None:
        end = await _place(tab, action.to_id, None, None, "stay", timeout_s)
    mouse = tab.page.mouse
    with tab.driver_errors():
        await mouse.move(*start)
        await mouse.down()
        await mouse.move(*end, steps=_DRAG_MOVES)
        await mouse.up()


# -- keyboard ------------------------------------------------------------------------------------
async def _type(tab: Tab, action: GuiAction, timeout_s: float) -> None:
    if action.id is None and action.x is not None:
        at = await _point(tab, action, "click", timeout_s)
        events = [_mouse("mouseMoved", at), _mouse("mousePressed", at, "left", 1, 1)]
        await _send_mouse(tab, [*events, _mouse("mouseReleased", at, "left", 1)], timeout_s)
    text = action.text.replace("\r\n", "\n").replace("\r", "\n")
    field = await _query(tab, timeout_s, "ready", action.id, text)
    if field["how"] == "set":
        return
    enter = not field["lines"] and text.endswith("\n")
    if not field["lines"]:
        text = " ".join(text.rstrip("\n").split("\n"))
    keyboard = tab.page.keyboard
    with tab.driver_errors():
        if head := text[:-_MOST_KEYS]:
            await keyboard.insert_text(head)
        if text:
            await keyboard.type(text[-_MOST_KEYS:])
        elif action.id is not None and not field["empty"]:
            await keyboard.press("Delete")
        if enter:
            await keyboard.press("Enter")


async def _press(tab: Tab, action: GuiAction, timeout_s: float) -> None:
    try:
        keys = parse_keys(action.keys)
    except UnknownKey as error:
        raise ActionRefused(str(error)) from None
    if action.id is not None:
        await _query(tab, timeout_s, "focus", action.id)
    else:
        await _query(tab, timeout_s, "place", 0, 0)
    with tab.driver_errors():
        if keys[-1].isascii():
            await tab.page.keyboard.press("+".join(keys))
        else:  # no key of the keyboard gives it
            await tab.page.keyboard.insert_text(keys[-1])


# -- the rest ------------------------------------------------------------------------------------
async def _select(tab: Tab, action: GuiAction, timeout_s: float) -> None:
    if action.id is None:
        raise ActionRefused("say in which list: the number of an element")
    await _query(tab, timeout_s, "choose", action.id, action.text)


async def _scroll(tab: Tab, action: GuiAction, timeout_s: float) -> None:
    if not math.isfinite(action.amount) or action.amount <= 0:
        raise ActionRefused(f"the amount to scroll is {action.amount:g}; it must be above 0")
    amount = min(action.amount, 1000.0)
    where = (action.id, action.x, action.y)
    await _query(tab, timeout_s, "scroll", *where, action.direction, amount)


_HANDLERS: dict[str, Callable[[Tab, GuiAction, float], Awaitable[None]]] = {
    "click": _clicker(1),
    "double_click": _clicker(2),
    "triple_click": _clicker(3),
    "right_click": _clicker(1, "right"),
    "hover": _hover,
    "type": _type,
    "press": _press,
    "select": _select,
    "scroll": _scroll,
    "drag": _drag,
}
