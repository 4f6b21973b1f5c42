"""The case as a judge's model reads it: everything that others wrote, quoted as data.

Every text stands between two tags that no text can hold, and no text can hold a control token of a
chat template: what imitates instructions, votes or the end of a turn is only part of a quotation.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import cast

from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import FunctionCall, FunctionSchema, Message, Tool, ToolCall
from clawrl_gym.judge.interface import Case, clipped

_TAGS = "request|tools|reply|next_state"
_CONTROL = re.compile(
    rf"<(?=\s*/?\s*(?i:{_TAGS})\b)"
    r"|<(?=[|!\[])"  # <|im_end|>, <|end_of_turn|>, and forms with other bars
    r"|<(?=[^\s<>]{1,60}>)"  # <s>, </think>, <start_of_turn>, <BOS_TOKEN>, <<SYS>>
    r"|\[(?=/?(?:INST|HINT_|SYS))"
    r"|\[(?=/?[A-Z][A-Z0-9_]{2,40}\])|\[(?=[a-z]MASK\])"  # [TOOL_CALLS], [/THINK], [gMASK]
    r"|\[(?=\|[^\]\n]{1,40}\|\])"  # [|assistant|]
    r"|\](?=~!?[bB][\[\]])|\[(?=[eE]~\[)"  # ]~b], [e~[
    r"|>(?=>[A-Z]{3,20}<<)"  # >>ANSWER<<
    r"|#(?=## ?(?i:Instruction|Response|Input|System|User|Human|Assistant)\b)"
)
"""The sign after which a space is put, in the control tokens of the chat templates of all families
known: whatever stands in angle brackets without a space, and what some put in square ones."""
_LOOK_ALIKES = str.maketrans(
    "\u2039\u27e8\u2329\u3008\u276c\u276e\u1438\u02c2\ufe64\u2770\u27ea\u226a"
    "\u203a\u27e9\u232a\u3009\u276d\u276f\u1433\u02c3\ufe65\u2771\u27eb\u226b"
    "\u2502\u2223\u00a6\u01c0\u2758\u23d0\u2503\u05c0\u3010\u3011\u3014\u3015\u27e6\u27e7",
    "<" * 12 + ">" * 12 + "|" * 8 + "[][][]",
)
"""Signs that look like those of control tokens; full-width forms are known by NFKC."""
_THOUGHTS = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)


def case_messages(instructions: str, case: Case, max_chars: int) -> list[Message]:
    """The judge's system message and the case."""
    return [
        {"role": "system", "content": instructions},
        {"role": "user", "content": case_text(case, max_chars)},
    ]


def case_text(case: Case, max_chars: int) -> str:
    """The case as quotations; each text has at most `max_chars` characters."""
    parts = [quoted("request", case.request, max_chars)]
    if case.tools:
        signatures = "\n".join(_signature(tool) for tool in case.tools)
        parts.append(quoted("tools", signatures, max_chars))
    parts.append(quoted("reply", reply_text(case.reply), max_chars))
    parts += [
        quoted("next_state", text_of(message), max_chars, role=str(message.get("role") or "user"))
        for message in case.next_state
    ]
    return "\n".join(parts)


def reply_text(reply: Message) -> str:
    """A reply without its reasoning; tool calls as name(arguments)."""
    words = _THOUGHTS.sub("", text_of(reply)).strip()
    calls = [_call(call) for call in reply.get("tool_calls") or []]
    return "\n".join([*([words] if words else []), *calls])


def as_data(text: str) -> str:
    """The text without anything that could end its quotation or a turn.

    Of a control token only its first sign is parted from the rest, in whatever script it is
    written; everything else stays as it is.
    """
    plain = text if text.isascii() else "".join(map(_plain, text)).translate(_LOOK_ALIKES)
    parts, at = [], 0
    for match in _CONTROL.finditer(plain):
        parts.append(text[at : match.end()])
        at = match.end()
    return " ".join([*parts, text[at:]])


def _plain(sign: str) -> str:
    """One sign for one, so that places stay the same."""
    plain = unicodedata.normalize("NFKC", sign)
    return plain if len(plain) == 1 else sign


def quoted(tag: str, text: str, max_chars: int, **attributes: str) -> str:
    """The text between tags, as data of at most so many characters."""
    values = {name: re.sub('"', "", as_data(value)) for name, value in attributes.items()}
    opening = "".join(f' {name}="{value}"' for name, value in values.items())
    return f"<{tag}{opening}>\n{as_data(clipped(text, max_chars))}\n</{tag}>"


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
