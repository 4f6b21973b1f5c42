"""Messages as clients send them, read into those that chat templates know.

Histories come from many programs: with parts of other vendors' APIs, nulls where an SDK wrote all
its fields, and calls in older forms. What has text keeps it; the rest of an odd part is left out
and named in `unread`, so that one of them never refuses a conversation.
"""

from __future__ import annotations

import json
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from clawrl_gym.core.types import Content, ContentPart, JsonObject, Message, TextPart

MOST_CALLS = 1024
_DEEPEST = 64
"""Levels of JSON in what is passed on; templates and parsers recurse over it."""
_DEEPEST_PART = 4
_TEXT_TYPES = ("text", "input_text", "output_text")
_THOUGHTS = ("thinking", "reasoning")
_KNOWN = frozenset({
    "role", "content", "tool_calls", "tool_call_id", "reasoning_content", "reasoning", "refusal",
    "function_call",
})  # fmt: skip
_SAYS_NOTHING = frozenset({"annotations", "id", "object", "phase", "status", "type"})
"""Fields of a reply that SDKs write beside its text."""
_OPTIONAL = ("tool_calls", "tool_call_id", "reasoning_content")
"""Fields of a message that are passed on where they hold something."""


class WireMessage(BaseModel):
    """One chat message."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Any = None
    """A text, parts that are texts and pictures, or None."""
    tool_calls: list[JsonObject] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    unread: tuple[str, ...] = ()
    """Names of what was left out."""

    @model_validator(mode="before")
    @classmethod
    def _readable(cls, message: object) -> object:
        return _read(message) if isinstance(message, dict) else message

    @field_validator("content")
    @classmethod
    def _text_or_parts(cls, content: object) -> object:
        if not isinstance(content, str | list | None):
            raise ValueError("expected a text or a list of parts")
        return content

    @field_validator("tool_calls")
    @classmethod
    def _not_deep(cls, calls: list[JsonObject] | None) -> list[JsonObject] | None:
        if calls is not None and len(calls) > MOST_CALLS:
            raise ValueError(f"got {len(calls)} calls, expected at most {MOST_CALLS}")
        for call in calls or []:
            check_depth(call)
        return calls

    @property
    def has_pictures(self) -> bool:
        parts = self.content if isinstance(self.content, list) else []
        return any(part["type"] == "image_url" for part in parts)

    def plain(self) -> Message:
        """The message as rendered: text parts joined unless a picture is among them, `developer`
        under its older name."""
        content: Content = self.content
        if isinstance(content, list) and not self.has_pictures:
            content = "\n".join(part["text"] for part in cast(list[TextPart], content))
        role = "system" if self.role == "developer" else self.role
        optional = {name: getattr(self, name) for name in _OPTIONAL if getattr(self, name)}
        return cast(Message, {"role": role, "content": content, **optional})


def as_tool_messages(messages: object) -> object:
    """A history in which calls and results of the API before tools (`function_call`, role
    `function`) are those of tools."""
    if not isinstance(messages, list):
        return messages
    call_id, newer = "", []
    for at, message in enumerate(messages):
        if isinstance(message, dict) and isinstance(message.get("function_call"), dict):
            call_id = f"call_{at}"
            call = {"id": call_id, "type": "function", "function": message["function_call"]}
            older = {key: value for key, value in message.items() if key != "function_call"}
            message = older | {"tool_calls": [*(message.get("tool_calls") or []), call]}
        elif isinstance(message, dict) and message.get("role") == "function":
            named = {key: value for key, value in message.items() if key != "name"}
            message = named | {"role": "tool", "tool_call_id": call_id or f"call_{at}"}
        newer.append(message)
    return newer


def function_of(tool_or_call: JsonObject) -> JsonObject:
    """The function of a tool. Raises ValueError for anything else."""
    function = tool_or_call.get("function")
    if tool_or_call.get("type", "function") != "function" or not isinstance(function, dict):
        raise ValueError("expected {'type': 'function', 'function': {...}} each")
    if not isinstance(function.get("name"), str) or not function["name"]:
        raise ValueError("expected a function.name each")
    check_depth(tool_or_call)
    return function


def check_depth(value: object, levels: int = _DEEPEST) -> None:
    """Raise ValueError for JSON that is nested too deeply to be passed on."""
    if not levels:
        raise ValueError(f"expected at most {_DEEPEST} levels of JSON")
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in items:
        if isinstance(item, dict | list):
            check_depth(item, levels - 1)


def _read(message: JsonObject) -> JsonObject:
    """The fields of a WireMessage."""
    unread = [name for name in message.keys() - _KNOWN - _SAYS_NOTHING if message[name]]
    content, thoughts = _content(message.get("content"), unread)
    for other in ("refusal", "audio"):
        content = content or _text(message.get(other)) or content
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    role, call_id = message.get("role"), message.get("tool_call_id")
    return {
        "role": role.strip().lower() if isinstance(role, str) else role,
        "content": content,
        "tool_calls": _calls(message.get("tool_calls")),
        "tool_call_id": str(call_id) if isinstance(call_id, int) else call_id,
        "reasoning_content": _text(reasoning) or thoughts or None,
        "unread": tuple(sorted(f"messages.{name}" for name in unread)),
    }


def _content(content: object, unread: list[str]) -> tuple[object, str]:
    """A message's text, and the thoughts before it."""
    if isinstance(content, dict) and _text(content) is not None:
        content = [content]  # one part without its list
    if not isinstance(content, list):
        return content, ""  # what it is not is told below
    parts: list[ContentPart] = []
    thoughts = []
    for part in content:
        kind = part.get("type", "text") if isinstance(part, dict) else "text"
        url = _url(part) if kind in ("image_url", "input_image") else None
        text = _text(part)
        if kind == "image_url" and url is None:
            raise ValueError(f"image_url: got {part!r:.100}, expected {{'url': 'data:image/...'}}")
        if url is not None:
            parts.append({"type": "image_url", "image_url": {"url": url}})
        elif kind in _THOUGHTS:
            thoughts.append(text or "")
        elif text is not None:
            parts.append({"type": "text", "text": text})
        is_known = kind in (*_TEXT_TYPES, *_THOUGHTS, "refusal")
        if url is None and part and not (is_known and text is not None):
            unread.append(f"content.{kind}")
    return parts, "\n".join(filter(None, thoughts))


