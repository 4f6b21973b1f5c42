"""Requests of the Messages API: the referee is vLLM's own converter, and for fields the SDK."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any, get_type_hints

import pytest
from anthropic.types import message_count_tokens_params, message_create_params
from anthropic.types.beta import message_create_params as beta_params

from clawrl_gym.config import SamplingConfig
from clawrl_gym.gateway.dialects.dialect import DialectRequest
from clawrl_gym.gateway.dialects.messages import (
    MESSAGES,
    REFUSED,
    WITHOUT_EFFECT,
    CountRequest,
    MessagesRequest,
    count_json,
    models_json,
    read_count,
)
from clawrl_gym.gateway.wire import request_fields
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.gateway.wire.requests import ChatRequest, parse_as

PNG = "iVBORw0KGgo="
SESSION = "0199f5c1-7d2b-4b9e-9c1e-8f6a1b2c3d4e"
HELLO: list[Any] = [{"role": "user", "content": "hello"}]
BASE: dict[str, Any] = {"model": "policy", "max_tokens": 100}
ADD: dict[str, Any] = {
    "name": "add",
    "description": "Adds.",
    "input_schema": {"type": "object", "properties": {"a": {"type": "number"}}},
}
CALL: dict[str, Any] = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1}}
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
BILLING = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=8f31a;"}


def text(words: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **fields}


def result(content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "toolu_1", "content": content, **fields}


def after_call(*blocks: Any) -> list[Any]:
    return [
        *HELLO,
        {"role": "assistant", "content": [text("I add."), CALL]},
        {"role": "user", "content": [*blocks]},
    ]


def of(role: str, *blocks: Any) -> list[Any]:
    return [*HELLO, {"role": role, "content": [*blocks]}, {"role": "user", "content": "go on"}]


SERVER_TOOL = {"type": "bash_20250124", "name": "bash"}


def change(kind: str, definition: Any = None) -> dict[str, Any]:
    """A block that adds or removes a tool: `add`, or one that it defines."""
    tool: dict[str, Any] = {"type": "tool_reference", "name": "add"}
    if definition is not None:
        tool = {"type": "tool_definition", "definition": definition}
    return {"type": f"tool_{kind}", "tool": tool}


CASES: dict[str, dict[str, Any]] = {
    "a text": {"messages": HELLO},
    "an empty text": {"messages": [{"role": "user", "content": ""}]},
    "one block": {"messages": [{"role": "user", "content": [text("hello")]}]},
    "two blocks": {"messages": [{"role": "user", "content": [text("a"), text("b")]}]},
    "an empty block": {"messages": [{"role": "user", "content": [text(""), text("b")]}]},
    "a user without a word": {"messages": [{"role": "user", "content": [text("")]}, *HELLO]},
    "no block": {"messages": [{"role": "user", "content": []}, *HELLO]},
    "a cached block": {
        "messages": of("user", text("a", cache_control={"type": "ephemeral", "ttl": "1h"}))
    },
    "two users in a row": {"messages": [*HELLO, *HELLO]},
    "a system text": {"messages": HELLO, "system": "Be brief."},
    "an empty system text": {"messages": HELLO, "system": ""},
    "system blocks": {"messages": HELLO, "system": [text("Be "), text("brief.")]},
    "no system blocks": {"messages": HELLO, "system": []},
    "a billing block": {"messages": HELLO, "system": [BILLING, text("You are Claude Code.")]},
    "only a billing block": {"messages": HELLO, "system": [BILLING]},
    "a cached system block": {
        "messages": HELLO,
        "system": [text("a", cache_control={"type": "ephemeral"}), text("")],
    },
    "system messages between": {
        "messages": [*HELLO, {"role": "system", "content": "Now French."}, *HELLO]
    },
    "system blocks between": {"messages": of("system", BILLING, text("Now "), text("French."))},
    "a system message without words": {"messages": of("system", text(""))},
    "a billing message": {"messages": [{"role": "system", "content": BILLING["text"]}, *HELLO]},
    "a reply": {"messages": of("assistant", text("hi"))},
    "a reply of two blocks": {"messages": of("assistant", text("hi"), text("there"))},
    "a reply of nothing": {"messages": of("assistant")},
    "thoughts": {
        "messages": of(
            "assistant", {"type": "thinking", "thinking": "Hm.", "signature": "x"}, text("hi")
        )
    },
    "thoughts twice": {
        "messages": of(
            "assistant",
            {"type": "thinking", "thinking": "Hm.", "signature": "x"},
            text("hi"),
            {"type": "thinking", "thinking": "So.", "signature": ""},
        )
    },
    "thoughts without words": {
        "messages": of("assistant", {"type": "thinking", "thinking": "Hm.", "signature": ""})
    },
    "hidden thoughts": {
        "messages": of("assistant", {"type": "redacted_thinking", "data": "x"}, text("hi"))
    },
    "a call": {"messages": after_call(result("2")), "tools": [ADD]},
    "only a call": {"messages": of("assistant", CALL), "tools": [ADD]},
    "thoughts and a call": {
        "messages": of("assistant", {"type": "thinking", "thinking": "Hm."}, CALL),
        "tools": [ADD],
    },
    "a call of nothing": {"messages": of("assistant", {**CALL, "input": {}}), "tools": [ADD]},
    "a call in other letters": {
        "messages": of("assistant", {**CALL, "input": {"ä": ["ß", None, 1.5, {"x": True}]}})
    },
    "two calls": {
        "messages": [
            *of("assistant", text("Both."), CALL, {**CALL, "id": "toolu_2"})[:-1],
            {
                "role": "user",
                "content": [result("2"), {**result("3"), "tool_use_id": "toolu_2"}],
            },
        ]
    },
    "a result in blocks": {"messages": after_call(result([text("2"), text("3")]))},
    "a result of an empty block": {"messages": after_call(result([text(""), text("3")]))},
    "a result of nothing": {"messages": after_call(result(""))},
    "a result of no blocks": {"messages": after_call(result([]))},
    "a result that is none": {"messages": after_call(result(None))},
    "a failure": {"messages": after_call(result("no such file", is_error=True))},
    "a result and words": {"messages": after_call(result("2"), text("And now?"))},
    "words before a result": {"messages": after_call(text("Here:"), result("2"), text("Yes?"))},
    "a reminder behind a result": {
        "messages": after_call(result("2"), text("<system-reminder>\nx\n</system-reminder>"))
    },
    "a picture": {"messages": of("user", PICTURE, text("What is it?"))},
    "a picture's address": {
        "messages": of("user", {"type": "image", "source": {"type": "url", "url": "https://a/b"}})
    },
    "a picture without a type": {
        "messages": of("user", {"type": "image", "source": {"data": PNG}}, text("?"))
    },
    "a result with a picture": {"messages": after_call(result([text("Shot:"), PICTURE]))},
    "a result that is pictures": {"messages": after_call(result([PICTURE, PICTURE]), text("?"))},
    "tools": {"messages": HELLO, "tools": [ADD, {**ADD, "name": "sub", "type": "custom"}]},
    "a tool without words": {"messages": HELLO, "tools": [{"name": "f", "input_schema": {}}]},
    "a strict tool": {"messages": HELLO, "tools": [{**ADD, "strict": True}]},
    "a deferred tool": {"messages": HELLO, "tools": [{**ADD, "defer_loading": True}]},
    "a tool that is added": {
        "messages": of("system", change("addition"), text("Now you may add.")),
        "tools": [{**ADD, "defer_loading": True}],
    },
    "a tool that is removed": {
        "messages": of("system", change("removal")),
        "tools": [ADD, {**ADD, "name": "sub"}],
    },
    "a tool that is removed and added": {
        "messages": of("system", change("removal"), change("addition")),
        "tools": [ADD],
    },
    "a tool that is defined later": {
        "messages": of("system", change("addition", {**ADD, "name": "mul"})),
        "tools": [ADD],
    },
    "a free choice": {"messages": HELLO, "tools": [ADD], "tool_choice": {"type": "auto"}},
    "any tool": {"messages": HELLO, "tools": [ADD], "tool_choice": {"type": "any"}},
    "no tool": {"messages": HELLO, "tools": [ADD], "tool_choice": {"type": "none"}},
    "one tool": {
        "messages": HELLO,
        "tools": [ADD],
        "tool_choice": {"type": "tool", "name": "add"},
    },
    "one call at once": {
        "messages": HELLO,
        "tools": [ADD],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    },
    "no thinking": {"messages": HELLO, "thinking": {"type": "disabled"}},
    "free thinking": {"messages": HELLO, "thinking": {"type": "adaptive"}},
    "little effort": {"messages": HELLO, "output_config": {"effort": "low"}},
    "most effort without thinking": {
        "messages": HELLO,
        "output_config": {"effort": "max"},
        "thinking": {"type": "disabled"},
    },
    "a form": {
        "messages": HELLO,
        "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
    },
    "a form of nothing": {
        "messages": HELLO,
        "output_config": {"format": {"type": "json_schema", "schema": None}},
    },
    "settings": {
        "messages": HELLO,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "stop_sequences": ["END", "\n\n"],
    },
    "the template's arguments": {"messages": HELLO, "chat_template_kwargs": {"x": 1}},
}
"""Requests that vLLM's converter takes."""

