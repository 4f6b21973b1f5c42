"""Fields of a request that force its reply into a form, and their one meaning.

A form is checked before an engine sees it. It must not be so large that it stalls one, and must
not say what the engine would not keep: xgrammar, which masks the tokens, passes over some of JSON
Schema without a word. `tests/inference/test_structured_vllm.py` holds the lists below against it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from clawrl_gym.core.types import Json, JsonObject
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.inference.structured import Kind, Structured

LONGEST_FORM = 65_536
"""Characters of a form as JSON text."""
DEEPEST_SCHEMA = 32
"""Schemas within one another."""
_LONGEST_REGEX = 4096
_NOT_KEPT = (
    "not", "if", "dependentRequired", "dependentSchemas", "dependencies", "multipleOf",
    "uniqueItems", "contains", "additionalItems", "$dynamicRef", "$recursiveRef",
)  # fmt: skip
"""Keywords that would not be kept to."""
_ALONE = ("$ref", "anyOf", "oneOf", "allOf", "enum", "const")
"""Keywords beside which no other is kept to, but `type` beside values."""
_VALUES = ("enum", "const")
_OF_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_OF_TEXTS = ("minLength", "maxLength", "pattern", "format")
_ASSERTIONS = frozenset({
    *_ALONE, *_OF_NUMBERS, *_OF_TEXTS, "type", "properties", "required", "additionalProperties",
    "patternProperties", "propertyNames", "minProperties", "maxProperties",
    "unevaluatedProperties", "items", "prefixItems", "minItems", "maxItems", "unevaluatedItems",
})  # fmt: skip
_NAMED_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions")
_LISTED_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SCHEMAS = (
    "items", "additionalProperties", "propertyNames", "unevaluatedProperties", "unevaluatedItems",
)  # fmt: skip


class Exact(BaseModel):
    """Base of what would change its meaning with a field left out: unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class TextFormat(Exact):
    """Any text."""

    type: Literal["text"]


class JsonObjectFormat(Exact):
    """Any JSON object."""

    type: Literal["json_object"]


class JsonSchema(Exact):
    """A schema as OpenAI wraps it."""

    name: str | None = None
    description: str | None = None
    json_schema: JsonObject = Field(alias="schema")
    strict: bool | None = None
    """No effect: it is always kept to."""


class JsonSchemaFormat(Exact):
    """JSON of a schema."""

    type: Literal["json_schema"]
    json_schema: JsonSchema


ResponseFormat = Annotated[
    TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")
]


class StructuredOutputs(Exact):
    """vLLM's `structured_outputs`: one of its forms."""

    json_: str | JsonObject | None = Field(None, alias="json")
    regex: str | None = None
    choice: list[str] | None = Field(None, min_length=1)
    grammar: str | None = Field(None, min_length=1)
    json_object: Literal[True] | None = None
    disable_any_whitespace: Literal[False] | None = None
    disable_additional_properties: Literal[False] | None = None
    whitespace_pattern: None = None
    structural_tag: None = None


class FunctionName(Exact):
    """The function of a tool choice."""

    name: str = Field(min_length=1)


class NamedTool(Exact):
    """The tool that must be called."""

    type: Literal["function"]
    function: FunctionName


ToolChoice = Literal["auto", "none", "required"] | NamedTool


def response_form(wish: ResponseFormat | None) -> Iterator[Structured]:
    """The form in `response_format`. Raises Refusal (400)."""
    if isinstance(wish, JsonObjectFormat):
        yield Structured.of("response_format", "json_object", True)
    if isinstance(wish, JsonSchemaFormat):
        yield _form("response_format", "json", wish.json_schema.json_schema)


def vllm_forms(wish: StructuredOutputs | None) -> Iterator[Structured]:
    """The forms in `structured_outputs`. Raises Refusal (400)."""
    if wish is None:
        return
    values: dict[Kind, object] = {
        "json": wish.json_, "regex": wish.regex, "choice": wish.choice, "grammar": wish.grammar,
        "json_object": wish.json_object,
    }  # fmt: skip
    forms = [
        _form("structured_outputs", kind, value)
        for kind, value in values.items()
        if value is not None
    ]
    if not forms:
        raise _refused("structured_outputs", f"no form, expected one of {', '.join(values)}")
    yield from forms


def guided_forms(values: Mapping[Kind, object]) -> Iterator[Structured]:
    """The forms in vLLM's names of earlier releases. Raises Refusal (400)."""
    for kind, value in values.items():
        if value:
            yield _form(f"guided_{kind}", kind, value)


def one_of(forms: Iterator[Structured]) -> Structured | None:
    """The only form, if there is one. Raises Refusal (400) for several."""
    first, *others = [*forms] or [None]
    for other in others:
        assert first is not None
        assert other is not None
        where = f"{first.field} ({first.kind}) and {other.field} ({other.kind})"
        raise _refused(other.field, f"two forms, {where}, expected one")
    return first


