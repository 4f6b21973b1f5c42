"""Input items of the Responses API as chat messages.

A reply comes back as several items: its reasoning, its text, its calls. They become one assistant
message again, by the rules of vLLM's `construct_input_messages`, so that the prompt is vLLM's own.
Items that no chat template knows are left out and named.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

from clawrl_gym.core.types import JsonObject
from clawrl_gym.gateway.dialects.responses_tools import flat_name
from clawrl_gym.gateway.wire.refusals import Refusal

_ROLES = ("user", "assistant", "system", "developer", "tool")
_BESIDE_CONTENT = frozenset({"id", "phase", "status", "type"})
"""Fields of a message that say nothing to a model."""
_CUT_OFF = ("in_progress", "incomplete")
_ITEM_ID = re.compile(r"(?:resp|msg|rs)_([0-9a-f]{32})|(?:fc|ctc)_([0-9a-f]{32})_\d+")
_BUILT_IN_CALLS = {
    "apply_patch_call": ("apply_patch", "operation"),
    "local_shell_call": ("local_shell", "action"),
    "shell_call": ("shell", "action"),
}
"""Calls of tools that clients carry out without offering them as functions: the name that the tool
has in a history, and the field that holds its arguments."""


def answer_id_of(text: object) -> str | None:
    """The id of the answer (`Answer.id`) that the id of a response or of an item is made of."""
    found = _ITEM_ID.fullmatch(text) if isinstance(text, str) else None
    return (found[1] or found[2]) if found else None


@dataclass(slots=True)
class History:
    """Chat messages, while they are made of items."""

    messages: list[JsonObject] = field(default_factory=list)
    sources: list[int | None] = field(default_factory=list)
    """For each message the index of its first item; None for the instructions."""
    references: dict[int, str] = field(default_factory=dict)
    """`DialectRequest.references`."""
    unread: set[str] = field(default_factory=set)
    """Names of what was left out."""
    _answer: str | None = None
    """Id of the answer whose items the last message is made of, where they tell it."""
    _referred: set[str] = field(default_factory=set)
    """Ids of the answers that are referred to: their replies are whole."""

    def add(self, message: JsonObject, source: int | None, answer: str | None = None) -> None:
        self.messages.append(message)
        self.sources.append(source)
        self._answer = answer

    def add_to_reply(self, source: int, item: JsonObject, name: str, value: object) -> None:
        """One field of an assistant message: of the last message, if it can be of the same reply,
        else of a new one. Calls are added to those before."""
        answer = answer_id_of(item.get("id"))
        if answer in self._referred:
            return
        if not self._is_same_reply(answer, name):
            self.add({"role": "assistant"}, source, answer)
        reply = self.messages[-1]
        if name == "tool_calls":
            cast(list[object], reply.setdefault(name, [])).append(value)
        else:
            reply[name] = value
        self._answer = self._answer or answer

    def refer(self, source: int, answer: str) -> None:
        """A message that stands for the reply of an earlier answer; one for all its items."""
        if answer in self._referred:
            return
        self._referred.add(answer)
        placeholder: JsonObject = {"role": "assistant", "content": ""}
        if self.messages and answer == self._answer:
            self.messages[-1] = placeholder
        else:
            self.add(placeholder, source, answer)
        self.references[len(self.messages) - 1] = answer

    def _is_same_reply(self, answer: str | None, name: str) -> bool:
        if not self.messages or len(self.messages) - 1 in self.references:
            return False
        last = self.messages[-1]
        is_free = name == "tool_calls" or name not in last
        is_other = answer and self._answer and answer != self._answer
        return last["role"] == "assistant" and is_free and not is_other


def history_of(instructions: str | None, items: str | list[JsonObject]) -> History:
    """The messages of a request. Raises Refusal (400) for what cannot be one."""
    history = History()
    if instructions:
        history.add({"role": "system", "content": instructions}, None)
    if isinstance(items, str):
        history.add({"role": "user", "content": items}, 0)
        return history
    for at, item in enumerate(items):
        kind = _kind_of(item)
        read = _READERS.get(kind)
        if read is None:
            history.unread.add(f"input.{kind[:100]}")
        else:
            read(history, at, item)
    if items:
        _check_ended(items[-1], len(items) - 1)
    return history


def _kind_of(item: JsonObject) -> str:
    kind = item.get("type")
    if kind is None:
        return "message" if "role" in item else "item_reference"
    return kind if isinstance(kind, str) else "?"


def _check_ended(item: JsonObject, at: int) -> None:
    """Raise Refusal (400) for a reply that is to be continued."""
    is_reply = _kind_of(item) == "reasoning" or item.get("role") == "assistant"
    if is_reply and item.get("status") in _CUT_OFF:
        raise Refusal(
            400,
            f"input.{at}.status: got {item['status']!r} in the last item, expected a message or "
            "a tool's output after it: a reply is begun, never continued",
            param=f"input.{at}.status",
        )


def _message(history: History, at: int, item: JsonObject) -> None:
    role, content = item.get("role"), item.get("content")
    role = role.strip().lower() if isinstance(role, str) else role
    if role not in _ROLES:
        expected = ", ".join(_ROLES)
        wrong = f"input.{at}.role: got {role!r:.100}, expected one of {expected}"
        raise Refusal(400, wrong, param=f"input.{at}.role")
    if role != "assistant":
        rest = {name: value for name, value in item.items() if name not in _BESIDE_CONTENT}
        history.add({**rest, "role": role}, at)
        return
    others = item.keys() - _BESIDE_CONTENT - {"role", "content"}
    history.unread.update(f"input.{name[:100]}" for name in others if item[name])
    if content or isinstance(content, str):
        history.add_to_reply(at, item, "content", content)


def _reasoning(history: History, at: int, item: JsonObject) -> None:
    """The thoughts, else their summary. What is encrypted was made elsewhere, for another model."""
    text = _text_of(item.get("content")) or _text_of(item.get("summary"))
    if text:
        history.add_to_reply(at, item, "reasoning_content", text)


def _text_of(parts: object) -> str:
    if isinstance(parts, str):
        return parts
    listed = parts if isinstance(parts, list) else []
    texts = [part.get("text") for part in listed if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))


def _function_call(history: History, at: int, item: JsonObject) -> None:
    name, namespace = item.get("name"), item.get("namespace")
    if isinstance(namespace, str) and namespace and isinstance(name, str):
        name = flat_name(namespace, name)
    _add_call(history, at, item, name, item.get("arguments"))


def _custom_call(history: History, at: int, item: JsonObject) -> None:
    """The call of a free-form tool, as the function that it is to the model."""
    text = json.dumps({"input": item.get("input") or ""}, ensure_ascii=False)
    _add_call(history, at, item, item.get("name"), text)


def _built_in_call(history: History, at: int, item: JsonObject) -> None:
    name, arguments = _BUILT_IN_CALLS[_kind_of(item)]
    _add_call(history, at, item, name, json.dumps(item.get(arguments) or {}, ensure_ascii=False))


def _add_call(history: History, at: int, item: JsonObject, name: object, arguments: object) -> None:
    call = {
        "id": item.get("call_id") or item.get("id") or "",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }
    history.add_to_reply(at, item, "tool_calls", call)


def _output(history: History, at: int, item: JsonObject) -> None:
    """The output of a call: a text or parts."""
    output = item.get("output")
    _add_output(history, at, item, output if isinstance(output, list) else _as_text(output))


def _built_in_output(history: History, at: int, item: JsonObject) -> None:
    """What a shell or a patch gave back: its parts have no type of their own."""
    _add_output(history, at, item, _as_text(item.get("output")))


def _add_output(history: History, at: int, item: JsonObject, content: object) -> None:
    call_id = item.get("call_id") or item.get("id") or ""
    history.add({"role": "tool", "tool_call_id": call_id, "content": content}, at)


def _as_text(output: object) -> str:
    if isinstance(output, str):
        return output
    return "" if output is None else json.dumps(output, ensure_ascii=False)


def _reference(history: History, at: int, item: JsonObject) -> None:
    answer = answer_id_of(item.get("id"))
    if answer is None:
        sent = item.get("id")
        wrong = f"input.{at}.id: got {sent!r:.100}, expected the id of an item of a stored response"
        raise Refusal(400, wrong, param=f"input.{at}.id")
    history.refer(at, answer)


_READERS: Mapping[str, Callable[[History, int, JsonObject], None]] = {
    "message": _message,
    "reasoning": _reasoning,
    "function_call": _function_call,
    "custom_tool_call": _custom_call,
    "function_call_output": _output,
    "custom_tool_call_output": _output,
    "item_reference": _reference,
    **dict.fromkeys(_BUILT_IN_CALLS, _built_in_call),
    **dict.fromkeys((f"{kind}_output" for kind in _BUILT_IN_CALLS), _built_in_output),
}
