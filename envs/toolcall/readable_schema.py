"""JSON schemas of other people's tools, read as far as they can be.

A schema that follows its draft is checked whole. Of another one, or of one whose references lead
nowhere or round in circles, each property and each further keyword is checked for itself; a part
that cannot be read asserts nothing, and the log says so once. Nothing is fetched from elsewhere.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

_log = logging.getLogger(__name__)
_DEFINITIONS = ("$defs", "definitions")
_OF_PROPERTIES = ("properties", "patternProperties")
_CONDITION = ("if", "then", "else")
_OF_THE_WHOLE = (
    *_DEFINITIONS,
    *_CONDITION,
    "properties",
    "unevaluatedProperties",
    "$schema",
    "$id",
)
"""Keywords that are no part of their own."""
_GROUP = re.compile(
    r"\\.|\[(?:\\.|[^\]\\])*\]|\((?P<inside>[^()\[\]\\]*)\)(?P<again>[*+]|\{\d*,\d*\})?"
)
_REPEATS = re.compile(r"[*+|]|\{\d*,\d*\}")
_MAX_CHARS_OF_SLOW_PATTERN = 20
_said = set[str]()


@dataclass(frozen=True, slots=True)
class ReadSchema:
    """The part of a schema that can be checked."""

    whole: Validator
    parts: tuple[Validator, ...]
    """Parts for where the whole cannot be used; without those that break their draft."""
    why_unreadable: str
    """The rule of the draft that it breaks; empty for a schema that follows it."""

    def first_error(self, arguments: Mapping[str, object], tool: str) -> str:
        """First argument that does not fit, in words; empty when all that can be checked fits."""
        if not self.why_unreadable:
            try:
                return _in_words(self.whole, arguments)
            except Exception as error:  # noqa: BLE001 - a reference, a pattern: the schema's own
                say_once(tool, _reason(error))
        for part in self.parts:
            with suppress(Exception):
                if words := _in_words(part, arguments):
                    return words
        return ""


@lru_cache(maxsize=1024)
def read_schema(text: str) -> ReadSchema:
    """Read a schema that is given as JSON."""
    from referencing import Registry

    schema = json.loads(text)
    kind = _draft(schema)
    rules = kind(kind.META_SCHEMA, format_checker=kind.FORMAT_CHECKER)
    why = _first_breach(rules, schema)
    usable = schema if not why else _without_wrong_definitions(rules, schema)
    for field in ("$schema", "$id", "id"):
        if not isinstance(usable.get(field, ""), str):
            usable = {key: value for key, value in usable.items() if key != field}
    whole = _with_quick_patterns(kind)(usable, registry=Registry())
    parts = tuple(
        whole.evolve(schema=part) for part in _parts(usable) if not _first_breach(rules, part)
    )
    return ReadSchema(whole, parts, why)


def say_once(tool: str, why: str) -> None:
    """One line in the log, once a tool, about what is not checked of its arguments."""
    if tool not in _said:
        _said.add(tool)
        _log.warning(
            "the tool %r is offered, but its schema cannot be checked whole: %s", tool, why[:200]
        )


def _draft(schema: Mapping[str, Any]) -> type[Validator]:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    if not isinstance(schema.get("$schema", ""), str):
        return cast("type[Validator]", Draft202012Validator)
    return cast("type[Validator]", validator_for(schema, default=Draft202012Validator))


def _with_quick_patterns(kind: type[Validator]) -> type[Validator]:
    """The draft, but that no pattern is tried for years: one that repeats what repeats asserts
    nothing about a long text."""
    from jsonschema.exceptions import ValidationError
    from jsonschema.validators import extend

    def pattern(
        validator: Validator, wanted: str, instance: object, schema: object
    ) -> Iterator[ValidationError]:
        if not isinstance(instance, str):
            return
        if len(instance) > _MAX_CHARS_OF_SLOW_PATTERN and may_be_slow(wanted):
            return
        if not re.search(wanted, instance):
            yield ValidationError(f"{instance!r} does not match {wanted!r}")

    return cast("type[Validator]", extend(kind, {"pattern": pattern}))


@cache
def may_be_slow(pattern: str) -> bool:
    """Whether a group that is repeated holds repetitions or choices, as in (a+)+: such a pattern
    may take time that doubles with each letter."""
    found = False

    def flat(match: re.Match[str]) -> str:
        nonlocal found
        inside = match["inside"]
        if inside is None:
            return "x"  # a class, or one letter
        repeats = _REPEATS.search(inside.removeprefix("?:")) is not None
        found = found or (repeats and match["again"] is not None)
        return "x*" if repeats or match["again"] else "x"

    pattern, before = _GROUP.sub(flat, pattern), ""
    while pattern != before and not found:
        pattern, before = _GROUP.sub(flat, pattern), pattern
    return found


def _first_breach(rules: Validator, schema: object) -> str:
    """The rule of the draft that a schema breaks; empty when it breaks none."""
    from jsonschema.exceptions import best_match

    try:
        error = best_match(rules.iter_errors(schema))
    except Exception as wrong:  # noqa: BLE001 - such as one that is nested too deeply
        return _reason(wrong)
    return "" if error is None else error.message


def _without_wrong_definitions(rules: Validator, schema: dict[str, Any]) -> dict[str, Any]:
    """Whatever refers to a definition that cannot be read finds none, and cannot be read either."""
    usable = dict(schema)
    for field in _DEFINITIONS:
        if field not in usable:
            continue
        listed = usable[field] if isinstance(usable[field], dict) else {}
        usable[field] = {name: one for name, one in listed.items() if not _first_breach(rules, one)}
    return usable


def _parts(schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Pieces of a schema that say the same when each is checked for itself."""
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    for name, one in properties.items():
        yield {"properties": {name: one}}
    known = {field: schema[field] for field in _OF_PROPERTIES if field in schema}
    known |= {"properties": {name: {} for name in properties}}
    for keyword in schema.keys() - _OF_THE_WHOLE:
        around = known if keyword == "additionalProperties" else {}
        yield {**around, keyword: schema[keyword]}
    condition = {word: schema[word] for word in _CONDITION if word in schema}
    if condition:
        yield condition


def _in_words(validator: Validator, arguments: Mapping[str, object]) -> str:
    from jsonschema.exceptions import best_match

    error = best_match(_errors(validator.iter_errors(arguments)))
    if error is None:
        return ""
    where = ".".join(str(part) for part in error.absolute_path)
    return f"at {where}: {error.message}" if where else error.message


def _errors(found: Iterable[ValidationError]) -> Iterator[ValidationError]:
    """Errors without those about null where OpenAPI's `nullable` allows it."""
    for error in found:
        schema = error.schema
        allows_null = isinstance(schema, Mapping) and schema.get("nullable") is True
        if not (error.instance is None and allows_null):
            yield error


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it refers to itself without an end"
    return str(error) or type(error).__name__
