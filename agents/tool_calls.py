"""Tool calls in both forms: messages of the OpenAI API, and the text that `step` takes.

Plain text is what the reply says; tool calls are JSON, and so are their results:

{"content": null, "tool_calls": [{"id": "1", "name": "read", "arguments": "{...}"}]}

A message in OpenAI's form, or its `tool_calls` alone, is read as well: what calls is never speech.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict, TypeGuard

from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.text import valid_escapes
from clawrl_gym.core.types import FunctionCall, Message, ToolCall


class _CallForm(TypedDict):
    id: str
    name: str
    arguments: str


class _ReplyForm(TypedDict):
    """The JSON of a reply with calls."""

    content: str | None
    tool_calls: list[_CallForm]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool, as the model wrote it."""

    id: str
    name: str
    arguments: str
    """JSON, or what the model took for it."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Words and calls of the policy in one turn."""

    content: str
    calls: tuple[Call, ...] = ()


def encode(reply: Reply) -> str:
    """The text of a reply; inverse of `decode`. A text that reads like the form is wrapped."""
    if not reply.calls and _form(reply.content) is None:
        return reply.content
    calls = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in reply.calls]
    return json.dumps({"content": reply.content, "tool_calls": calls})


def decode(text: str | Message) -> Reply:
    """The reply of a text; whatever is not the form is something said. A message is one."""
    if not isinstance(text, str):
        return Reply(text_of(text), calls_of(text))
    form = _form(text)
    if form is None:
        return Reply(text)
    return Reply(form["content"] or "", tuple(Call(**call) for call in form["tool_calls"]))


def encode_results(calls: Sequence[Call], contents: Sequence[str]) -> str:
    """The observation after tool calls: one result a call, in their order."""
    return json.dumps(
        [
            {"tool_call_id": call.id, "content": content}
            for call, content in zip(calls, contents, strict=True)
        ]
    )


def failure(tool: str, why: str) -> str:
    """The result of a call that failed, in words for the model."""
    return json.dumps({"status": "error", "tool": tool, "error": why})


def _form(text: str) -> _ReplyForm | None:
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        form = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return form if _is_form(form) else _openai_form(form)


def _is_form(form: object) -> TypeGuard[_ReplyForm]:
    return (
        isinstance(form, dict)
        and set(form) == {"content", "tool_calls"}
        and isinstance(form["content"], str | None)
        and isinstance(form["tool_calls"], list)
        and all(_is_call(call) for call in form["tool_calls"])
    )


def _is_call(call: object) -> bool:
    return (
        isinstance(call, dict)
        and set(call) == {"id", "name", "arguments"}
        and all(isinstance(value, str) for value in call.values())
    )


def _openai_form(form: object) -> _ReplyForm | None:
    """A message of the OpenAI API with calls, or its calls alone, as ours; None for others."""
    message: dict[str, object] = form if isinstance(form, dict) else {"tool_calls": form}
    wires, content = message.get("tool_calls"), message.get("content")
    if not isinstance(wires, list) or not wires or not all(map(_is_openai_call, wires)):
        return None
    calls = [_call(wire) for wire in wires]
    return {
        "content": content if isinstance(content, str) else None,
        "tool_calls": [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in calls],
    }


def _is_openai_call(call: object) -> TypeGuard[ToolCall]:
    function = call.get("function") if isinstance(call, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str)


def calls_of(reply: Message) -> tuple[Call, ...]:
    """The calls of a reply."""
    return tuple(_call(wire) for wire in reply.get("tool_calls") or [])


def message_of(reply: Reply) -> Message:
    """A reply as the engine parses it."""
    if not reply.calls:
        return {"role": "assistant", "content": reply.content}
    return {
        "role": "assistant",
        "content": reply.content or None,
        "tool_calls": [tool_call(call) for call in reply.calls],
    }


def tool_call(call: Call) -> ToolCall:
    """A call in the OpenAI wire form."""
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def messages_after(reply: Message, observation: str) -> list[Message]:
    """Messages that answer a reply: one a result, or the user's words."""
    calls = reply.get("tool_calls")
    if not calls:
        return [{"role": "user", "content": observation}]
    return [
        {"role": "tool", "tool_call_id": str(call.get("id", "")), "content": result}
        for call, result in zip(calls, results_of(observation, len(calls)), strict=True)
    ]


def results_of(observation: str, count: int) -> list[str]:
    """One result a call. An environment that gives plain text has said it to every call."""
    try:
        results = json.loads(observation)
        contents = [result["content"] for result in results]
    except (ValueError, TypeError, KeyError):
        return [observation] * count
    fits = len(contents) == count and all(isinstance(content, str) for content in contents)
    return contents if fits else [observation] * count


def _call(wire: ToolCall) -> Call:
    function = wire.get("function") or FunctionCall()
    arguments = function.get("arguments", "")
    return Call(
        id=str(wire.get("id", "")),
        name=str(function.get("name", "")),
        arguments=(
            valid_escapes(arguments, "agent")
            if isinstance(arguments, str)
            else json.dumps(arguments)
        ),
    )
