"""Parser of replies: text or tool calls become actions, or say what is wrong with them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import get_args

from clawrl_gym.agents.tool_calls import Call, Reply
from clawrl_gym.envs.gui.action import Direction, GuiAction
from clawrl_gym.envs.gui.aliases import FIELDS, NAMES, normalize_fields
from clawrl_gym.envs.gui.keys import UnknownKey, parse_keys
from clawrl_gym.envs.gui.schema import FORMS, POINT, TO, TOOL, Form
from clawrl_gym.envs.gui.text_calls import Bare, TextCall, find_calls, format_action, unknown_calls

MAX_TEXT_CHARS = 10_000
MAX_WAIT_S = 10.0
MAX_AMOUNT = 50.0
_MAX_SHOWN_CHARS = 80
_TOOLS = frozenset({TOOL, "computer_use"})
_THINKING = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?!\d)")
_WHOLE = re.compile(r"\[?\s*(\d{1,9})(?:\.0+)?\s*\]?")
_NUMBER = re.compile(r"\[?\s*-?\d+(?:\.\d+)?\s*\]?")


@dataclass(frozen=True, slots=True)
class CoordinateSpace:
    """Meaning of coordinates."""

    width: int
    height: int
    """Height of the viewport in CSS pixels."""
    across: int
    down: int
    """Upper ends of x and y over these: pixels of the picture, or 1000."""


@dataclass(frozen=True, slots=True)
class RequestedAction:
    """One thing that a reply asks for."""

    source: str
    """Short form of the action for messages."""
    action: GuiAction | None = None
    wrong: str = ""
    """Why it is no action: what was got, what is expected."""


class _InvalidAction(Exception):
    """Message with what was got and what was expected."""


def parse_reply(reply: Reply, frame: CoordinateSpace) -> tuple[RequestedAction, ...]:
    """The actions of a reply in their order: one a call; without calls those of its text."""
    if reply.calls:
        return tuple(_requested_by_call(call, frame) for call in reply.calls)
    candidates = [
        (call, _requested_in_text(call, frame))
        for call in find_calls(without_thoughts(reply.content))
    ]
    return tuple(
        requested for call, requested in candidates if requested.action or not call.is_loose
    )


def describe_missing_action(reply: Reply) -> str:
    """Message for a reply without any action."""
    unknown = unknown_calls(without_thoughts(reply.content))
    problem = f"got {unknown[0]}(), which is no action" if unknown else "got no action"
    return f"{problem}, expected one a line, such as click(12); there are: {', '.join(FORMS)}"


def without_thoughts(text: str) -> str:
    """A text without the model's thoughts: nothing in them is carried out."""
    _, closed, after = text.rpartition("</think>")
    return _THINKING.sub("", after if closed else text)


def _requested_in_text(call: TextCall, frame: CoordinateSpace) -> RequestedAction:
    source = _short(call.source)
    if call.unread:
        return RequestedAction(source, wrong=call.unread)
    if call.form is not None:
        return _requested_by_call(Call("", "", call.form), frame, in_form=True)
    try:
        return RequestedAction(source, action_of(_fields_of(call), frame))
    except _InvalidAction as error:
        return RequestedAction(source, wrong=str(error))


def _requested_by_call(
    call: Call, frame: CoordinateSpace, in_form: bool = False
) -> RequestedAction:
    source = _short(call.arguments)
    try:
        fields = _arguments(call.arguments)
        name: object = call.name
        if in_form:
            name, inner = fields.get("name"), fields.get("arguments", fields.get("parameters", {}))
            if isinstance(inner, str):
                inner = _arguments(inner)
            if not isinstance(inner, dict):
                raise _InvalidAction("got arguments that are no JSON object")
            fields = inner
        if not isinstance(name, str):
            raise _InvalidAction(f"got the tool {_quoted(name)}, expected {TOOL!r}")
        if name not in _TOOLS:
            if name.lower() not in NAMES or "action" in fields:
                raise _InvalidAction(f"got the tool {_quoted(name)}, expected {TOOL!r}")
            fields = {**fields, "action": name}
        action = action_of(fields, frame)
        return RequestedAction(format_action(action), action)
    except _InvalidAction as error:
        return RequestedAction(source, wrong=str(error))


def _arguments(text: str) -> dict[str, object]:
    from clawrl_gym.envs.toolcall.schema import arguments_of
    from clawrl_gym.envs.toolcall.toolset import ToolFailure

    try:
        return arguments_of(text, {"function": {"name": TOOL, "parameters": {"type": "object"}}})
    except ToolFailure as failure:
        raise _InvalidAction(str(failure)) from None


def _fields_of(call: TextCall) -> dict[str, object]:
    """The arguments by name: those without one by the order that fits them."""
    kind = NAMES[call.name]
    if not call.positional:
        return {"action": call.name, **call.keywords}
    names = _order(FORMS.get(kind), call)
    if names is None:
        raise _InvalidAction(f"got {len(call.positional)} arguments, expected {_usual(kind)}")
    if twice := set(names) & set(call.keywords):
        raise _InvalidAction(f"got {min(twice)} twice, expected {_usual(kind)}")
    return {"action": call.name, **dict(zip(names, call.positional, strict=True)), **call.keywords}


