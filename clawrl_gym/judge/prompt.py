"""What a judge's model reads of a case: everything that others wrote, quoted as data.

Every text stands between two tags that no text can hold, and no text can hold a control token of a
chat template: what imitates instructions, votes or the end of a turn is only part of a quotation.
"""

from __future__ import annotations

import json
import re
from typing import cast

from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import FunctionCall, FunctionSchema, Message, Tool, ToolCall
from clawrl_gym.judge.interface import Case, clipped

_TAGS = "request|tools|reply|next_state"
_TAG = re.compile(rf"<(?=\s*/?\s*(?:{_TAGS})\b)", re.IGNORECASE)
_CONTROL = re.compile(
    r"<(?=[|\uff5c])|<(?=/?(?:think|tool_call|tool_response|tools|s)>)|\[(?=/?(?:INST|HINT_)|/?SYS)"
)
_THOUGHTS = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)


def case_messages(instructions: str, case: Case, max_chars: int) -> list[Message]:
    """The judge's system message and the case."""
    return [
        {"role": "system", "content": instructions},
        {"role": "user", "content": case_text(case, max_chars)},
    ]


def case_text(case: Case, max_chars: int) -> str:
    """The case as quotations; each text has at most `max_chars` characters."""
    parts = [_quoted("request", case.request, max_chars)]
    if case.tools:
        signatures = "\n".join(_signature(tool) for tool in case.tools)
        parts.append(_quoted("tools", signatures, max_chars))
    parts.append(_quoted("reply", reply_text(case.reply), max_chars))
    parts += [
        _quoted("next_state", text_of(message), max_chars, role=str(message.get("role") or "user"))
        for message in case.next_state
    ]
    return "\n".join(parts)


def reply_text(reply: Message) -> str:
    """A reply without its reasoning; tool calls as name(arguments)."""
    words = _THOUGHTS.sub("", text_of(reply)).strip()
    calls = [_call(call) for call in reply.get("tool_calls") or []]
    return "\n".join([*([words] if words else []), *calls])


def as_data(text: str) -> str:
    """The text without anything that could end its quotation or a turn."""
    return _CONTROL.sub(_broken, _TAG.sub("< ", text))


def _broken(match: re.Match[str]) -> str:
    return f"{match.group()} "


def _quoted(tag: str, text: str, max_chars: int, role: str | None = None) -> str:
    attribute = "" if role is None else f' role="{re.sub(chr(34), "", as_data(role))}"'
    return f"<{tag}{attribute}>\n{as_data(clipped(text, max_chars))}\n</{tag}>"


def _call(call: ToolCall) -> str:
    function = call.get("function") or FunctionCall()
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments or {})
    return f"{function.get('name') or ''}({arguments})"


def _signature(tool: Tool) -> str:
    function = tool.get("function") or cast(FunctionSchema, tool)  # older requests hold it bare
    parameters = function.get("parameters") or {}
    names = ", ".join(parameters.get("properties") or parameters.get("required") or ())
    return f"{function.get('name') or ''}({names})"
