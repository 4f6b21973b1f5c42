"""The conversation of a Messages request, as messages of chat completions.

Blocks are read as vLLM's own converter reads them, so that the prompt is the same. Blocks that it
does not know are passed on as they are: `wire_messages.py` keeps their text and names the rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from clawrl_gym.core.types import JsonObject
from clawrl_gym.dialogue.call_failures import object_of
from clawrl_gym.gateway.wire.refusals import Refusal

NO_OBJECT = "_"
"""The only member of a call's input whose arguments were no JSON object: their text. Chat templates
are given the same."""
_ROLES = ("user", "assistant", "system")
_BILLING = "x-anthropic-billing-header"
"""Begins a block of Claude Code that changes with every request, and the prompt's beginning with
it."""
_TOOL_CHANGES = ("tool_addition", "tool_removal")
_NOT_SAID = frozenset({"role", "content", "cache_control"})


@dataclass(slots=True)
class History:
    """Messages of chat completions, while they are read."""

    messages: list[JsonObject] = field(default_factory=list)
    unread: set[str] = field(default_factory=set)
    """Names of what was left out."""
    tool_changes: list[JsonObject] = field(default_factory=list)
    """The blocks by which system messages add and remove tools."""

    def add_system(self, content: object, where: str) -> None:
        """Add the system message of the request, if it has text."""
        text = content if isinstance(content, str) else "".join(self._system_texts(content, where))
        if text:
            self.messages.append({"role": "system", "content": text})

    def _system_texts(self, content: object, where: str) -> Iterator[str]:
        for block in _blocks_of(content, where):
            kind, text = block.get("type"), block.get("text")
            if kind in _TOOL_CHANGES and where != "system":
                self.tool_changes.append(block)
            elif kind != "text" or not isinstance(text, str):
                self.unread.add(f"system.{kind}")
            elif not text.startswith(_BILLING):
                yield text

    def add(self, message: JsonObject, where: str) -> None:
        """Add one message of the request. Raises Refusal (400)."""
        role, content = message.get("role"), message.get("content")
        if role not in _ROLES:
            raise _wrong(f"{where}.role", role, "'user', 'assistant' or 'system'")
        if role == "system":
            if not (isinstance(content, str) and content.startswith(_BILLING)):
                self.add_system(content, f"{where}.content")
            return
        said: JsonObject = {"role": role}
        if len(message) > 2:
            said |= {key: message[key] for key in message.keys() - _NOT_SAID}
        if isinstance(content, str):
            said["content"] = content
        else:
            said |= self._said(_blocks_of(content, f"{where}.content"), is_user=role == "user")
        if role == "assistant" or "content" in said:
            self.messages.append(said)

    def _said(self, blocks: list[JsonObject], *, is_user: bool) -> JsonObject:
        """Fields of the chat message that blocks are; results of tools come before it."""
        parts: list[JsonObject] = []
        thoughts: list[str] = []
        calls: list[JsonObject] = []
        for block in blocks:
            kind = block.get("type")
            if kind == "text":
                parts += [block] if block.get("text") else []
            elif kind == "thinking":
                thoughts.append(str(block.get("thinking") or ""))
            elif kind == "redacted_thinking":
                self.unread.add("messages.content.redacted_thinking")
            elif kind == "tool_use":
                calls.append(_call(block))
            elif kind == "tool_result" and is_user:
                self._add_result(block)
            else:
                parts.append(_picture(block))
        said: JsonObject = {}
        if any(thoughts):
            said["reasoning_content"] = "".join(thoughts)
        if calls:
            said["tool_calls"] = calls
        if parts:
            is_text = len(parts) == 1 and parts[0].get("type") == "text"
            said["content"] = parts[0]["text"] if is_text else parts
        return said

    def _add_result(self, block: JsonObject) -> None:
        """A tool's result; its pictures are said by the user, as tools only write."""
        content = block.get("content")
        if isinstance(content, dict):
            content = [content]
        parts = [_picture(item) for item in content] if isinstance(content, list) else []
        pictures = [part for part in parts if _is_picture(part)]
        if isinstance(content, list):
            content = [part for part in parts if not _is_picture(part)]
        if block.get("is_error"):
            self.unread.add("messages.content.tool_result.is_error")
        result = {"role": "tool", "tool_call_id": str(block.get("tool_use_id") or "")}
        self.messages.append({**result, "content": content or ""})
        if pictures:
            self.messages.append({"role": "user", "content": pictures})


def _blocks_of(content: object, where: str) -> list[JsonObject]:
    """The blocks of a message. Raises Refusal (400)."""
    if isinstance(content, dict):
        content = [content]  # one block without its list
    if not isinstance(content, list):
        raise _wrong(where, content, "a text or a list of blocks")
    for at, block in enumerate(content):
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise _wrong(f"{where}.{at}", block, "a block with a type")
    return content


def _wrong(where: str, got: object, expected: str) -> Refusal:
    return Refusal(400, f"{where}: got {got!r:.100}, expected {expected}", param=where)


def _picture(block: object) -> JsonObject:
    """A picture in the form of chat completions; any other block as it is."""
    if not isinstance(block, dict):
        return {"type": "text", "text": block}
    source = block.get("source")
    if block.get("type") != "image" or not isinstance(source, dict):
        return block
    kind, url, data = source.get("type", "base64"), source.get("url"), source.get("data")
    if kind == "base64" and isinstance(data, str):
        url = f"data:{source.get('media_type', 'image/jpeg')};base64,{data}"
    elif kind != "url":
        return block
    return {"type": "image_url", "image_url": {"url": url}}


def _is_picture(part: JsonObject) -> bool:
    return part.get("type") == "image_url"


def _call(block: JsonObject) -> JsonObject:
    function = {"name": block.get("name") or "", "arguments": _arguments_of(block.get("input"))}
    return {"id": str(block.get("id") or ""), "type": "function", "function": function}


def _arguments_of(block_input: object) -> str:
    """A call's arguments as they were sampled, where its input says that they were no object."""
    if isinstance(block_input, str):
        return block_input
    if isinstance(block_input, dict) and block_input.keys() == {NO_OBJECT}:
        text = block_input[NO_OBJECT]
        if isinstance(text, str) and object_of(text) is None:
            return text
    return json.dumps(block_input or {})
