"""The hashes by which turns are known again."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import FunctionCall, Message
from clawrl_gym.dialogue.graph import MAX_TURNS, Branch, TurnGraph, TurnNode, message_digest
from tests.gateway.test_sessions import assistant, calling, make_turn, tool, user

texts = st.text(max_size=30)
messages = st.lists(st.builds(user, texts) | st.builds(assistant, texts), max_size=12)


@settings(deadline=None)
@given(messages=messages, reply=texts, ids_T=st.lists(st.integers(0, 2**31 - 1), max_size=9))
def test_a_node_is_read_as_it_was_written(
    messages: list[Message], reply: str, ids_T: list[int]
) -> None:
    node = TurnNode.of(make_turn(messages, reply, id=7), Branch.of(messages, "ann"), b"same", ids_T)
    read = TurnNode.from_text(node.to_text(), 7, node.kind, node.finish_reason, node.created_s)
    assert read == node
    assert node.rendering.begins([*ids_T, 1])


@settings(deadline=None)
@given(before=messages, reply=texts, after=messages)
def test_a_request_is_on_the_branch_of_the_turn_that_it_extends(
    before: list[Message], reply: str, after: list[Message]
) -> None:
    node = TurnNode.of(make_turn(before, reply), Branch.of(before), b"", [])
    branch = Branch.of([*before, assistant(reply), *after])
    assert branch.nodes[len(before) + 1] == node.reply
    assert branch.nodes[len(before)] == node.request
    assert node.similarity(branch, len(before))[1] == min(8, len(before))


@settings(deadline=None)
@given(messages=messages, changed=messages)
def test_other_words_are_another_branch(messages: list[Message], changed: list[Message]) -> None:
    def words_of(conversation: list[Message]) -> list[list[str]]:
        return [[one["role"], " ".join(text_of(one).split())] for one in conversation]

    same = words_of(messages) == words_of(changed)
    assert (Branch.of(messages).leaf == Branch.of(changed).leaf) == same


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
    arguments = {"n": 1.0, "big": 2**60, "text": "\u00e9", "list": [True, None]}
    python = json.dumps(arguments)
    script = '{"text":"\u00e9","list":[true,null],"n":1,"big":1152921504606847000}'
    assert message_digest(calling(python)) == message_digest(calling(script))


def test_arguments_may_be_given_as_an_object() -> None:
    call = calling('{"a": 1}')
    as_object = replace_arguments(call, {"a": 1})
    assert message_digest(call) == message_digest(as_object)


def replace_arguments(message: Message, arguments: str | dict[str, object]) -> Message:
    (call,) = message["tool_calls"]
    function: FunctionCall = {**call["function"], "arguments": arguments}
    return {**message, "tool_calls": [{**call, "function": function}]}


def test_a_turn_that_went_on_from_a_reply_remembers_it() -> None:
    first = TurnNode.of(make_turn([user("a")], "one"), Branch.of([user("a")]), b"", [])
    sent = [user("a"), assistant("one"), user("b")]
    second = TurnNode.of(make_turn(sent), Branch.of(sent), b"", [])
    assert second.parents == (first.key,)
    fork = Branch.of([user("a"), assistant("one"), user("other")])
    assert fork.parent_at(1) == first.key
    elsewhere = Branch.of([user("x"), assistant("one"), user("other")])
    assert elsewhere.parent_at(1) not in second.parents


def node_of(turn_id: int, messages: list[Message], reply: str) -> TurnNode:
    turn = make_turn(messages, reply, id=turn_id)
    return TurnNode.of(turn, Branch.of(messages), b"", [])


def test_a_graph_knows_parents_ancestors_and_the_next_states_of_a_fork() -> None:
    graph = TurnGraph()
    root = [user("a")]
    left = [*root, assistant("one"), user("b")]
    right = [*root, assistant("one"), user("c")]
    nodes = [node_of(1, root, "one"), node_of(2, left, "two"), node_of(3, right, "three")]
    for node in nodes:
        graph.add(node)
    graph.close(1)
    request = Branch.of([*left, assistant("two"), user("d")])
    assert graph.parent_of(request) == nodes[1]
    assert graph.next_states(request) == [(nodes[1], [user("d")])]
    assert graph.ancestors(nodes[2]) == {1}
    assert graph.newest("main") == nodes[2]
    assert graph.newest("side") is None
    assert graph.parent_of(Branch.of([*root, assistant("other"), user("d")])) is None


@settings(deadline=None)
@given(words=st.lists(texts, min_size=1, max_size=8))
def test_each_turn_of_a_straight_conversation_is_the_parent_of_the_next(words: list[str]) -> None:
    graph, sent = TurnGraph(), [user("start")]
    for number, word in enumerate(words, 1):
        graph.add(node_of(number, sent, word))
        sent = [*sent, assistant(word), user(str(number))]
        request = Branch.of(sent)
        assert graph.parent_of(request) == graph.turns[-1]
        assert graph.next_states(request) == [(graph.turns[-1], [user(str(number))])]
        graph.close(number)
    assert graph.ancestors(graph.turns[-1]) == set(range(1, len(words)))
    assert not graph.waiting


def test_a_graph_forgets_its_oldest_turns() -> None:
    graph = TurnGraph()
    for number in range(1, MAX_TURNS + 3):
        graph.add(node_of(number, [user(str(number))], "ok"))
        graph.delivered.add(number)
    assert len(graph.turns) == MAX_TURNS
    assert graph.waiting == graph.delivered == {turn.turn_id for turn in graph.turns}