BY_VLLM = """
import json, sys
from types import SimpleNamespace
from vllm.entrypoints.anthropic.protocol import (
    AnthropicCountTokensRequest, AnthropicMessagesRequest)
from vllm.entrypoints.anthropic.serving import AnthropicServingMessages
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.renderers.chat_utils import parse_chat_messages

CONFIG = SimpleNamespace(multimodal_config=None, enable_prompt_embeds=False,
                         is_multimodal_model=False, allowed_local_media_path="",
                         allowed_media_domains=None, hf_config=None)
PARTS = ("tools", "reasoning_effort", "tool_choice", "response_format", "chat_template_kwargs",
         "temperature", "top_p", "top_k", "stop")

def seen(chat):
    "What a chat template and the sampler are given."
    fields = chat.model_dump(include=set(PARTS))
    if "image_url" in json.dumps(chat.messages):
        fields["messages"] = [*chat.messages]
    else:
        fields["messages"] = parse_chat_messages(chat.messages, CONFIG, "string")[0]
    limit = chat.max_completion_tokens or chat.max_tokens
    return {**fields, "max_tokens": limit, "is_single": chat.parallel_tool_calls is False}

answer = {"cases": {}, "fields": [[*kind.model_fields] for kind in (
    AnthropicMessagesRequest, AnthropicCountTokensRequest)]}
for name, (request, body) in json.load(sys.stdin).items():
    theirs = AnthropicServingMessages.to_chat_completion_request(
        AnthropicMessagesRequest.model_validate(request))
    ours = ChatCompletionRequest.model_validate(body)
    answer["cases"][name] = [seen(theirs), seen(ours)]
print(json.dumps(answer))
"""
"""In a process of its own: importing vLLM changes the one that does."""


