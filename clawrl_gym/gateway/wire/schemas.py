"""JSON schemas that a reply can be kept to.

xgrammar, which masks the tokens, passes over some of JSON Schema without a word: its replies would
break the schema. `tests/inference/test_schema_forms.py` holds the lists below against it.
"""

from __future__ import annotations

from collections.abc import Iterator
from reprlib import Repr

from clawrl_gym.core.types import JsonObject

DEEPEST_SCHEMA = 32
"""Schemas within one another."""
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
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 80


def not_kept_in(schema: object) -> str:
    """What of a schema would not be kept to, and the remedy; empty where all would."""
    level = [schema]
    for _ in range(DEEPEST_SCHEMA):
        for one in level:
            if not isinstance(one, dict | bool):
                return f"{_SHORT.repr(one)} in the place of a JSON schema"
            if isinstance(one, dict) and (why := _not_kept(one)):
                return f"a JSON schema with {why}"
        level = [part for one in level if isinstance(one, dict) for part in _parts(one)]
        if not level:
            return ""
    return f"more than {DEEPEST_SCHEMA} schemas within one another"


def _not_kept(schema: JsonObject) -> str:
    """What of its own keywords."""
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
        return f"$ref={_SHORT.repr(ref)}, expected '#' or '#/...'"
    return _foreign_value(schema)


def _foreign_value(schema: JsonObject) -> str:
    """A value that is not of the schema's type, and would be allowed all the same."""
    types = _items(schema.get("type"))
    values = [*_items(schema.get("enum")), *([schema["const"]] if "const" in schema else [])]
    for value in values:
        if types and not any(_is_of(value, str(one)) for one in types):
            listed = ", ".join(map(str, types))
            return f"the value {_SHORT.repr(value)}, expected one of its type: {listed}"
    return ""


def _is_of(value: object, json_type: str) -> bool:
    classes: dict[str, type | tuple[type, ...]] = {
        "string": str, "integer": int, "number": (int, float), "object": dict, "array": list,
        "boolean": bool, "null": type(None),
    }  # fmt: skip
    if isinstance(value, bool):
        return json_type == "boolean"
    return isinstance(value, classes.get(json_type, object))


def _parts(schema: JsonObject) -> Iterator[object]:
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
