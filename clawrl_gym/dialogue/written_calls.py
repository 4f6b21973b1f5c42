"""Calls that a client hands back as text: smolagents writes a reply's calls as a Python list.

Its agent that writes code adds to each reply what the policy did not write: the end of the code,
which was a stop text, and a call of the interpreter.
"""

from __future__ import annotations

import ast
from typing import cast

from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import Message, ToolCall

_MARK = "Calling tools:\n["
_END_OF_CODE = "</code>"
_LONGEST = 16_384
"""Characters of calls that are read."""


def with_calls(message: Message) -> Message:
    """A reply whose calls are written below its text, with them as calls; any other as it is."""
    if message.get("role") != "assistant" or message.get("tool_calls"):
        return message
    said, mark, written = text_of(message).rpartition(_MARK)
    if not mark or said[-1:] not in ("", "\n") or len(written) > _LONGEST:
        return message
    calls = _calls(f"[{written}")
    if not calls:
        return message
    if _is_code(calls[0]):
        return {**message, "content": said.rstrip().removesuffix(_END_OF_CODE)}
    return {**message, "content": said, "tool_calls": calls}


def _calls(written: str) -> list[ToolCall]:
    """The calls; none where it is anything else."""
    try:
        calls = ast.literal_eval(written)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    is_list = isinstance(calls, list) and all(map(_is_call, calls))
    return cast("list[ToolCall]", calls) if is_list else []


def _is_call(call: object) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str)


def _is_code(call: ToolCall) -> bool:
    """Whether it is the agent's own: a tool of that name has its code in a field."""
    function = call["function"]
    return function["name"] == "python_interpreter" and isinstance(function.get("arguments"), str)