def chat_body(request: dict[str, Any]) -> dict[str, Any]:
    """Our chat request as the engine is given it."""
    body, _ = parse_as(MessagesRequest, BASE | request).in_chat()
    read = {name: body[name] for name in ("messages", "tools") if name in body}
    chat = parse_as(ChatRequest, read)
    return {**body, **chat.body(chat.plain_messages())}


@pytest.fixture(scope="module")
def by_vllm() -> Any:
    cases = {name: (BASE | request, chat_body(request)) for name, request in CASES.items()}
    told = subprocess.run(
        [sys.executable, "-c", BY_VLLM],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    return json.loads(told.stdout.splitlines()[-1])


def in_one_form(seen: Any) -> Any:
    """What the engine is given, without differences that no prompt has."""
    messages = []
    for message in seen["messages"]:
        thoughts = message.pop("reasoning", None) or message.pop("reasoning_content", None)
        said = {key: value for key, value in message.items() if value not in (None, "", [])}
        messages.append({**said, "thoughts": thoughts or None})
    seen["messages"], seen["stop"] = messages, seen["stop"] or None
    if seen["tools"] and seen["tool_choice"] is None:
        seen["tool_choice"] = "auto"
    if not seen["tools"] and seen["tool_choice"] == "none":
        seen["tool_choice"] = None
    return seen


@pytest.mark.parametrize("name", CASES)
def test_a_request_is_what_vllm_makes_of_it(by_vllm: Any, name: str) -> None:
    theirs, ours = by_vllm["cases"][name]
    assert in_one_form(ours) == in_one_form(theirs)


def sdk_fields(params: Any, *kinds: str) -> set[str]:
    return {name for kind in kinds for name in get_type_hints(getattr(params, kind))}


def test_every_field_of_the_sdk_and_vllm_is_decided_on(by_vllm: Any) -> None:
    kinds = ("MessageCreateParamsNonStreaming", "MessageCreateParamsStreaming")
    of_messages, of_count = by_vllm["fields"]
    theirs = sdk_fields(message_create_params, *kinds) | sdk_fields(beta_params, *kinds)
    assert len(theirs) > 25
    chat = ChatRequest.model_fields.keys() | request_fields.REFUSED.keys()
    chat |= request_fields.WITHOUT_EFFECT
    decided = chat | REFUSED.keys() | WITHOUT_EFFECT
    assert theirs.union(of_messages) - decided - MessagesRequest.model_fields.keys() == set()
    of_sdk = sdk_fields(message_count_tokens_params, "MessageCountTokensParams")
    assert of_sdk.union(of_count) - decided - CountRequest.model_fields.keys() == set()


def test_a_field_has_one_fate() -> None:
    honoured = MessagesRequest.model_fields.keys()
    assert not REFUSED.keys() & WITHOUT_EFFECT
    assert not honoured & (REFUSED.keys() | WITHOUT_EFFECT)
    assert not ChatRequest.model_fields.keys() & (REFUSED.keys() | WITHOUT_EFFECT)


def read(**fields: Any) -> Any:
    return MESSAGES.read(BASE | {"messages": HELLO} | fields)


def refusal_of(**fields: Any) -> Refusal:
    with pytest.raises(Refusal) as refused:
        read(**fields)
    assert refused.value.status == 400
    return refused.value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("compaction", {"type": "auto"}),
        ("container", "container_1"),
        ("mcp_servers", [{"type": "url", "url": "https://a", "name": "a"}]),
        ("prefill", "{"),
        ("thread", {"type": "create"}),
        ("n", 2),
        ("watermarking", True),
        ("kv_transfer_params", {"a": 1}),
        ("logprobs", True),
    ],
)
def test_what_is_not_offered_is_refused_by_name(name: str, value: Any) -> None:
    refusal = refusal_of(**{name: value})
    assert refusal.param == name
    assert str(refusal).startswith(f"got {name}=")


