"""A reply as text: what `step` of an environment with tools takes, and how results come back.

Plain text is what the reply says; tool calls are JSON:

{"content": null, "tool_calls": [{"id": "1", "name": "read", "arguments": "{...}"}]}
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool, as the model wrote it."""

    id: str
    name: str
    arguments: str
    """JSON, or what the model took for it."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the policy said and did in one turn."""

    content: str
    calls: tuple[Call, ...] = ()


def encode(reply: Reply) -> str:
    """The text of a reply; inverse of `decode`. A text that reads like the form is wrapped."""
    if not reply.calls and _form(reply.content) is None:
        return reply.content
    calls = [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in reply.calls]
    return json.dumps({"content": reply.content, "tool_calls": calls})


def decode(text: str) -> Reply:
    """The reply of a text; whatever is not the form is something said."""
    form = _form(text)
    if form is None:
        return Reply(text)
    return Reply(form.get("content") or "", tuple(Call(**call) for call in form["tool_calls"]))


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


def _form(text: str) -> dict[str, Any] | None:
    if not text.startswith("{"):
        return None
    try:
        form = json.loads(text)
    except (ValueError, RecursionError):
        return None
    fits = (
        isinstance(form, dict)
        and set(form) == {"content", "tool_calls"}
        and isinstance(form["content"], str | None)
        and isinstance(form["tool_calls"], list)
        and all(_is_call(call) for call in form["tool_calls"])
    )
    return form if fits else None


def _is_call(call: Any) -> bool:
    return (
        isinstance(call, dict)
        and set(call) == {"id", "name", "arguments"}
        and all(isinstance(value, str) for value in call.values())
    )
