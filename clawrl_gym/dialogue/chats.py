"""Chats to learn from, as data sets have them: rows of JSON in, checked messages out.

    {"messages": [...], "tools": [...]}                      every reply is imitated, or the last
    {"prompt": [...], "completion": [...], "tools": [...]}   the completion's replies
    {"prompt": "...", "completion": "..."}                   plain text, without a chat template

What a row lacks is said in `BadRow`, with words that many rows share and may be counted by.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

from clawrl_gym.core.types import Message, Tool

LearnOn = Literal["all", "last"]
_ROLES = ("system", "developer", "user", "assistant", "tool")
_INSTRUCTING = ("system", "developer")
_PICTURES = ("image_url", "image", "input_image", "video", "video_url", "input_audio", "audio")
_FORMS = (
    '{"messages": [...]}, {"prompt": [...], "completion": [...]} or '
    '{"prompt": "...", "completion": "..."}'
)


class BadRow(ValueError):
    """Why a row cannot be learned from; the text is a kind, the same for all such rows."""


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation with some replies to imitate."""

    messages: list[Message]
    learned: tuple[int, ...]
    """Positions of these replies among the messages."""
    tools: list[Tool] = field(default_factory=list)
    """Tools offered to the model, in OpenAI's form."""
    template: dict[str, object] = field(default_factory=dict)
    """Further variables of the chat template (`chat_template_kwargs`)."""

    @property
    def opening(self) -> str:
        """The messages before the first reply: rows that share them belong to one split."""
        first = next(at for at, m in enumerate(self.messages) if m["role"] == "assistant")
        return json.dumps(self.messages[:first], sort_keys=True)


@dataclass(frozen=True, slots=True)
class PlainText:
    """A text and its continuation, which is imitated; special tokens in it are read as such."""

    prompt: str
    completion: str

    @property
    def opening(self) -> str:
        """The text before the continuation, as a chat's opening."""
        return self.prompt


def read_row(row: object, learn_on: LearnOn) -> Chat | PlainText:
    """Check and read one row. Raises BadRow when it cannot be learned from."""
    if not isinstance(row, Mapping):
        raise BadRow("no JSON object")
    if "messages" in row:
        messages = _messages(row["messages"], "messages")
        return _chat(row, messages, 0, learn_on)
    if "prompt" not in row or "completion" not in row:
        raise BadRow(f"neither of the forms {_FORMS}")
    prompt, completion = row["prompt"], row["completion"]
    if isinstance(prompt, str) and isinstance(completion, str):
        if not completion:
            raise BadRow("an empty completion")
        return PlainText(prompt, completion)
    before = _messages(prompt, "prompt")
    return _chat(row, [*before, *_messages(completion, "completion")], len(before), learn_on)


def _chat(
    row: Mapping[str, object], messages: list[Message], first: int, learn_on: LearnOn
) -> Chat:
    """A chat from checked messages; `first`: the position of the first that may be imitated."""
    _check_order(messages)
    learned = tuple(at for at, m in enumerate(messages) if m["role"] == "assistant" and at >= first)
    if not learned:
        raise BadRow("no assistant turn")
    if learn_on == "last":
        learned = learned[-1:]
    options = row.get("chat_template_kwargs") or {}
    if not isinstance(options, Mapping):
        raise BadRow("chat_template_kwargs that are no JSON object")
    return Chat(messages[: learned[-1] + 1], learned, _tools(row.get("tools")), dict(options))


def _check_order(messages: Sequence[Message]) -> None:
    """Check the order of roles: instructions, a person, replies to people or tools, results."""
    before = "start"
    called = False
    for message in messages:
        role = message["role"]
        fits = {
            "system": before == "start",
            "developer": before == "start",
            "user": before not in ("tool",) and not (before == "assistant" and called),
            "assistant": before in ("user", "tool"),
            "tool": before == "tool" or (before == "assistant" and called),
        }
        if not fits[role]:
            raise BadRow("roles out of order")
        if role not in _INSTRUCTING:
            before = role
        if role == "assistant":
            called = bool(message.get("tool_calls"))


def _messages(value: object, name: str) -> list[Message]:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise BadRow(f"{name} that are no list of messages")
    return [_message(message) for message in value]


def _message(value: object) -> Message:
    """A message without the empty fields that tables of many rows have."""
    if not isinstance(value, Mapping):
        raise BadRow("a message that is no JSON object")
    role = value.get("role")
    if role not in _ROLES:
        raise BadRow(f"a role other than {', '.join(_ROLES)}")
    message: dict[str, object] = {"role": role, "content": _text(value.get("content"))}
    calls = value.get("tool_calls")
    if role == "assistant" and calls:
        message["tool_calls"] = _calls(calls)
    thoughts = value.get("reasoning_content") or value.get("reasoning")
    if role == "assistant" and isinstance(thoughts, str):
        message["reasoning_content"] = thoughts
    if role == "assistant" and not message["content"] and not calls and not thoughts:
        raise BadRow("an empty reply")
    for name in ("tool_call_id", "name"):
        if isinstance(value.get(name), str):
            message[name] = value[name]
    return cast(Message, message)


def _text(content: object) -> str:
    """The content as text, its parts joined as the policy's server joins them."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise BadRow("content that is neither text nor parts of text")
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind in _PICTURES:
            raise BadRow(f"parts of type {kind}, of which only text is learned")
        text = part.get("text") if isinstance(part, Mapping) else part
        if not isinstance(text, str):
            raise BadRow("content that is neither text nor parts of text")
        texts.append(text)
    return "\n".join(texts)


def _calls(calls: object) -> list[dict[str, object]]:
    """Tool calls in OpenAI's form, with arguments as an object, as chat templates take them."""
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        raise BadRow("tool calls that are no list")
    return [_call(call) for call in calls]


def _call(call: object) -> dict[str, object]:
    function = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise BadRow("a tool call without a name")
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            raise BadRow("a tool call whose arguments are no JSON") from None
    if not isinstance(arguments, Mapping):
        raise BadRow("a tool call whose arguments are no JSON object")
    whole: dict[str, object] = {
        "type": "function",
        "function": {"name": function["name"], "arguments": dict(arguments)},
    }
    identity = call.get("id") if isinstance(call, Mapping) else None
    return {"id": identity, **whole} if isinstance(identity, str) else whole


def _tools(tools: object) -> list[Tool]:
    """Tools from a list in OpenAI's form, or from its JSON, as some data sets have it."""
    if isinstance(tools, str):
        try:
            tools = json.loads(tools)
        except ValueError:
            raise BadRow("tools that are no JSON") from None
    if not tools:
        return []
    if not isinstance(tools, Sequence) or not all(isinstance(tool, Mapping) for tool in tools):
        raise BadRow("tools that are no list of JSON objects")
    wrapped = [t if "function" in t else {"type": "function", "function": t} for t in tools]
    return cast(list[Tool], [dict(tool) for tool in wrapped])