@pytest.mark.parametrize("name", sorted(WITHOUT_EFFECT))
def test_what_has_no_effect_by_nature_is_not_named(name: str) -> None:
    request = read(**{name: "x"})
    assert request.unread == ()
    assert name not in request.body


def test_settings_reach_the_sampler() -> None:
    request = read(
        temperature=0.3, top_p=0.9, top_k=5, stop_sequences=["a"], max_tokens=7, seed=3, min_p=0.1
    )
    sampling = request.fields.sampling(SamplingConfig(temperature=1.0, top_p=1.0, max_tokens=64))
    assert sampling.changed == {
        "temperature": 0.3, "top_p": 0.9, "max_tokens": 7, "top_k": 5, "stop": ["a"], "seed": 3,
        "min_p": 0.1,
    }  # fmt: skip
    assert request.unread == ()


def test_a_stream_says_its_usage() -> None:
    assert read(stream=True).fields.wants_usage
    assert not read(stream=False).fields.stream


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"temprature": 1}, ["temprature"]),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, ["thinking.budget_tokens"]),
        ({"thinking": {"type": "adaptive", "display": "omitted"}}, ["thinking.display"]),
        ({"thinking": {"type": "adaptive", "display": "summarized"}}, []),
        ({"thinking": {"type": "between_tools"}}, ["thinking.type"]),
        ({"output_config": {"task_budget": {"total": 9}}}, ["output_config.task_budget"]),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
         ["tools.web_search_20250305"]),
        ({"tools": [{**ADD, "input_examples": [{"a": 1}]}]}, ["tools.input_examples"]),
        ({"tools": [{**ADD, "eager_input_streaming": True, "cache_control": {}}]}, []),
        ({"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}},
         []),
        ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
         ["context_management"]),
        ({"context_management": {"edits": []}}, []),
        ({"system": [text("a"), PICTURE]}, ["system.image"]),
        ({"messages": [{"role": "user", "content": "a", "name": "x", "cache_control": {}}]},
         ["messages.name"]),
        ({"messages": of("assistant", {"type": "redacted_thinking", "data": "x"}, text("a"))},
         ["messages.content.redacted_thinking"]),
        ({"messages": after_call(result("x", is_error=True))},
         ["messages.content.tool_result.is_error"]),
        ({"messages": of("user", change("removal"), text("a")), "tools": [ADD]},
         ["messages.content.tool_removal"]),
        ({"messages": of("system", change("addition", SERVER_TOOL))}, ["tools.bash_20250124"]),
        ({"messages": of("user", {"type": "image", "source": {"type": "file", "file_id": "f"}},
                         text("a"))},
         ["messages.content.image"]),
        ({"messages": after_call(result([{"type": "tool_reference", "tool_name": "add"}]))},
         ["messages.content.tool_reference"]),
    ],
)  # fmt: skip
def test_what_has_no_effect_is_named(fields: dict[str, Any], names: list[str]) -> None:
    assert list(read(**fields).unread) == names


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ({"type": "document", "source": {"type": "text", "data": "a page"}}, "a page"),
        ({"type": "document", "source": {"type": "content", "content": [text("a page")]}},
         "a page"),
        ({"type": "search_result", "source": "https://a", "title": "b", "content": [text("c")]},
         "c"),
        ({"type": "mcp_tool_result", "tool_use_id": "a", "content": [text("c")]}, "c"),
        ({"type": "compaction", "content": "so far"}, "so far"),
        ({"type": "document", "source": {"type": "base64", "data": "JVBERi0="}}, ""),
        ({"type": "server_tool_use", "id": "a", "name": "web_search", "input": {"query": "q"}},
         ""),
        ({"type": "something_new", "value": {"a": 1}}, ""),
    ],
)  # fmt: skip
def test_other_blocks_keep_their_text_and_are_named(block: dict[str, Any], words: str) -> None:
    asked = [text("see"), block]
    for messages in ([{"role": "user", "content": asked}], after_call(result(asked))):
        request = read(messages=messages)
        last = request.fields.plain_messages()[-1]
        assert last["content"] == "\n".join(["see", *filter(None, [words])])
        assert request.unread == (f"messages.content.{block['type']}",)


