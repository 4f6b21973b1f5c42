"""Reasons why no client can carry out a reply's tool calls.

A client answers a call that works and one that fails with a result. A call that it cannot even
parse gets no answer: some clients end their run there, and drop the reply from their history.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NoReturn

from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import Message, Tool

_SHOWN = 200
_NAMED = 12
"""Most tools that the message to the policy names."""


def call_failures(reply: Message, tools: Sequence[Tool]) -> list[str]:
    """Errors of the calls, in words for the policy; empty when all can be carried out.

    `tools`: those that the request offered; names are unknown when it offered none.
    """
    failures = [*reply.get("unread_calls", [])]
    names = [str(tool.get("function", {}).get("name")) for tool in tools]
    for call in reply.get("tool_calls") or []:
        function = call.get("function") or {}
        name, arguments = str(function.get("name") or ""), function.get("arguments") or "{}"
        if names and name not in names:
            more = ", ..." if len(names) > _NAMED else ""
            known = ", ".join(names[:_NAMED]) + more
            failures.append(f"there is no tool {name[:_SHOWN]!r}, expected one of {known}")
        if isinstance(arguments, str) and arguments.strip() and object_of(arguments) is None:
            failures.append(
                f"got {arguments[:_SHOWN]!r} as arguments of {name[:_SHOWN]!r}, expected one JSON "
                "object"
            )
    return failures


def may_be_dropped(reply: Message, tools: Sequence[Tool]) -> bool:
    """Whether clients leave a reply out of their history: it is empty, or cannot be carried out."""
    is_empty = not text_of(reply).strip() and not reply.get("tool_calls")
    return is_empty or bool(call_failures(reply, tools))


def object_of(arguments: str) -> dict[str, object] | None:
    """The JSON object of a call's arguments, as any client parses it; None for everything else."""
    try:
        value = json.loads(arguments, parse_constant=_no_json)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _no_json(name: str) -> NoReturn:
    """Refuse NaN and the like, which only Python reads as JSON."""
    raise ValueError(f"got {name}, expected JSON")
