"""Requests of the Responses API as chat requests: items, tools, options, refusals."""

from __future__ import annotations

import copy
import json
import random
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawrl_gym.config import SamplingConfig
from clawrl_gym.core.types import Message
from clawrl_gym.gateway.dialects.dialect import Answer, DialectRequest
from clawrl_gym.gateway.dialects.responses import RESPONSES, ResponsesRequest
from clawrl_gym.gateway.dialects.responses_tools import chosen, offered_tools
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.gateway.wire.requests import ChatRequest
from tests.gateway.responses_bodies import (
    HI,
    LOOK,
    PATCH,
    PICTURE,
    SEARCH,
    SPACE,
    call,
    custom_call,
    custom_output,
    output,
    said,
    summarized,
    text_part,
    thought,
    turn_of,
    user,
)

A, B = "a" * 32, "b" * 32
CODEX = {
    "model": "policy",
    "instructions": "You are Codex.",
    "input": [
        {"type": "message", "role": "developer", "content": [text_part("Sandbox: read-only")]},
        {"type": "message", "role": "user", "content": [text_part("Fix it")]},
        {"type": "reasoning", "summary": [], "content": None, "encrypted_content": "gAAA"},
        {
            "type": "function_call",
            "name": "exec_command",
            "arguments": '{"cmd": "ls"}',
            "call_id": "call_1",
        },
        {"type": "function_call_output", "call_id": "call_1", "output": "a.py"},
    ],
    "tools": [LOOK, SPACE, {"type": "web_search", "external_web_access": False}],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "0199-thread",
    "client_metadata": {"x-codex-installation-id": "1"},
}


def chat_of(body: dict[str, Any]) -> ChatRequest:
    fields = RESPONSES.read(body).fields
    assert isinstance(fields, ChatRequest)
    return fields


def messages_of(*items: object) -> list[Message]:
    return chat_of({"input": list(items)}).plain_messages()


def calls_of(message: Message) -> list[tuple[str | None, object]]:
    functions = [one["function"] for one in message["tool_calls"]]
    return [(function.get("name"), function.get("arguments")) for function in functions]


def refused(**fields: object) -> Refusal:
    with pytest.raises(Refusal) as caught:
        RESPONSES.read({"input": "Hello", **fields})
    assert caught.value.status == 400
    return caught.value


def test_a_text_is_the_users_after_the_instructions() -> None:
    fields = chat_of({"input": "Hello", "instructions": "Be short."})
    assert fields.plain_messages() == [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Hello"},
    ]


def test_the_items_of_one_reply_are_one_message() -> None:
    reply = (thought("Look."), said("I look."), call(1), call(2))
    [_, message, first, second] = messages_of(HI, *reply, output(1), output(2, "no"))
    assert (message["reasoning_content"], message["content"]) == ("Look.", "I look.")
    assert calls_of(message) == [("look", '{"at": "x"}')] * 2
    assert first == {"role": "tool", "tool_call_id": "call_1", "content": "found"}
    assert second == {"role": "tool", "tool_call_id": "call_2", "content": "no"}


def test_a_second_text_or_thought_begins_another_reply() -> None:
    roles = [message["role"] for message in messages_of(HI, said("One."), said("Two."), HI)]
    assert roles == ["user", "assistant", "assistant", "user"]
    thoughts = messages_of(HI, thought("One."), thought("Two."), said("Yes."), HI)
    assert [message.get("reasoning_content") for message in thoughts[1:3]] == ["One.", "Two."]
    assert thoughts[2]["content"] == "Yes."


def test_items_of_two_answers_are_never_one_message() -> None:
    first, second = said("One.", id=f"msg_{A}"), call() | {"id": f"fc_{B}_0"}
    assert len(messages_of(HI, first, second, output())) == 4
    assert len(messages_of(HI, first, second | {"id": f"fc_{A}_0"}, output())) == 3


def test_a_summary_stands_for_thoughts_and_encrypted_ones_have_no_effect() -> None:
    [_, reply, _] = messages_of(HI, summarized("A person."), said("Yes?"), HI)
    assert reply["reasoning_content"] == "A person."
    secret = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
    assert messages_of(HI, secret, HI) == messages_of(HI, HI)
    assert RESPONSES.read({"input": [HI, secret, HI]}).unread == ()