def _order(form: Form | None, call: TextCall) -> tuple[str, ...] | None:
    if form is None:  # terminate
        return ("status",) if len(call.positional) == 1 else None
    if (
        len(call.positional) == 1
        and isinstance(call.positional[0], list)
        and len(call.positional[0]) == 2
    ):
        return ("coordinate",)
    keywords = {FIELDS.get(name, name) for name in call.keywords}
    left = [tuple(name for name in order if name not in keywords) for order in form.orders]
    left = [order for order in left if len(order) == len(call.positional)]
    for order in left:
        if all(map(_may_be, order, call.positional)):
            return order
    return left[0] if left else None


def _may_be(name: str, value: object) -> bool:
    """A number is no direction, and a word is no number."""
    is_number = _NUMBER.fullmatch(str(value)) is not None
    if name == "direction":
        return not is_number
    return is_number or name in ("text", "keys")


def action_of(written_fields: Mapping[str, object], frame: CoordinateSpace) -> GuiAction:
    """The action that fields of the schema, or of a known alias, ask for. Raises _InvalidAction."""
    fields = normalize_fields(written_fields, frame.height)
    kind = fields.pop("action", None)
    form = FORMS.get(kind) if isinstance(kind, str) else None
    if form is None or not isinstance(kind, str):
        raise _InvalidAction(f"got the action {_quoted(kind)}, expected one of: {', '.join(FORMS)}")
    fields = {n: v for n, v in fields.items() if v != "" or (n == "text" and n in form.fields)}
    if unknown := [name for name in fields if name not in form.fields]:
        raise _InvalidAction(
            f"got {unknown[0][:_MAX_SHOWN_CHARS]} in {kind}, expected {_usual(kind)}"
        )
    _check_needs(kind, form, fields)
    values = {name: _value(name, value, frame) for name, value in fields.items()}
    if kind in ("goto", "new_tab") and values.get("text"):
        values["text"] = _url(str(values["text"]))
    return GuiAction(kind, **values)  # type: ignore[arg-type]


def _check_needs(kind: str, form: Form, fields: Mapping[str, object]) -> None:
    for names in (POINT, TO):
        number, x, y = (name in fields for name in names)
        if (number and (x or y)) or x != y:
            raise _InvalidAction(
                f"got {', '.join(n for n in names if n in fields)}, "
                f"expected {names[0]}, or {names[1]} and {names[2]}"
            )
    coordinate = {"id": "x", "to_id": "to_x"}
    for need in form.needs:
        if need not in fields and not (
            need in coordinate and coordinate[need] in form.fields & set(fields)
        ):
            raise _InvalidAction(f"got {kind} without {need}, expected {_usual(kind)}")


def _value(name: str, value: object, frame: CoordinateSpace) -> object:
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


def _whole(name: str, value: object) -> int:
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    match = _WHOLE.fullmatch(str(value)) if not isinstance(value, bool) else None
    if match is None:
        raise _InvalidAction(
            f"got {name}={_quoted(value)}, expected a number of the page such as 12"
        )
    return int(match[1])


def _float(name: str, value: object) -> float:
    number = math.nan
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):
            number = float(value)
    if not math.isfinite(number):
        raise _InvalidAction(f"got {name}={_quoted(value)}, expected a number")
    return number


def _number(name: str, value: object, most: float) -> float:
    number = _float(name, value)
    if not 0 < number <= most:
        raise _InvalidAction(f"got {name}={number:g}, expected more than 0 and at most {most:g}")
    return number


def _coordinate(name: str, value: object, side: int, most: int) -> float:
    """CSS pixels. The far edge belongs to the last pixel."""
    number = _float(name, value)
    if not 0 <= number <= most:
        raise _InvalidAction(f"got {name}={number:g}, expected 0 to {most}")
    return min(number * side / most, side - 1.0)


def _text(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise _InvalidAction(f"got text={_quoted(value)}, expected a text")
    text = str(value).replace("\r\n", "\n").replace("\r", "\n")
    if len(text) > MAX_TEXT_CHARS:
        raise _InvalidAction(
            f"got a text of {len(text)} characters, expected at most {MAX_TEXT_CHARS}"
        )
    if match := _CONTROL.search(text):
        raise _InvalidAction(
            f"got the control character {match[0]!r} in a text, expected characters that can be "
            "seen, line breaks and tabs; keys are pressed with press"
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _InvalidAction("got a text that is not valid Unicode, expected one that is") from None
    return text


def _keys(value: object) -> str:
    """One combination in Playwright's form, such as Control+Shift+a."""
    try:
        if isinstance(value, str | int):
            return "+".join(parse_keys(str(value)))
    except UnknownKey:
        pass
    raise _InvalidAction(
        f"got keys={_quoted(value)}, expected a key such as Enter, Tab, Escape, Backspace, "
        "Delete, Space, Home, PageDown, ArrowUp, F1 or a, or a combination such as Control+a"
    )


def _direction(value: object) -> str:
    if not isinstance(value, str) or value.lower() not in get_args(Direction):
        raise _InvalidAction(
            f"got direction={_quoted(value)}, expected one of {', '.join(get_args(Direction))}"
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


def _quoted(value: object) -> str:
    text = str(value) if isinstance(value, Bare) else repr(value)
    return _short(text)