@pytest.mark.parametrize(
    ("user", "body"),
    [
        (json.dumps({"device_id": "d", "account_uuid": "", "session_id": SESSION}),
         {"metadata": {"session_id": SESSION}}),
        (f"user_{'0f' * 32}_account__session_{SESSION}", {"metadata": {"session_id": SESSION}}),
        (f"user_1_account_{SESSION}_session_{SESSION}", {"metadata": {"session_id": SESSION}}),
        ("somebody", {"user": "somebody"}),
        ('{"device_id": "d"}', {"user": '{"device_id": "d"}'}),
        ("{broken", {"user": "{broken"}),
        (None, {}),
    ],
)  # fmt: skip
def test_the_session_is_told_by_what_clients_write_into_the_user(
    user: str | None, body: dict[str, Any]
) -> None:
    request = read(metadata={"user_id": user})
    told = {name: request.body[name] for name in ("metadata", "user") if name in request.body}
    assert told == body
    assert request.unread == ()


def test_the_gateways_own_fields_are_passed_on() -> None:
    body = read(session_id="s", turn_type="side", session_done=True).body
    assert (body["session_id"], body["turn_type"], body["session_done"]) == ("s", "side", True)


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"max_tokens": 0}, "max_tokens", "greater than or equal to 1"),
        ({"max_tokens": None}, "max_tokens", "valid integer"),
        ({"model": ""}, "model", "at least 1"),
        ({"messages": []}, "messages", "at least 1"),
        ({"messages": "hello"}, "messages", "valid list"),
        ({"messages": [3]}, "messages.0", "valid dictionary"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages.0.role", "'assistant'"),
        ({"messages": [{"role": "user"}]}, "messages.0.content", "a text or a list"),
        ({"messages": [{"role": "user", "content": [3]}]}, "messages.0.content.0", "a block"),
        ({"messages": [{"role": "user", "content": [{"text": "a"}]}]}, "messages.0.content.0",
         "a block with a type"),
        ({"messages": [*HELLO, {"role": "assistant", "content": "{"}]}, "messages.1",
         "the beginning of a reply"),
        ({"tools": [{"name": "f"}]}, "tools.0.input_schema", "a JSON schema"),
        ({"tools": [{"input_schema": {}}]}, "tools", "function.name"),
        ({"tools": [ADD], "tool_choice": {"type": "tool", "name": "sub"}}, "tool_choice", "'sub'"),
        ({"messages": of("system", change("removal"))}, "messages", "name of one of the tools"),
        ({"messages": of("system", change("addition", {"name": "f"}))},
         "tool_addition.tool.definition.input_schema", "a JSON schema"),
        ({"tools": [SERVER_TOOL], "tool_choice": {"type": "any"}},
         "tool_choice", "run on a server"),
        ({"tool_choice": {"type": "all"}}, "tool_choice.type", "'auto'"),
        ({"thinking": {"type": "much"}}, "thinking.type", "'enabled'"),
        ({"output_config": {"effort": "extreme"}}, "output_config.effort", "'low'"),
        ({"stop_sequences": "END"}, "stop_sequences", "valid list"),
        ({"stop_sequences": [""]}, "stop_sequences", "not empty"),
        ({"stop_sequences": ["a"], "stop": ["b"]}, "stop", "beside stop_sequences"),
        ({"temperature": -1}, "temperature", "greater than or equal to 0"),
        ({"top_k": -2}, "top_k", "greater than or equal to -1"),
        ({"metadata": "x"}, "metadata", "valid dictionary"),
        ({"system": 3}, "system.str", "valid string"),
    ],
)  # fmt: skip
def test_a_bad_field_is_told_in_the_dialects_words(
    fields: dict[str, Any], param: str, words: str
) -> None:
    refusal = refusal_of(**fields)
    assert (refusal.param or "").startswith(param)
    assert words in str(refusal)


