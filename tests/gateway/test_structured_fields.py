"""Fields that force a reply into a form: what each asks the engine for, and what is refused."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from openai.lib._parsing._completions import type_to_response_format_param
from pydantic import BaseModel

from clawrl_gym.config import SamplingConfig
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.gateway.wire.requests import ChatRequest, CompletionRequest, parse_as
from clawrl_gym.gateway.wire.structured import LONGEST_FORM
from clawrl_gym.inference.vllm.wire import sampling_params
from tests.support.gateway_rig import HELLO, Bench

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
RUN = SamplingConfig(temperature=1.0, top_p=1.0, max_tokens=64)
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in "fg"]
NAMED = {"type": "function", "function": {"name": "f"}}


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    await bench.start()
    yield bench
    await bench.stop()


FORMS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"response_format": {"type": "json_object"}}, {"json_object": True}),
    ({"response_format": FORMAT}, {"json": SCHEMA}),
    ({"structured_outputs": {"json": SCHEMA}}, {"json": SCHEMA}),
    ({"structured_outputs": {"json": json.dumps(SCHEMA)}}, {"json": SCHEMA}),
    ({"structured_outputs": {"regex": "a+"}}, {"regex": "a+"}),
    ({"structured_outputs": {"regex": ""}}, {"regex": ""}),
    ({"structured_outputs": {"choice": ["a", "b"]}}, {"choice": ["a", "b"]}),
    ({"structured_outputs": {"grammar": 'root ::= "a"'}}, {"grammar": 'root ::= "a"'}),
    ({"structured_outputs": {"json_object": True, "regex": None}}, {"json_object": True}),
    ({"guided_json": SCHEMA}, {"json": SCHEMA}),
    ({"guided_regex": "a+"}, {"regex": "a+"}),
    ({"guided_choice": ["a"]}, {"choice": ["a"]}),
    ({"guided_grammar": 'root ::= "a"'}, {"grammar": 'root ::= "a"'}),
]


@pytest.mark.parametrize(("fields", "form"), FORMS)
@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_form_reaches_the_engine_in_vllms_words(
    bench: Bench, fields: dict[str, Any], form: dict[str, Any], path: str, stream: bool
) -> None:
    body: dict[str, Any] = {"messages": HELLO} if path == CHAT else {"prompt": "x"}
    async with bench.http.post(path, json=body | fields | {"stream": stream}) as answer:
        assert answer.status == 200, await answer.text()
        await answer.read()
    (sampling,) = bench.policy.samplings
    assert sampling_params(sampling)["structured_outputs"] == form
    assert sampling.untrainable == next(iter(fields))


@pytest.mark.parametrize(
    "fields", [{"response_format": {"type": "text"}}, {"guided_json": ""}, {"guided_choice": []}]
)
def test_what_asks_for_no_form_is_no_form(fields: dict[str, Any]) -> None:
    assert parse_as(ChatRequest, {"messages": HELLO, **fields}).structured is None


@pytest.mark.parametrize("choice", ["required", NAMED])
async def test_a_demanded_call_is_in_the_chat_and_no_free_sample(bench: Bench, choice: Any) -> None:
    await bench.say(HELLO, tools=TOOLS, tool_choice=choice)
    (body,), (sampling,) = bench.policy.bodies, bench.policy.samplings
    assert body["tool_choice"] == choice
    assert "structured_outputs" not in sampling_params(sampling)
    assert "tool_choice" not in sampling_params(sampling)
    (turn,) = await bench.store.turns_of("s1")
    assert turn.untrainable == "tool_choice"
    assert turn.template == {"tool_choice": choice}


def test_a_strict_tool_has_an_effect_where_a_call_is_demanded() -> None:
    strict = [{"type": "function", "function": {**TOOLS[0]["function"], "strict": True}}]  # type: ignore[dict-item]
    asked = {"messages": HELLO, "tools": strict}
    assert parse_as(ChatRequest, asked).unread == ["tools.function.strict"]
    assert parse_as(ChatRequest, {**asked, "tool_choice": "required"}).unread == []


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"tool_choice": "required"}, "tool_choice", "no tools, expected tools to call"),
    ({"tool_choice": NAMED}, "tool_choice", "no tools"),
    ({"tool_choice": {**NAMED, "function": {"name": "h"}}, "tools": TOOLS}, "tool_choice",
     "the name 'h', expected one of tools: f, g"),
    ({"tool_choice": {"type": "allowed_tools"}, "tools": TOOLS}, "tool_choice.NamedTool.type", ""),
    ({"tool_choice": "any", "tools": TOOLS}, "tool_choice", "expected 'auto'"),
    ({"response_format": {"type": "grammar"}}, "response_format", "'grammar'"),
    ({"response_format": {"type": "structural_tag"}}, "response_format", "'structural_tag'"),
    ({"response_format": {"type": "json_object", "schema": SCHEMA}},
     "response_format.json_object.schema", "not permitted"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.json_schema",
     "required"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
     "response_format.json_schema.json_schema.schema", "required"),
    ({"structured_outputs": {}}, "structured_outputs", "no form, expected one of json"),
    ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs", "two forms"),
    ({"structured_outputs": {"regex": "a"}, "response_format": FORMAT}, "structured_outputs",
     "response_format (json) and structured_outputs (regex)"),
    ({"response_format": FORMAT, "tool_choice": "required", "tools": TOOLS}, "tool_choice",
     "two forms"),
    ({"structured_outputs": {"choice": []}}, "structured_outputs.choice", "at least 1"),
    ({"structured_outputs": {"choice": [3]}}, "structured_outputs.choice.0", "string"),
    ({"structured_outputs": {"json_object": False}}, "structured_outputs.json_object", "True"),
    ({"structured_outputs": {"grammar": " "}}, "structured_outputs", "without a rule"),
    ({"structured_outputs": {"json": "{"}}, "structured_outputs", "not JSON"),
    ({"structured_outputs": {"json": "3"}}, "structured_outputs", "in the place of a JSON schema"),
    ({"structured_outputs": {"regex": "a\x00"}}, "structured_outputs", "NUL"),
    ({"structured_outputs": {"regex": "a" * 4097}}, "structured_outputs", "4097 characters"),
    ({"structured_outputs": {"regex": "a", "whitespace_pattern": "b"}},
     "structured_outputs.whitespace_pattern", ""),
    ({"structured_outputs": {"regex": "a", "disable_any_whitespace": True}},
     "structured_outputs.disable_any_whitespace", ""),
    ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs.structural_tag", ""),
    ({"guided_choice": ["x" * LONGEST_FORM]}, "guided_choice", f"at most {LONGEST_FORM}"),
    ({"response_format": FORMAT, "min_tokens": 3}, "min_tokens", "beside response_format"),
    ({"response_format": FORMAT, "ignore_eos": True}, "ignore_eos", "beside response_format"),
    ({"guided_regex": "a", "bad_words": ["a"]}, "bad_words", "beside guided_regex"),
    ({"guided_regex": "a", "allowed_token_ids": [3]}, "allowed_token_ids", "beside guided_regex"),
    ({"tool_choice": "required", "min_tokens": 3, "tools": TOOLS}, "min_tokens",
     "beside tool_choice"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param", "says"), BAD)
def test_a_form_that_cannot_be_kept_to_is_refused_by_name(
    fields: dict[str, Any], param: str, says: str
) -> None:
    with pytest.raises(Refusal) as refused:
        parse_as(ChatRequest, {"messages": HELLO, **fields})
    assert (refused.value.status, refused.value.param) == (400, param)
    assert says in str(refused.value)


def test_the_tools_of_a_demanded_call_are_checked_like_a_schema() -> None:
    odd = [{"type": "function", "function": {"name": "f", "parameters": {"not": {}}}}]
    asked = {"messages": HELLO, "tools": odd}
    assert parse_as(ChatRequest, asked).structured is None
    for choice in ("required", NAMED):
        with pytest.raises(Refusal, match="tools: got a JSON schema with not"):
            parse_as(ChatRequest, {**asked, "tool_choice": choice})
    other = [*odd, {"type": "function", "function": {"name": "g"}}]
    named_other = {"type": "function", "function": {"name": "g"}}
    assert parse_as(ChatRequest, {**asked, "tools": other, "tool_choice": named_other}).structured


class Address(BaseModel):
    street: str
    number: int | None = None


class Person(BaseModel):
    name: str
    homes: list[Address]


@pytest.mark.parametrize("model", [Person, Address])
def test_the_schemas_of_openais_sdk_are_let_through(model: type[BaseModel]) -> None:
    asked: Any = type_to_response_format_param(model)
    form = parse_as(ChatRequest, {"messages": HELLO, "response_format": asked}).structured
    assert form is not None
    assert form.value == asked["json_schema"]["schema"]


def test_a_completion_has_forms_and_no_calls() -> None:
    fields = {"prompt": "x", "structured_outputs": {"regex": "a"}, "tool_choice": "required"}
    asked = parse_as(CompletionRequest, fields)
    assert asked.structured is not None
    assert asked.structured.kind == "regex"
    assert asked.unread == ["tool_choice"]
