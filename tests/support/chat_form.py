"""Recorded requests of other dialects as chat requests: what rules and sessions look at.

Only what those look at, in the plainest way; `gateway/dialects/` has its own tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Fields = dict[str, Any]


def chat_form(path: str, body: Fields) -> Fields:
    """The body of a request to `path` as one of chat completions."""
    if path == "/v1/messages":
        return _of_messages(body)
    return _of_responses(body) if path == "/v1/responses" else body


def _of_messages(body: Fields) -> Fields:
    system = [{"role": "system", "content": _text(body["system"])}] if body.get("system") else []
    said = [chat for message in body["messages"] for chat in _of_message(message)]
    return _chat(body, [*system, *said], body["max_tokens"], [t["name"] for t in body["tools"]])


def _of_message(message: Fields) -> Iterator[Fields]:
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for block in blocks:
        if block["type"] == "tool_result":
            result = {"role": "tool", "tool_call_id": block["tool_use_id"]}
            yield {**result, "content": _text(block["content"])}
    calls = [_call(b["id"], b["name"], "{}") for b in blocks if b["type"] == "tool_use"]
    text = _text([block for block in blocks if block["type"] == "text"])
    if text or calls:
        chat = {"role": message["role"], "content": text}
        yield {**chat, "tool_calls": calls} if calls else chat


def _of_responses(body: Fields) -> Fields:
    messages = [_of_item(item) for item in body["input"]]
    tools = [tool.get("name") or tool["type"] for tool in body.get("tools", [])]
    return _chat(body, messages, body.get("max_output_tokens"), tools)


def _of_item(item: Fields) -> Fields:
    if item["type"] == "function_call":
        calls = [_call(item["call_id"], item["name"], item["arguments"])]
        return {"role": "assistant", "content": None, "tool_calls": calls}
    if item["type"] == "function_call_output":
        return {"role": "tool", "tool_call_id": item["call_id"], "content": _text(item["output"])}
    role = "system" if item["role"] == "developer" else item["role"]
    return {"role": role, "content": _text(item["content"])}


def _chat(body: Fields, messages: list[Fields], limit: int | None, tools: list[str]) -> Fields:
    offered = [{"type": "function", "function": {"name": name}} for name in tools]
    form: Fields = {"model": body["model"], "messages": messages}
    return form | ({"max_tokens": limit} if limit else {}) | ({"tools": offered} if tools else {})


def _call(id: str, name: str, arguments: str) -> Fields:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _text(content: str | list[Fields]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if "text" in part)