def forced_call(choice: ToolChoice | None, tools: list[JsonObject] | None) -> Structured | None:
    """The call that must be made; None where none must. Raises Refusal (400) where there is no
    such tool, and for tools that no form can be made of."""
    if not isinstance(choice, NamedTool) and choice != "required":
        return None
    functions = [tool["function"] for tool in tools or []]
    schemas = {str(f["name"]): f.get("parameters") for f in functions if isinstance(f, dict)}
    if not schemas:
        raise _refused("tool_choice", f"{_shown(choice)} and no tools, expected tools to call")
    if isinstance(choice, NamedTool):
        name = choice.function.name
        if name not in schemas:
            listed = ", ".join(sorted(schemas)[:8])
            raise _refused("tool_choice", f"the name {name!r}, expected one of tools: {listed}")
        schemas = {name: schemas[name]}
    _check_length("tools", schemas)
    for schema in schemas.values():
        if schema is not None:
            _check_schema("tools", schema)
    value = choice.model_dump() if isinstance(choice, NamedTool) else choice
    return Structured.of("tool_choice", "tool_call", value)


def check_settings(form: Structured, settings: Mapping[str, object]) -> None:
    """Raise Refusal (400) for sampling settings with which no token may be left, or which go on
    behind the form's end."""
    for name, value in settings.items():
        if value:
            raise _refused(name, f"{name} beside {form.field}, expected one of them")


def _form(field: str, kind: Kind, value: object) -> Structured:
    if kind == "json" and isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise _refused(field, "a text that is not JSON, expected a JSON schema") from None
    _check_length(field, value)
    if kind == "json":
        _check_schema(field, value)
    if kind == "regex":
        _check_regex(field, str(value))
    if kind == "grammar" and not str(value).strip():
        raise _refused(field, "a grammar without a rule, expected a grammar")
    return Structured.of(field, kind, value)


def _check_length(field: str, value: object) -> None:
    try:
        length = len(json.dumps(value, ensure_ascii=False))
    except RecursionError:
        raise _refused(field, f"more than {DEEPEST_SCHEMA} schemas within one another") from None
    if length > LONGEST_FORM:
        raise _refused(field, f"a form of {length} characters, expected at most {LONGEST_FORM}")


def _check_regex(field: str, pattern: str) -> None:
    if len(pattern) > _LONGEST_REGEX:
        what = f"a pattern of {len(pattern)} characters"
        raise _refused(field, f"{what}, expected at most {_LONGEST_REGEX}")
    if "\x00" in pattern:
        raise _refused(field, "a pattern with a NUL character, expected none")


def _check_schema(field: str, schema: object) -> None:
    """Raise Refusal (400) for what is no schema, and for one that would not be kept to."""
    level = [schema]
    for _ in range(DEEPEST_SCHEMA):
        for one in level:
            if not isinstance(one, dict | bool):
                raise _refused(field, f"{_shown(one)} in the place of a JSON schema")
            if isinstance(one, dict) and (why := _not_kept(one)):
                raise _refused(field, f"a JSON schema with {why}")
        level = [part for one in level if isinstance(one, dict) for part in _parts(one)]
        if not level:
            return
    raise _refused(field, f"more than {DEEPEST_SCHEMA} schemas within one another")


def _not_kept(schema: JsonObject) -> str:
    """What of a schema would not be kept to, and the remedy; empty where all would."""
    asserted = schema.keys() & _ASSERTIONS
    for name in _NOT_KEPT:
        if schema.get(name) not in (None, False):
            return f"{name}, which cannot be kept to: leave it out"
    for name in _ALONE:
        others = asserted - {name} - ({"type"} if name in _VALUES else set())
        if name in schema and others:
            return f"{min(others)} beside {name}, which would not be kept to: put it inside"
    if len(_items(schema.get("allOf"))) > 1:
        return "several schemas in allOf, which would not be kept to: make them one"
    if "type" not in schema and (untyped := asserted.intersection(_OF_NUMBERS + _OF_TEXTS)):
        return f"{min(untyped)} and no type, which would not be kept to: add its type"
    ref = schema.get("$ref", "#")
    if not isinstance(ref, str) or (ref != "#" and not ref.startswith("#/")):
        return f"$ref={_shown(ref)}, expected '#' or '#/...'"
    return _foreign_value(schema)


def _foreign_value(schema: JsonObject) -> str:
    """A value that is not of the schema's type, and would be allowed all the same."""
    types = _items(schema.get("type"))
    values = [*_items(schema.get("enum")), *([schema["const"]] if "const" in schema else [])]
    for value in values:
        if types and not any(_is_of(value, str(one)) for one in types):
            return (
                f"the value {_shown(value)}, expected one of its type: {', '.join(map(str, types))}"
            )
    return ""


def _is_of(value: object, json_type: str) -> bool:
    classes: dict[str, type | tuple[type, ...]] = {
        "string": str, "integer": int, "number": (int, float), "object": dict, "array": list,
        "boolean": bool, "null": type(None),
    }  # fmt: skip
    if isinstance(value, bool):
        return json_type == "boolean"
    return isinstance(value, classes.get(json_type, object))


def _parts(schema: JsonObject) -> Iterator[Json | object]:
    """The schemas inside a schema."""
    for name in _NAMED_SCHEMAS:
        named = schema.get(name)
        yield from named.values() if isinstance(named, dict) else ()
    for name in _LISTED_SCHEMAS:
        yield from _items(schema.get(name)) if name in schema else ()
    yield from (schema[name] for name in _SCHEMAS if name in schema)


def _items(value: object) -> list[object]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _shown(value: object) -> str:
    shown = repr(value.model_dump() if isinstance(value, BaseModel) else value)
    return shown if len(shown) <= 80 else f"{shown[:80]}..."


def _refused(field: str, what: str) -> Refusal:
    return Refusal(400, f"{field}: got {what}", param=field)
