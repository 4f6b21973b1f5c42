"""What a reply asks for: text or tool calls become actions, or say what is wrong with them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from clawrl_gym.agents.tool_calls import Call, Reply
from clawrl_gym.envs.gui.action import Action, Direction
from clawrl_gym.envs.gui.aliases import FIELDS, NAMES, normalize_fields
from clawrl_gym.envs.gui.keys import UnknownKey, parse_keys
from clawrl_gym.envs.gui.schema import FORMS, POINT, TO, TOOL, Form
from clawrl_gym.envs.gui.text_calls import Bare, TextCall, find_calls, format_action, unknown_calls

MAX_TEXT_CHARS = 10_000
MAX_WAIT_S = 10.0
MAX_AMOUNT = 50.0
_MAX_SHOWN_CHARS = 80
_TOOLS = frozenset({TOOL, "computer_use"})
_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?!\d)")
_WHOLE = re.compile(r"\[?\s*(\d{1,9})(?:\.0+)?\s*\]?")
_NUMBER = re.compile(r"\[?\s*-?\d+(?:\.\d+)?\s*\]?")


@dataclass(frozen=True, slots=True)
class CoordinateSpace:
    """What coordinates mean."""

    width: int
    height: int
    """Of the viewport in CSS pixels."""
    across: int
    down: int
    """What x and y count to over these: pixels of the picture, or 1000."""


@dataclass(frozen=True, slots=True)
class RequestedAction:
    """One thing that a reply asks for."""

    source: str
    """In short, for messages."""
    action: Action | None = None
    wrong: str = ""
    """Why it is no action: what was got, what is expected."""


class _Wrong(Exception):
    """What was got and what was expected."""


def parse_reply(reply: Reply, frame: CoordinateSpace) -> tuple[RequestedAction, ...]:
    """The actions of a reply in their order: one a call; without calls those of its text."""
    if reply.calls:
        return tuple(_asked_by(call, frame) for call in reply.calls)
    found = [(one, _asked_in(one, frame)) for one in find_calls(without_thoughts(reply.content))]
    return tuple(asked for one, asked in found if asked.action or not one.is_loose)


def describe_missing_action(reply: Reply) -> str:
    """What to say to a reply without any action."""
    unknown = unknown_calls(without_thoughts(reply.content))
    got = f"got {unknown[0]}(), which is no action" if unknown else "got no action"
    return f"{got}, expected one a line, such as click(12); there are: {', '.join(FORMS)}"


def without_thoughts(text: str) -> str:
    """A text without the model's thoughts: nothing in them is carried out."""
    _, closed, after = text.rpartition("</think>")
    return _THOUGHT.sub("", after if closed else text)


def _asked_in(one: TextCall, frame: CoordinateSpace) -> RequestedAction:
    source = _short(one.source)
    if one.unread:
        return RequestedAction(source, wrong=one.unread)
    if one.form is not None:
        return _asked_by(Call("", "", one.form), frame, in_form=True)
    try:
        return RequestedAction(source, action_of(_fields_of(one), frame))
    except _Wrong as wrong:
        return RequestedAction(source, wrong=str(wrong))


def _asked_by(call: Call, frame: CoordinateSpace, in_form: bool = False) -> RequestedAction:
    source = _short(call.arguments)
    try:
        fields = _arguments(call.arguments)
        name: Any = call.name
        if in_form:
            name, inner = fields.get("name"), fields.get("arguments", fields.get("parameters", {}))
            fields = _arguments(inner) if isinstance(inner, str) else inner
        if not isinstance(fields, dict):
            raise _Wrong("got arguments that are no JSON object")
        if name not in _TOOLS:
            if not isinstance(name, str) or name.lower() not in NAMES or "action" in fields:
                raise _Wrong(f"got the tool {_shown(name)}, expected {TOOL!r}")
            fields = {**fields, "action": name}
        action = action_of(fields, frame)
        return RequestedAction(format_action(action), action)
    except _Wrong as wrong:
        return RequestedAction(source, wrong=str(wrong))


def _arguments(text: str) -> dict[str, Any]:
    from clawrl_gym.envs.toolcall.schema import arguments_of
    from clawrl_gym.envs.toolcall.toolset import ToolFailure

    try:
        return arguments_of(text, {"function": {"name": TOOL, "parameters": {"type": "object"}}})
    except ToolFailure as failure:
        raise _Wrong(str(failure)) from None


def _fields_of(one: TextCall) -> dict[str, Any]:
    """The arguments by name: those without one by the order that fits them."""
    kind = NAMES[one.name]
    if not one.given:
        return {"action": one.name, **one.named}
    names = _order(FORMS.get(kind), one)
    if names is None:
        raise _Wrong(f"got {len(one.given)} arguments, expected {_usual(kind)}")
    if twice := set(names) & set(one.named):
        raise _Wrong(f"got {min(twice)} twice, expected {_usual(kind)}")
    return {"action": one.name, **dict(zip(names, one.given, strict=True)), **one.named}


def _order(form: Form | None, one: TextCall) -> tuple[str, ...] | None:
    if form is None:  # terminate
        return ("status",) if len(one.given) == 1 else None
    if len(one.given) == 1 and isinstance(one.given[0], list) and len(one.given[0]) == 2:
        return ("coordinate",)
    named = {FIELDS.get(name, name) for name in one.named}
    left = [tuple(name for name in order if name not in named) for order in form.orders]
    left = [order for order in left if len(order) == len(one.given)]
    for order in left:
        if all(map(_may_be, order, one.given)):
            return order
    return left[0] if left else None


