"""Rows of chats as data sets have them, and what each one that cannot be learned from lacks."""

from __future__ import annotations

from typing import Any

import pytest

from clawrl_gym.dialogue.chats import BadRow, Chat, PlainText, read_row

USER = {"role": "user", "content": "hello"}
REPLY = {"role": "assistant", "content": "hi"}
CALL = {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "1", "content": "a wall"}


def chat(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"messages": [*messages], **more}


def learned(row: object, learn_on: Any = "all") -> tuple[int, ...]:
    read = read_row(row, learn_on)
    assert isinstance(read, Chat)
    return read.learned


def test_all_replies_are_learned_or_the_last() -> None:
    row = chat(USER, REPLY, USER, REPLY, USER)
    assert learned(row) == (1, 3)
    assert learned(row, "last") == (3,)
    read = read_row(row, "all")
    assert isinstance(read, Chat)
    assert len(read.messages) == 4, "what follows the last reply teaches nothing"


def test_of_a_prompt_and_its_completion_only_the_completion_is_learned() -> None:
    assert learned({"prompt": [USER, REPLY, USER], "completion": [REPLY]}) == (3,)
    row = {"prompt": [USER], "completion": [CALLING, RESULT, REPLY]}
    assert learned(row) == (1, 3)
    assert read_row({"prompt": "one", "completion": " two"}, "all") == PlainText("one", " two")


def test_parts_of_text_are_joined_and_arguments_are_objects() -> None:
    parts = {
        "role": "user",
        "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
    }
    read = read_row(chat(parts, CALLING, RESULT, REPLY, tools='[{"name": "look"}]'), "all")
    assert isinstance(read, Chat)
    assert read.messages[0]["content"] == "a\nb"
    assert read.messages[1]["tool_calls"][0]["function"] == {"name": "look", "arguments": {"at": 1}}
    assert read.tools == [{"type": "function", "function": {"name": "look"}}]


def test_columns_of_a_table_that_are_empty_are_none() -> None:
    blank = {"tool_calls": None, "tool_call_id": None, "name": None}
    read = read_row(chat({**USER, **blank}, {**REPLY, **blank}, tools=None), "all")
    assert isinstance(read, Chat)
    assert read.messages == [USER, REPLY]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (7, "no JSON object"),
        ({"text": "hello"}, "neither of the forms"),
        ({"prompt": "a", "completion": ""}, "an empty completion"),
        ({"prompt": [USER], "completion": "hi"}, "completion that are no list of messages"),
        (chat(), "messages that are no list"),
        (chat("hi"), "a message that is no JSON object"),
        (chat(USER, {"role": "model", "content": "hi"}), "a role other than system"),
        (chat(USER), "no assistant turn"),
        (chat(REPLY), "roles out of order"),
        (chat(USER, REPLY, REPLY), "roles out of order"),
        (chat(USER, {"role": "system", "content": "x"}, REPLY), "roles out of order"),
        (chat(USER, RESULT, REPLY), "roles out of order"),
        (chat(USER, REPLY, RESULT, REPLY), "roles out of order"),
        (chat(USER, CALLING, USER, REPLY), "roles out of order"),
        (chat(USER, {"role": "assistant", "content": ""}), "an empty reply"),
        (chat({"role": "user", "content": 7}, REPLY), "content that is neither text"),
        (
            chat({"role": "user", "content": [{"type": "image_url"}]}, REPLY),
            "parts of type image_url",
        ),
        (chat(USER, {**CALLING, "tool_calls": [{"id": "1"}]}), "a tool call without a name"),
        (
            chat(USER, {**CALLING, "tool_calls": [{"name": "x", "arguments": "{"}]}),
            "arguments are no JSON",
        ),
        (
            chat(USER, {**CALLING, "tool_calls": [{"name": "x", "arguments": "[1]"}]}),
            "no JSON object",
        ),
        (chat(USER, REPLY, tools="{"), "tools that are no JSON"),
        (chat(USER, REPLY, tools=[1]), "tools that are no list"),
        (chat(USER, REPLY, chat_template_kwargs=[1]), "chat_template_kwargs that are no"),
    ],
)
def test_a_row_that_cannot_be_learned_from_says_why(row: object, says: str) -> None:
    with pytest.raises(BadRow, match=says):
        read_row(row, "all")
