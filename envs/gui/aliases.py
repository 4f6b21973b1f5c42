"""Other names of the same actions: what models learned from other tools means ours.

Known are the computer tools of Anthropic, OpenAI and Qwen, and BrowserGym's calls. What has no
counterpart among our actions stays unknown and is answered as such.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard

from clawrl_gym.envs.gui.schema import FORMS

WHEEL_PX = 100.0
"""One notch of a mouse wheel."""

NAMES: Mapping[str, str] = {kind: kind for kind in FORMS} | {
    "left_click": "click", "mouse_click": "click", "tap": "click",
    "dblclick": "double_click", "mouse_dblclick": "double_click",
    "mouse_move": "hover", "move": "hover", "move_to": "hover",
    "fill": "type", "input": "type", "keyboard_type": "type", "type_text": "type",
    "key": "press", "keypress": "press", "keyboard_press": "press", "press_key": "press",
    "hotkey": "press",
    "select_option": "select",
    "hscroll": "scroll",
    "left_click_drag": "drag", "drag_and_drop": "drag",
    "noop": "wait", "sleep": "wait",
    "navigate": "goto", "open_url": "goto",
    "go_back": "back", "go_forward": "forward", "refresh": "reload",
    "tab_close": "close_tab",
    "send_msg_to_user": "answer",
    "finish": "done", "finished": "done",
    "report_infeasible": "give_up", "fail": "give_up", "infeasible": "give_up",
    "terminate": "terminate",
}  # fmt: skip
"""Every name that is understood; `terminate` becomes `done` or `give_up` by its status."""

FIELDS = {
    "element": "id", "element_id": "id", "ref": "id", "index": "id", "bid": "id",
    "target": "to_id", "to": "to_id", "to_bid": "to_id",
    "key": "keys",
    "value": "text", "option": "text", "content": "text", "url": "text", "message": "text",
    "reason": "text", "answer": "text", "why": "text", "label": "text",
    "time": "seconds", "duration": "seconds",
    "scroll_direction": "direction",
    "tab_id": "tab", "tab_index": "tab",
}  # fmt: skip


def normalize_fields(aliased: Mapping[str, object], height: float) -> dict[str, object]:
    """The fields in our names; `height` of the viewport in CSS pixels."""
    fields = {str(name): value for name, value in aliased.items() if value is not None}
    action = fields.get("action")
    name = action.strip().lower() if isinstance(action, str) else ""
    if name not in NAMES:
        return fields
    fields["action"] = NAMES[name]
    for special in (_terminate, _button, _points, _wheel, _texts):
        special(name, fields, height)
    for alias, field in FIELDS.items():
        if alias in fields and field not in fields:
            fields[field] = fields.pop(alias)
    return fields


def _terminate(name: str, fields: dict[str, object], height: float) -> None:
    if name == "terminate":
        status = str(fields.pop("status", "success")).lower()
        fields["action"] = "done" if status == "success" else "give_up"
        if fields["action"] == "done":
            fields.pop("text", None)


def _button(name: str, fields: dict[str, object], height: float) -> None:
    if fields["action"] == "click" and fields.get("button") in ("left", "right"):
        fields["action"] = "click" if fields.pop("button") == "left" else "right_click"


def _points(name: str, fields: dict[str, object], height: float) -> None:
    """Pairs of coordinates become x and y; a drag's `coordinate` is where it ends."""
    ends = fields["action"] == "drag"
    path = fields.get("path")
    if ends and isinstance(path, list) and len(path) > 1:
        fields["start_coordinate"], fields["coordinate"] = path[0], path[-1]
        del fields["path"]
    for pair, names in (
        ("start_coordinate", ("x", "y")),
        ("coordinate", ("to_x", "to_y") if ends else ("x", "y")),
        ("end_coordinate", ("to_x", "to_y")),
    ):
        value = fields.get(pair)
        if isinstance(value, dict) and set(value) == {"x", "y"}:
            value = [value["x"], value["y"]]
        if isinstance(value, list | tuple) and len(value) == len(names):
            fields |= dict(zip(names, value, strict=True))
            del fields[pair]


def _wheel(name: str, fields: dict[str, object], height: float) -> None:
    """Pixels and notches become heights of the viewport; Qwen's pixels count upwards."""
    if fields["action"] != "scroll":
        return
    notches, pixels = fields.get("scroll_amount"), fields.get("pixels")
    if _is_number(notches):
        del fields["scroll_amount"]
        fields["amount"] = notches * WHEEL_PX / height
    if _is_number(pixels):
        del fields["pixels"]
        towards = ("right", "left") if name == "hscroll" else ("up", "down")
        _scrolled(fields, pixels, towards, height)
    across, down = fields.get("scroll_x", 0), fields.get("scroll_y", 0)
    if ("scroll_x" in fields or "scroll_y" in fields) and _is_number(across) and _is_number(down):
        fields.pop("scroll_x", None)
        fields.pop("scroll_y", None)
        if abs(across) > abs(down):
            _scrolled(fields, across, ("right", "left"), height)
        else:
            _scrolled(fields, down, ("down", "up"), height)


def _scrolled(
    fields: dict[str, object], pixels: float, towards: tuple[str, str], height: float
) -> None:
    fields["direction"] = towards[0 if pixels >= 0 else 1]
    fields["amount"] = abs(pixels) / height


def _texts(name: str, fields: dict[str, object], height: float) -> None:
    """Keys may be called text, and come as a list."""
    if fields["action"] == "press":
        if "text" in fields and "keys" not in fields:
            fields["keys"] = fields.pop("text")
        keys = fields.get("keys")
        if isinstance(keys, list | tuple):
            fields["keys"] = "+".join(str(key) for key in keys)
    elif fields["action"] == "select" and isinstance(options := fields.get("options"), list):
        del fields["options"]
        if len(options) == 1:
            fields["text"] = options[0]


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