def _may_be(name: str, value: Any) -> bool:
    """A number is no direction, and a word is no number."""
    is_number = _NUMBER.fullmatch(str(value)) is not None
    if name == "direction":
        return not is_number
    return is_number or name in ("text", "keys")


def action_of(given: Mapping[str, Any], frame: CoordinateSpace) -> Action:
    """The action that fields of the schema, or of a known dialect, ask for. Raises _Wrong."""
    fields = normalize_fields(given, frame.height)
    kind = fields.pop("action", None)
    form = FORMS.get(kind) if isinstance(kind, str) else None
    if form is None or not isinstance(kind, str):
        raise _Wrong(f"got the action {_shown(kind)}, expected one of: {', '.join(FORMS)}")
    fields = {n: v for n, v in fields.items() if v != "" or (n == "text" and n in form.fields)}
    if unknown := [name for name in fields if name not in form.fields]:
        raise _Wrong(f"got {unknown[0][:_MAX_SHOWN_CHARS]} in {kind}, expected {_usual(kind)}")
    _check_needs(kind, form, fields)
    values = {name: _value(name, value, frame) for name, value in fields.items()}
    if kind in ("goto", "new_tab") and values.get("text"):
        values["text"] = _url(values["text"])
    return Action(kind, **values)  # type: ignore[arg-type]


def _check_needs(kind: str, form: Form, fields: Mapping[str, Any]) -> None:
    for names in (POINT, TO):
        number, x, y = (name in fields for name in names)
        if (number and (x or y)) or x != y:
            raise _Wrong(
                f"got {', '.join(n for n in names if n in fields)}, "
                f"expected {names[0]}, or {names[1]} and {names[2]}"
            )
    other = {"id": "x", "to_id": "to_x"}
    for need in form.needs:
        if need not in fields and not (need in other and other[need] in form.fields & set(fields)):
            raise _Wrong(f"got {kind} without {need}, expected {_usual(kind)}")


def _value(name: str, value: Any, frame: CoordinateSpace) -> Any:
    match name:
        case "id" | "to_id" | "tab":
            return _whole(name, value)
        case "x" | "to_x":
            return _coordinate(name, value, frame.width, frame.across)
        case "y" | "to_y":
            return _coordinate(name, value, frame.height, frame.down)
        case "text":
            return _text(value)
        case "keys":
            return _keys(value)
        case "direction":
            return _direction(value)
        case "amount":
            return _number(name, value, MAX_AMOUNT)
    return _number(name, value, MAX_WAIT_S)


def _whole(name: str, value: Any) -> int:
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    found = _WHOLE.fullmatch(str(value)) if not isinstance(value, bool) else None
    if found is None:
        raise _Wrong(f"got {name}={_shown(value)}, expected a number of the page such as 12")
    return int(found[1])


def _float(name: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise _Wrong(f"got {name}={_shown(value)}, expected a number")
    return number


def _number(name: str, value: Any, most: float) -> float:
    number = _float(name, value)
    if not 0 < number <= most:
        raise _Wrong(f"got {name}={number:g}, expected more than 0 and at most {most:g}")
    return number


def _coordinate(name: str, value: Any, side: int, most: int) -> float:
    """CSS pixels. The far edge belongs to the last pixel."""
    number = _float(name, value)
    if not 0 <= number <= most:
        raise _Wrong(f"got {name}={number:g}, expected 0 to {most}")
    return min(number * side / most, side - 1.0)


def _text(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise _Wrong(f"got text={_shown(value)}, expected a text")
    text = str(value).replace("\r\n", "\n").replace("\r", "\n")
    if len(text) > MAX_TEXT_CHARS:
        raise _Wrong(f"got a text of {len(text)} characters, expected at most {MAX_TEXT_CHARS}")
    if found := _CONTROL.search(text):
        raise _Wrong(
            f"got the control character {found[0]!r} in a text, expected characters that can be "
            "seen, line breaks and tabs; keys are pressed with press"
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _Wrong("got a text that is not valid Unicode, expected one that is") from None
    return text


def _keys(value: object) -> str:
    """One combination in Playwright's form, such as Control+Shift+a."""
    try:
        if isinstance(value, str | int):
            return "+".join(parse_keys(str(value)))
    except UnknownKey:
        pass
    raise _Wrong(
        f"got keys={_shown(value)}, expected a key such as Enter, Tab, Escape, Backspace, "
        "Delete, Space, Home, PageDown, ArrowUp, F1 or a, or a combination such as Control+a"
    )


def _direction(value: Any) -> str:
    if not isinstance(value, str) or value.lower() not in get_args(Direction):
        raise _Wrong(
            f"got direction={_shown(value)}, expected one of {', '.join(get_args(Direction))}"
        )
    return value.lower()


def _url(text: str) -> str:
    """A URL as people write it: http is meant where nothing else is said."""
    text = text.strip()
    return text if _SCHEME.match(text) else f"http://{text.removeprefix('//')}"


def _usual(kind: str) -> str:
    form = FORMS.get(kind)
    return form.example if form else f'{kind}("success")'


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_SHOWN_CHARS else line[: _MAX_SHOWN_CHARS - 3] + "..."


def _shown(value: Any) -> str:
    told = str(value) if isinstance(value, Bare) else repr(value)
    return _short(told)