def test_a_refusal_is_a_text_and_a_picture_is_kept() -> None:
    no = {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    [asked, reply, _] = messages_of(user([text_part("What is it?"), PICTURE]), no, HI)
    assert asked["content"] == [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": PICTURE["image_url"]}},
    ]
    assert reply["content"] == "No."


def test_free_form_and_namespaced_calls_have_the_names_that_the_model_knows() -> None:
    spaced = call(name="read") | {"namespace": "mcp__files"}
    [_, reply, *_] = messages_of(HI, custom_call('a "b"\n'), spaced, custom_output(), output())
    assert calls_of(reply) == [
        ("patch", json.dumps({"input": 'a "b"\n'})),
        ("mcp__files__read", '{"at": "x"}'),
    ]


def test_calls_of_clients_own_shells_keep_their_text() -> None:
    action = {"type": "exec", "command": ["ls", "-l"], "env": {}}
    shell = {"type": "local_shell_call", "id": "lsh_1", "call_id": "call_1", "action": action}
    gave = {"type": "local_shell_call_output", "id": "call_1", "output": "a.py"}
    [_, reply, found] = messages_of(HI, shell, gave)
    assert calls_of(reply) == [("local_shell", json.dumps(action))]
    assert found == {"role": "tool", "tool_call_id": "call_1", "content": "a.py"}
    parts = [{"stdout": "a.py", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
    newer = {"type": "shell_call_output", "call_id": "call_2", "output": parts}
    assert json.loads(str(messages_of(HI, newer)[1]["content"])) == parts


def test_what_no_template_knows_is_left_out_and_named() -> None:
    file = {"type": "input_file", "file_id": "file-1"}
    body = {
        "input": [
            user([text_part("Hello"), file]),
            {"type": "web_search_call", "id": "ws_1", "status": "completed"},
            {"type": "compaction", "encrypted_content": "gAAA"},
            said("Yes?", mood="gay"),
            HI,
        ],
        "tools": [SEARCH, {"type": "mcp", "server_label": "x"}, LOOK | {"output_schema": {"a": 1}}],
        "include": ["web_search_call.results", "something.else"],
        "reasoning": {"mode": "pro", "context": "auto", "effort": None},
        "text": {"colour": "red"},
        "colour": "red",
    }
    assert RESPONSES.read(body).unread == (
        "colour",
        "include.something.else",
        "input.compaction",
        "input.content.input_file",
        "input.mood",
        "input.web_search_call",
        "reasoning.mode",
        "text.colour",
        "tools.mcp",
        "tools.output_schema",
        "tools.web_search",
    )


def test_a_reference_stands_for_the_whole_reply() -> None:
    referred = [
        {"type": "item_reference", "id": f"rs_{A}"},
        {"id": f"msg_{A}"},
        {"type": "item_reference", "id": f"fc_{A}_0"},
    ]
    for items in (referred, referred[:1], [*referred, call() | {"id": f"fc_{A}_1"}]):
        body = {"input": [HI, *items, output(), HI]}
        assert RESPONSES.read(body).references == {1: A}
        roles = [message["role"] for message in chat_of(body).plain_messages()]
        assert roles == ["user", "assistant", "tool", "user"]


def test_items_beside_a_reference_to_their_answer_are_a_part_of_it() -> None:
    own = thought("Look.", id=f"rs_{A}")
    read = RESPONSES.read(
        {"input": [HI, own, {"type": "item_reference", "id": f"fc_{A}_0"}, output()]}
    )
    assert read.references == {1: A}
    body = {"input": [HI, {"id": f"msg_{A}"}, {"id": f"msg_{B}"}, said("x"), HI]}
    assert RESPONSES.read(body).references == {1: A, 2: B}
    assert len(chat_of(body).messages) == 5


def test_an_earlier_response_is_continued() -> None:
    assert RESPONSES.read({"input": "Hi", "previous_response_id": f"resp_{A}"}).continues == A
    assert RESPONSES.read({"input": "Hi", "previous_response_id": None}).continues == ""
    for other in ("resp_123", f"msg_{A}", A, f"resp_{A}_0"):
        assert refused(previous_response_id=other).param == "previous_response_id"


def test_codex_is_read_and_nothing_but_its_metadata_and_search_is_without_effect() -> None:
    read = RESPONSES.read(CODEX)
    assert read.unread == ("client_metadata", "tools.strict", "tools.web_search")
    assert read.body["prompt_cache_key"] == "0199-thread"
    assert read.body["store"] is False
    fields = read.fields
    assert isinstance(fields, ChatRequest)
    assert fields.stream
    assert fields.reasoning_effort == "medium"
    assert fields.parallel_tool_calls is False
    roles = [message["role"] for message in fields.plain_messages()]
    assert roles == ["system", "system", "user", "assistant", "tool"]
    names = [tool["function"]["name"] for tool in fields.body([])["tools"]]
    assert names == ["look", "mcp__files__read", "mcp__files__look"]


def test_sampling_is_that_of_the_request() -> None:
    sent = {"temperature": 0.5, "top_p": 0.9, "max_output_tokens": 7, "top_k": 5, "seed": 3}
    sampling = chat_of({"input": "Hi", **sent}).sampling(SamplingConfig())
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens) == (0.5, 0.9, 7)
    assert (sampling.top_k, sampling.seed) == (5, 3)


@pytest.mark.parametrize(
    ("field", "value", "param"),
    [
        ("background", True, "background"),
        ("conversation", "conv_1", "conversation"),
        ("prompt", {"id": "pmpt_1"}, "prompt"),
        ("truncation", "auto", "truncation"),
        ("context_management", [{"type": "compaction"}], "context_management"),
        ("top_logprobs", 3, "top_logprobs"),
        ("include", ["message.output_text.logprobs"], "include"),
        ("max_tokens", 5, "max_tokens"),
        ("reasoning_effort", "low", "reasoning_effort"),
        ("messages", [HI], "messages"),
        ("n", 2, "n"),
        ("text", {"verbosity": "low"}, "text.verbosity"),
        ("reasoning", {"effort": "enormous"}, "reasoning.effort"),
        ("include_reasoning", False, "include_reasoning"),
        ("kv_transfer_params", {"a": 1}, "kv_transfer_params"),
        ("temperature", -1, "temperature"),
        ("max_output_tokens", 0, "max_output_tokens"),
        ("tools", [{"type": "function", "function": {"name": "look"}}], "tools.0.name"),
        ("tools", [{"type": "namespace", "name": "x", "tools": [{"type": "function"}]}],
         "tools.0.tools.0.name"),
        ("tool_choice", "required", "tool_choice"),
        ("tool_choice", {"type": "web_search"}, "tool_choice"),
        ("tool_choice", {"type": "function", "name": "look"}, "tool_choice"),
        ("input", [], "input"),
        ("input", [{"role": "robot", "content": "x"}], "input.0.role"),
        ("input", [HI, {"role": "user", "content": 5}], "input.1.content"),
        ("input", [HI, {"type": "item_reference", "id": "msg_1"}], "input.1.id"),
        ("input", [HI, said("Once", status="incomplete")], "input.1.status"),
    ],
)  # fmt: skip
def test_what_is_not_offered_is_refused_by_its_own_name(
    field: str, value: object, param: str
) -> None:
    refusal = refused(**{field: value})
    assert refusal.param == param
    assert param.partition(".")[0] in str(refusal)


@pytest.mark.parametrize("body", [None, 5, [], "x", {}, {"input": 5}, {"input": [5]}])
def test_what_is_no_request_is_refused(body: object) -> None:
    with pytest.raises(Refusal) as caught:
        RESPONSES.read(body)
    assert caught.value.status == 400


def test_values_that_ask_for_nothing_are_let_through() -> None:
    neutral: dict[str, Any] = {
        "background": False, "conversation": None, "truncation": "disabled", "top_logprobs": 0,
        "text": {"format": {"type": "text"}, "verbosity": "medium"}, "service_tier": "auto",
        "max_tool_calls": 3, "user": "u", "safety_identifier": "s", "metadata": {"a": "b"},
        "stream_options": {"include_obfuscation": False}, "tool_choice": "none", "tools": [],
        "prompt": None, "prompt_cache_retention": "24h", "access_programs": {},
    }  # fmt: skip
    assert RESPONSES.read({"input": "Hello", **neutral}).unread == ()


def test_a_tool_is_chosen_by_either_of_its_names() -> None:
    offered = offered_tools([LOOK, SPACE, PATCH])
    for kind, name, flat in (
        ("function", "read", "mcp__files__read"),
        ("function", "mcp__files__read", "mcp__files__read"),
        ("function", "look", "look"),
        ("custom", "patch", "patch"),
    ):
        functions, choice = chosen({"type": kind, "name": name}, offered)
        assert choice == {"type": "function", "function": {"name": flat}}
        assert len(functions) == 4
    twice = offered_tools([SPACE, SPACE | {"name": "other"}])
    for wrong, tools in (("other", offered), (None, offered), ("read", twice)):
        with pytest.raises(Refusal, match="tool_choice"):
            chosen({"type": "function", "name": wrong}, tools)


def test_a_form_of_the_text_has_its_name_in_chat_completions() -> None:
    schema = {"name": "answer", "schema": {"type": "object"}, "strict": True}
    for sent, wanted in (
        ({"type": "json_object"}, {"type": "json_object"}),
        ({"type": "json_schema", **schema}, {"type": "json_schema", "json_schema": schema}),
        ({"type": "text"}, None),
    ):
        request = ResponsesRequest.model_validate({"input": "Hi", "text": {"format": sent}})
        assert request.options.get("response_format") == wanted


def test_only_allowed_tools_are_shown() -> None:
    allowed = [{"type": "function", "name": "read"}, {"type": "custom", "name": "patch"}]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": allowed}
    fields = chat_of({"input": "Hi", "tools": [LOOK, SPACE, PATCH], "tool_choice": choice})
    names = [tool["function"]["name"] for tool in fields.body([])["tools"]]
    assert (names, fields.tool_choice) == (["mcp__files__read", "patch"], "auto")


def test_a_grammar_of_a_free_form_tool_is_named_as_without_effect() -> None:
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}
    assert RESPONSES.read({"input": "Hi", "tools": [PATCH | {"format": grammar}]}).unread == (
        "tools.format",
    )
    free = PATCH | {"format": {"type": "text"}}
    assert RESPONSES.read({"input": "Hi", "tools": [free]}).unread == ()


def test_the_answer_repeats_what_the_request_said() -> None:
    body = {"input": "Hi", "tools": [PATCH], "instructions": "Be short.", "user": None}
    assert RESPONSES.read(body).echo == {"tools": [PATCH], "instructions": "Be short."}


KINDS = ["message", "function", "custom", "namespace", "assistant", "item_reference", f"rs_{A}"]
leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.sampled_from(KINDS)
junk = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


def with_one_changed(value: object, other: object, draw: random.Random) -> object:
    """JSON with one of its values, at any depth, replaced by another one."""
    keys: list[Any] = list(range(len(value))) if isinstance(value, list) else []
    if isinstance(value, dict):
        keys = list(value)
    if not keys or draw.random() < 0.2:
        return other
    changed: Any = copy.copy(value)
    key = draw.choice(keys)
    changed[key] = with_one_changed(changed[key], other, draw)
    return changed


def read_or_status(body: object) -> DialectRequest | int:
    try:
        return RESPONSES.read(body)
    except Refusal as refusal:
        return refusal.status


@settings(max_examples=200, deadline=None)
@given(junk, st.randoms(use_true_random=False))
def test_a_request_with_anything_in_it_is_read_or_refused(
    other: object, draw: random.Random
) -> None:
    more = [said("Yes?"), thought("Hm."), custom_call(), custom_output(), HI]
    body = CODEX | {"input": [*cast(list[object], CODEX["input"]), *more], "tools": [SPACE, PATCH]}
    read = read_or_status(with_one_changed(body, other, draw))
    if isinstance(read, int):
        assert read == 400
        return
    whole = RESPONSES.whole(
        turn_of({"role": "assistant", "content": "Hi"}), Answer(A, "policy", "s", echo=read.echo)
    )
    assert json.loads(json.dumps(whole))["id"] == f"resp_{A}"
