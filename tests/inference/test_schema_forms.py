"""A JSON schema that the gateway lets through is kept to: xgrammar, which masks the tokens, takes
what the schema takes and nothing else. What it would pass over is refused by name."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import jsonschema
import pytest

from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.gateway.wire.requests import ChatRequest, parse_as

pytestmark = pytest.mark.slow  # xgrammar imports torch
INT, TEXT = {"type": "integer"}, {"type": "string"}
AB = {"a": INT, "b": INT}


def thing(**more: Any) -> dict[str, Any]:
    return {"type": "object", **more}


KEPT: list[tuple[Any, str, str]] = [
    (INT, "1", '"a"'),
    ({"type": ["string", "null"]}, "null", "1"),
    ({"const": 3}, "3", "4"),
    ({"const": "a", "type": "string", "title": "Kind"}, '"a"', '"b"'),
    ({"enum": [1, "x"]}, '"x"', '"y"'),
    ({"anyOf": [INT, TEXT], "description": "either"}, "1", "true"),
    ({"oneOf": [INT, TEXT]}, '"a"', "true"),
    ({"allOf": [INT]}, "1", '"a"'),
    ({"$ref": "#/$defs/x", "$defs": {"x": INT}}, "1", '"a"'),
    ({**INT, "minimum": 5}, "7", "3"),
    ({"type": "number", "exclusiveMaximum": 5}, "4.5", "5.5"),
    ({**TEXT, "minLength": 3}, '"abc"', '"a"'),
    ({**TEXT, "pattern": "^a+$"}, '"aa"', '"b"'),
    ({**TEXT, "format": "date"}, '"2020-01-01"', '"x"'),
    ({"type": "array", "items": INT, "minItems": 2}, "[1, 2]", "[1]"),
    ({"type": "array", "prefixItems": [INT, TEXT], "items": False}, '[1, "a"]', '["a", 1]'),
    (thing(properties={"a": INT}, required=["a"]), '{"a": 1}', "{}"),
    (thing(properties={"a": INT}, additionalProperties=False), '{"a": 1}', '{"b": 1}'),
    (thing(additionalProperties=INT), '{"b": 1}', '{"b": "x"}'),
    (thing(properties=AB, minProperties=1), '{"a": 1}', "{}"),
    (thing(propertyNames={**TEXT, "pattern": "^a+$"}), '{"aa": 1}', '{"b": 1}'),
    (thing(properties={"not": INT}, required=["not"]), '{"not": 1}', "{}"),
    ({"properties": {"a": INT}, "required": ["a"]}, '{"a": 1}', "{}"),
]
"""Schemas, a text that each takes and one that it does not."""
NOT_KEPT: list[tuple[Any, str, str]] = [
    ({"type": ["string", "integer"], "not": TEXT}, '"a"', "not"),
    (thing(properties=AB, **{"if": {"required": ["a"]}, "then": {"required": ["b"]}}), '{"a": 1}',
     "if"),
    ({"allOf": [INT, {**INT, "minimum": 5}]}, "3", "allOf"),
    (thing(properties={"a": INT}, required=["a"], anyOf=[thing()]), "{}", "beside anyOf"),
    ({"type": "string", "anyOf": [INT, TEXT]}, "1", "type beside anyOf"),
    ({"$ref": "#/$defs/x", "minimum": 5, "$defs": {"x": INT}}, "3", "minimum beside"),
    ({**TEXT, "enum": [1, "x"]}, "1", "the value 1"),
    ({"multipleOf": 5}, "3", "multipleOf"),
    ({"minimum": 5}, "3", "minimum and no type"),
    ({"minLength": 3}, '"a"', "minLength and no type"),
    ({"type": "array", "items": INT, "uniqueItems": True}, "[1, 1]", "uniqueItems"),
    (thing(properties=AB, dependentRequired={"a": ["b"]}), '{"a": 1}', "dependentRequired"),
    (thing(properties=AB, dependentSchemas={"a": {"required": ["b"]}}), '{"a": 1}',
     "dependentSchemas"),
    (thing(properties=AB, dependencies={"a": ["b"]}), '{"a": 1}', "dependencies"),
    ({"$ref": "#x", "$defs": {"y": {"$anchor": "x", **INT}}}, '"a"', "expected '#' or '#/...'"),
    ({"$dynamicRef": "#x", "$defs": {"y": {"$dynamicAnchor": "x", **INT}}}, '"a"', "$dynamicRef"),
]  # fmt: skip
"""Schemas, a text that none of them takes and xgrammar would, and what the refusal names."""


def asked(schema: Any) -> ChatRequest:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    messages = [{"role": "user", "content": "x"}]
    return parse_as(ChatRequest, {"messages": messages, "response_format": form})


@cache
def compiler() -> Any:
    xgrammar = pytest.importorskip("xgrammar")
    vocabulary = [*map(chr, range(32, 127)), "</s>"]
    info = xgrammar.TokenizerInfo(vocabulary, stop_token_ids=[len(vocabulary) - 1])
    return xgrammar.GrammarCompiler(info, max_threads=1)


def takes(schema: Any, text: str) -> bool:
    import xgrammar

    grammar = compiler().compile_json_schema(json.dumps(schema))
    matcher = xgrammar.GrammarMatcher(grammar, terminate_without_stop_token=True)
    return bool(matcher.accept_string(text) and matcher.is_terminated())


def valid(schema: Any, text: str) -> bool:
    is_old = "dependencies" in schema
    draft = jsonschema.Draft7Validator if is_old else jsonschema.Draft202012Validator
    validator = draft(schema)
    return bool(validator.is_valid(json.loads(text)))


@pytest.mark.parametrize(("schema", "right", "wrong"), KEPT)
def test_what_is_let_through_is_kept_to(schema: Any, right: str, wrong: str) -> None:
    form = asked(schema).structured
    assert form is not None
    assert form.value == schema
    assert (takes(schema, right), takes(schema, wrong)) == (True, False)
    if "format" not in schema:
        assert (valid(schema, right), valid(schema, wrong)) == (True, False)


@pytest.mark.parametrize(("schema", "wrong", "says"), NOT_KEPT)
def test_what_would_be_passed_over_is_refused(schema: Any, wrong: str, says: str) -> None:
    assert takes(schema, wrong), "it is kept to by now: let it through"
    if "anchor" not in json.dumps(schema).lower():
        assert not valid(schema, wrong)
    with pytest.raises(Refusal) as refused:
        asked(schema)
    assert (refused.value.status, refused.value.param) == (400, "response_format")
    assert says in str(refused.value)
    with pytest.raises(Refusal, match="a JSON schema with"):
        asked({"type": "object", "properties": {"deep": {"type": "array", "items": schema}}})


def test_a_schema_is_searched_to_its_last_level_and_no_further() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(31):
        deep = {"type": "array", "items": deep}
    assert asked(deep).structured is not None
    for more in (1, 10, 60):
        for _ in range(more):
            deep = {"type": "array", "items": deep}
        with pytest.raises(Refusal, match="more than 32 schemas within one another"):
            asked(deep)


@pytest.mark.parametrize("schema", [[], "x", 3, None, {"properties": {"a": 3}}, {"items": "x"}])
def test_what_is_no_schema_is_told(schema: Any) -> None:
    with pytest.raises(Refusal):
        asked(schema)
