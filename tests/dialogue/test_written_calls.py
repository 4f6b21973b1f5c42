"""Calls that come back as text: the reply is known again, and nothing else is read as calls."""

from __future__ import annotations

import pytest

from clawrl_gym.core.types import Message
from clawrl_gym.dialogue.graph import same_reply
from clawrl_gym.dialogue.written_calls import with_calls


def calling(content: str | None, *arguments: str) -> Message:
    return {
        "role": "assistant",
        "content": content,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": one}}
            for one in arguments
        ],
    }


def written(said: str, *arguments: object) -> Message:
    """As smolagents writes them (`ActionStep.to_messages`)."""
    calls = [
        {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": one}}
        for one in arguments
    ]
    return {"role": "assistant", "content": f"{said}Calling tools:\n{calls}"}


@pytest.mark.parametrize("said", ["", "I add them."])
def test_a_reply_with_its_calls_as_text_is_the_same_reply(said: str) -> None:
    reply = calling(said or None, '{"a": 2, "b": "it\'s"}', "{}")
    returned = written(f"{said}\n" if said else "", {"a": 2, "b": "it's"}, {})
    assert same_reply(returned, reply)
    assert not same_reply(written(f"{said}\n" if said else "", {"a": 3}, {}), reply)


@pytest.mark.parametrize(
    "content",
    [
        "Calling tools:\n[]",
        "Calling tools:\n[1]",
        "Calling tools:\n[{'function': {'name': 3}}]",
        "Calling tools:\n[{'function': {'name': 'add'}",
        "Calling tools:\n[__import__('os')]",
        "Calling tools:\n[" + "[" * 300,
        "Calling tools:\n[" + "-" * 9000 + "1]",
        "Calling tools:\n[{'function': {'name': 'add'}}" + " " * 17000 + "]",
        "He wrote Calling tools:\n[{'function': {'name': 'add'}}]",
    ],
)
def test_any_other_text_stays_what_it_is(content: str) -> None:
    message: Message = {"role": "assistant", "content": content}
    assert with_calls(message) is message


def test_only_a_reply_is_read() -> None:
    message: Message = {**written("", {}), "role": "user"}
    assert with_calls(message) is message


def test_what_an_agent_adds_to_code_is_left_out() -> None:
    code = "I add them.\n<code>\nprint(2 + 3)\n"
    reply: Message = {"role": "assistant", "content": code}
    function = {"name": "python_interpreter", "arguments": "print(2 + 3)"}
    calls = [{"id": "call_1", "type": "function", "function": function}]
    returned: Message = {"role": "assistant", "content": f"{code}</code>\nCalling tools:\n{calls}"}
    assert same_reply(returned, reply)
