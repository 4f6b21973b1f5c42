"""Tool calls of the OpenAI API in messages: as an action, and their results as messages."""

from __future__ import annotations

import json

from clawrl_gym.agents.tool_calls import Call
from clawrl_gym.core.types import FunctionCall, Message, ToolCall


def calls_of(reply: Message) -> tuple[Call, ...]:
    """The calls of a reply."""
    return tuple(_call(call) for call in reply.get("tool_calls") or [])


def came_back(reply: Message, observation: str) -> list[Message]:
    """What came back to a reply: one message a result, or what the user said."""
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


def _call(call: ToolCall) -> Call:
    function = call.get("function") or FunctionCall()
    arguments = function.get("arguments", "")
    return Call(
        id=str(call.get("id", "")),
        name=str(function.get("name", "")),
        arguments=arguments if isinstance(arguments, str) else json.dumps(arguments),
    )