@pytest.mark.parametrize("body", [None, 3, "x", [], {}])
def test_what_is_no_request_is_refused(body: object) -> None:
    for reading in (MESSAGES.read, read_count):
        with pytest.raises(Refusal) as refused:
            reading(body)
        assert refused.value.status == 400


RICH: dict[str, Any] = {
    **BASE,
    "system": [BILLING, text("Be brief.")],
    "messages": [
        {"role": "user", "content": [text("hello"), PICTURE]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm."}, CALL]},
        {"role": "user", "content": [result([text("2"), PICTURE], is_error=True), text("go")]},
        {"role": "system", "content": [change("removal"), change("addition", ADD), text("a")]},
    ],
    "tools": [{**ADD, "strict": True}, SERVER_TOOL],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 2000, "display": "omitted"},
    "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": None}},
    "metadata": {"user_id": json.dumps({"session_id": SESSION})},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "stop_sequences": ["END"],
    "stream": True,
}
ODD: list[Any] = [
    None, 3, -1.5, True, "", "x", "{", [], [3], [None], {}, {"type": 3}, {"type": "text"},
    {"type": "image"}, [{"type": "tool_result", "content": [3, {"type": "image", "source": 3}]}],
    [{"type": "tool_use", "input": [3]}], [{"type": ["text"]}], {"content": {"content": {}}},
]  # fmt: skip


def spoilt(value: Any) -> Iterator[Any]:
    """The value with one of its parts in another form, or without it."""
    yield from ODD
    for key in value if isinstance(value, dict) else []:
        yield {name: part for name, part in value.items() if name != key}
        yield from ({**value, key: part} for part in spoilt(value[key]))
    for at, item in enumerate(value) if isinstance(value, list) else []:
        yield from ([*value[:at], part, *value[at + 1 :]] for part in spoilt(item))


def test_whatever_is_odd_is_read_or_refused() -> None:
    outcomes = Counter[object]()
    for body in spoilt(RICH):
        for reading in (MESSAGES.read, read_count):
            try:
                outcomes[type(reading(body))] += 1
            except Refusal as refusal:
                outcomes[refusal.status] += 1
    assert outcomes.keys() == {DialectRequest, 400}
    assert min(outcomes.values()) > 500


def test_a_call_that_was_no_json_returns_as_it_was_sampled() -> None:
    cut = {**CALL, "input": {"_": '{"a": 1, "b'}}
    chat = read(messages=of("assistant", cut)).fields
    (message,) = [m for m in chat.plain_messages() if m.get("tool_calls")]
    assert message["tool_calls"][0]["function"]["arguments"] == '{"a": 1, "b'
    rendered = chat.body([message])["messages"][0]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(str(rendered)) == cut["input"], "the template is given what the client says"


def test_an_older_name_of_the_output_format_is_read() -> None:
    form = {"type": "json_schema", "schema": {"type": "object"}}
    older, _ = parse_as(
        MessagesRequest, BASE | {"messages": HELLO, "output_format": form}
    ).in_chat()
    newer, _ = parse_as(
        MessagesRequest, BASE | {"messages": HELLO, "output_config": {"format": form}}
    ).in_chat()
    assert older == newer
    assert "response_format" in older


def test_counting_needs_no_limit_and_takes_any_last_message() -> None:
    body = {"model": "policy", "messages": [*HELLO, {"role": "assistant", "content": "hi"}]}
    request: Any = read_count(body | {"tools": [ADD], "thinking": {"type": "disabled"}})
    assert [m["role"] for m in request.fields.plain_messages()] == ["user", "assistant"]
    assert request.fields.body([])["reasoning_effort"] == "none"
    assert count_json(7) == {"input_tokens": 7}


def test_models_are_listed() -> None:
    models = models_json(["policy", "other"])
    assert (models["first_id"], models["last_id"], models["has_more"]) == ("policy", "other", False)
    assert models_json([])["first_id"] is None
