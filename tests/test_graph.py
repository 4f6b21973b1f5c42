"""The hashes by which turns are known again."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import Message
from clawrl_gym.dialogue.graph import Branch, TurnNode, message_digest
from tests.test_sessions import assistant, calling, make_turn, tool, user

texts = st.text(max_size=30)
messages = st.lists(st.builds(user, texts) | st.builds(assistant, texts), max_size=12)


@settings(deadline=None)
@given(messages=messages, reply=texts, ids_T=st.lists(st.integers(0, 2**31 - 1), max_size=9))
def test_a_mark_is_read_as_it_was_written(
    messages: list[Message], reply: str, ids_T: list[int]
) -> None:
    mark = TurnNode.of(make_turn(messages, reply, id=7), Branch.of(messages, "ann"), b"same", ids_T)
    read = TurnNode.from_text(mark.to_text(), 7, mark.kind, mark.finish_reason, mark.created_s)
    assert read == mark
    assert mark.rendering.begins([*ids_T, 1])


@settings(deadline=None)
@given(before=messages, reply=texts, after=messages)
def test_a_request_is_on_the_trail_of_the_turn_that_it_extends(
    before: list[Message], reply: str, after: list[Message]
) -> None:
    mark = TurnNode.of(make_turn(before, reply), Branch.of(before), b"", [])
    trail = Branch.of([*before, assistant(reply), *after])
    assert trail.nodes[len(before) + 1] == mark.reply
    assert trail.nodes[len(before)] == mark.request
    assert mark.similarity(trail, len(before))[1] == min(8, len(before))


@settings(deadline=None)
@given(messages=messages, other=messages)
def test_other_words_are_another_trail(messages: list[Message], other: list[Message]) -> None:
    def said(told: list[Message]) -> list[list[str]]:
        return [[one["role"], " ".join(text_of(one).split())] for one in told]

    same = said(messages) == said(other)
    assert (Branch.of(messages).leaf == Branch.of(other).leaf) == same


def test_system_messages_take_no_part_and_users_do() -> None:
    system: Message = {"role": "system", "content": "now"}
    developer: Message = {"role": "developer", "content": "now"}
    plain = Branch.of([user("a")])
    assert Branch.of([system, user("a"), developer]).nodes == plain.nodes
    assert Branch.of([user("a")], "ann").leaf != plain.leaf


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (user("a"), assistant("a")),
        (assistant("ab"), assistant("a b")),
        (assistant("read{}"), calling("{}")),
        (calling("{}"), calling("{}", "{}")),
        (calling("1"), calling("2")),
        (calling("[1, 2]"), calling("[2, 1]")),
        (user("a\0b"), user("a")),
        (tool("a"), user("a")),
    ],
)
def test_what_says_something_else_has_another_hash(one: Message, other: Message) -> None:
    assert message_digest(one) != message_digest(other)


@pytest.mark.parametrize("arguments", ["{", "nul", "[" * 5000, "\ud800", '{"a": 1e400}', "NaN"])
def test_arguments_that_are_no_json_are_compared_as_they_are(arguments: str) -> None:
    assert message_digest(calling(arguments)) == message_digest(calling(f" {arguments} "))


def test_arguments_are_compared_as_javascript_writes_them_again() -> None:
    told = {"n": 1.0, "big": 2**60, "text": "\u00e9", "list": [True, None]}
    python = json.dumps(told)
    script = '{"text":"\u00e9","list":[true,null],"n":1,"big":1152921504606847000}'
    assert message_digest(calling(python)) == message_digest(calling(script))


def test_arguments_may_be_given_as_an_object() -> None:
    call = calling('{"a": 1}')
    given = replace_arguments(call, {"a": 1})
    assert message_digest(call) == message_digest(given)


def replace_arguments(message: Message, arguments: object) -> Message:
    (call,) = message["tool_calls"]
    function = call["function"] | {"arguments": arguments}
    return {**message, "tool_calls": [call | {"function": function}]}


def test_a_turn_that_went_on_from_a_reply_remembers_it() -> None:
    first = TurnNode.of(make_turn([user("a")], "one"), Branch.of([user("a")]), b"", [])
    told = [user("a"), assistant("one"), user("b")]
    second = TurnNode.of(make_turn(told), Branch.of(told), b"", [])
    assert second.parents == (first.key,)
    fork = Branch.of([user("a"), assistant("one"), user("other")])
    assert fork.parent_at(1) == first.key
    other = Branch.of([user("x"), assistant("one"), user("other")])
    assert other.parent_at(1) not in second.parents
