"""Fields of a request that force its reply into a form, and their one meaning.

A form is checked before an engine sees it: it must not be so large that it stalls one, and must not
say what the engine would not keep.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from clawrl_gym.core.text import read_json
from clawrl_gym.core.types import JsonObject
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.gateway.wire.schemas import DEEPEST_SCHEMA, not_kept_in
from clawrl_gym.inference.structured import Kind, Structured

LONGEST_FORM = 65_536
"""Characters of a form as JSON text."""
_LONGEST_REGEX = 4096


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
    found = [*forms]
    for other in found[1:]:
        where = f"{found[0].field} ({found[0].kind}) and {other.field} ({other.kind})"
        raise _refused(other.field, f"two forms, {where}, expected one")
    return found[0] if found else None


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
            value = read_json(value.encode(), "client")
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
    why = not_kept_in(schema)
    if why:
        raise _refused(field, why)


def _shown(value: object) -> str:
    shown = repr(value.model_dump() if isinstance(value, BaseModel) else value)
    return shown if len(shown) <= 80 else f"{shown[:80]}..."


def _refused(field: str, what: str) -> Refusal:
    return Refusal(400, f"{field}: got {what}", param=field)