def _url(part: Any) -> str | None:
    """Address of a picture. Any: a part is what somebody sent."""
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    return url if isinstance(url, str) else None


def _text(part: object, levels: int = _DEEPEST_PART) -> str | None:
    """The text of a part of any API; None where it has none."""
    if isinstance(part, str):
        return part
    if isinstance(part, list) and levels:
        texts = [_text(one, levels - 1) for one in part]
        return "\n".join(text for text in texts if text) or None
    if not isinstance(part, dict) or not levels:
        return None
    if part.get("type") in _TEXT_TYPES and part.get("text", "") is None:
        return ""
    names = ["text", part.get("type"), "content", "summary", "source", "transcript", "value"]
    if part.get("type") == "text":  # else it is a picture or a file, written as text
        names.append("data")
    for name in names:
        text = _text(part[name], levels - 1) if isinstance(name, str) and name in part else None
        if text is not None:
            return text
    return None


def _calls(calls: object) -> object:
    """Calls of functions; those of OpenAI's custom tools have their input as one argument."""
    if not calls:
        return None
    return [_call(call) for call in calls] if isinstance(calls, list) else calls


def _call(call: object) -> object:
    """A call in its stored form. Raises ValueError for one of no function."""
    if not isinstance(call, dict):
        return call
    function, custom = call.get("function"), call.get("custom")
    is_named = isinstance(call.get("id"), str | None)
    if is_named and call.get("type", "function") == "function" and _is_usual(function):
        return call
    if not isinstance(function, dict) and isinstance(custom, dict):
        function = {"name": custom.get("name"), "arguments": {"input": custom.get("input")}}
    if not isinstance(function, dict):
        raise ValueError(f"tool_calls: got {call!r:.100}, expected a function in each")
    name, arguments = function.get("name"), function.get("arguments")
    if "name" not in function or not isinstance(name, str | None):
        raise ValueError(f"tool_calls: got {function!r:.100}, expected a function.name each")
    if not isinstance(arguments, str | dict | None):
        arguments = json.dumps(arguments)
    named = {**function, "name": name or "", "arguments": arguments}
    return {"id": str(call.get("id") or ""), "type": "function", "function": named}


def _is_usual(function: object) -> bool:
    return (
        isinstance(function, dict)
        and isinstance(function.get("name"), str)
        and isinstance(function.get("arguments", ""), str | dict | None)
    )
