"""The conversation agent: messages with tools, and replies as actions."""

import json

import pytest

from clawrl_gym.agents.agent import Action
from clawrl_gym.agents.tool_calls import Call, Reply, decode
from clawrl_gym.core.types import Message, Tool, ToolCall
from clawrl_gym.envs.conversation.agent import ConversationAgent


def asking(*calls: ToolCall) -> Message:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


READS: ToolCall = {"id": "7", "type": "function", "function": {"name": "read", "arguments": "{}"}}
TOOL: Tool = {"type": "function", "function": {"name": "read", "parameters": {}}}


def test_what_is_said_is_the_action_without_the_space_around_it() -> None:
    said: Message = {"role": "assistant", "content": " its 7\n"}
    assert ConversationAgent().action(said) == Action("its 7")


def test_what_is_said_in_the_form_of_calls_calls_nothing() -> None:
    text = json.dumps({"content": None, "tool_calls": []})
    action = ConversationAgent().action({"role": "assistant", "content": text})
    assert isinstance(action, Action)
    assert decode(action.text) == Reply(text)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (READS, Call("7", "read", "{}")),
        (
            {"id": "7", "function": {"name": "read", "arguments": {"a": 1}}},
            Call("7", "read", '{"a": 1}'),
        ),
        ({}, Call("", "", "")),
        ({"id": None, "function": None}, Call("None", "", "")),
    ],
)
def test_calls_reach_the_environment_as_the_model_wrote_them(
    call: ToolCall, expected: Call
) -> None:
    action = ConversationAgent().action(asking(call))
    assert isinstance(action, Action)
    assert decode(action.text).calls == (expected,)


def test_results_answer_their_calls_and_speech_is_a_user_message() -> None:
    reply = asking(READS, READS | {"id": "8"})
    results = json.dumps(
        [{"tool_call_id": "7", "content": "one"}, {"tool_call_id": "8", "content": "two"}]
    )
    said: Message = {"role": "assistant", "content": "its 7"}
    messages = ConversationAgent("be brief").messages(["go", results, "thanks"], [reply, said])
    assert messages == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "go"},
        reply,
        {"role": "tool", "tool_call_id": "7", "content": "one"},
        {"role": "tool", "tool_call_id": "8", "content": "two"},
        said,
        {"role": "user", "content": "thanks"},
    ]


@pytest.mark.parametrize("observation", ["plain text", "7", "[]", '[{"no": 1}]', "null", "{}"])
def test_an_environment_that_knows_no_results_has_answered_every_call(observation: str) -> None:
    reply = asking(READS, READS | {"id": "8"})
    messages = ConversationAgent().messages(["go", observation], [reply])
    assert [m["content"] for m in messages[2:]] == [observation, observation]
    assert [m["tool_call_id"] for m in messages[2:]] == ["7", "8"]


def test_the_environments_tools_are_offered_as_they_are() -> None:
    assert ConversationAgent().tools([TOOL]) == [TOOL]
