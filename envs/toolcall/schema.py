"""Arguments of a call, checked: JSON within bounds that fits the tool's schema.

What does not fit is a ToolFailure in words for the model, whatever the model wrote.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.types import Tool
from clawrl_gym.envs.toolcall.toolset import ToolFailure

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

MAX_CHARS = 100_000
MAX_DEPTH = 32
_MAX_WORDS_CHARS = 300


def name_of(tool: Tool) -> str:
    """A schema's name. Raises TaskError for what is no schema of a tool."""
    function = tool.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise TaskError(f"got the tool {str(tool)[:200]}, expected a function with a name")
    return str(function["name"])


def check_tool(tool: Tool) -> None:
    """Raises TaskError for a tool whose parameters are no JSON schema."""
    from jsonschema.exceptions import SchemaError

    name = name_of(tool)
    try:
        _validator(_key(tool))
    except SchemaError as error:
        raise TaskError(
            f"the parameters of the tool {name!r} are no JSON schema: "
            f"{error.message[:_MAX_WORDS_CHARS]}"
        ) from error


def arguments_of(text: str, tool: Tool) -> dict[str, object]:
    """The parsed arguments. Raises ToolFailure for what is not JSON or does not fit."""
    arguments = _parsed(text, tool)
    _check_bounds(arguments)
    _check_schema(arguments, tool)
    return arguments


def _parsed(text: str, tool: Tool) -> dict[str, object]:
    if len(text) > MAX_CHARS:
        raise ToolFailure(f"the arguments are too long: at most {MAX_CHARS} characters")
    try:
        arguments = json.loads(
            text if text.strip() else "{}",
            object_pairs_hook=_without_repeats,
            parse_constant=_no_constant,
        )
    except (ValueError, RecursionError):
        raise ToolFailure(f"the arguments are not JSON; expected {_expected(tool)}") from None
    if not isinstance(arguments, dict):
        raise ToolFailure(f"the arguments are no JSON object; expected {_expected(tool)}")
    return arguments


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    arguments = dict(pairs)
    if len(arguments) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ToolFailure(f"the argument {twice[:80]!r} is given twice")
    return arguments


def _no_constant(word: str) -> object:
    raise ToolFailure(f"{word} is not a JSON number")


def _check_bounds(arguments: object) -> None:
    for text in _texts(arguments):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ToolFailure("a text in the arguments is not valid Unicode") from None


def _texts(content: object) -> Iterator[str]:
    """Every text, keys too. Raises ToolFailure for what is nested too deeply."""
    left = [(content, 1)]
    while left:
        value, depth = left.pop()
        if depth > MAX_DEPTH:
            raise ToolFailure(f"the arguments are nested too deeply: at most {MAX_DEPTH} levels")
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            yield from value
            left += [(part, depth + 1) for part in value.values()]
        elif isinstance(value, list):
            left += [(part, depth + 1) for part in value]


def _check_schema(arguments: dict[str, object], tool: Tool) -> None:
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable

    try:
        error = best_match(_validator(_key(tool)).iter_errors(arguments))
    except Unresolvable as error:
        raise TaskError(
            f"the schema of the tool {name_of(tool)!r} points outside of itself: {error}"
        ) from error
    if error is not None:
        where = ".".join(str(part) for part in error.absolute_path)
        words = f"at {where}: {error.message}" if where else error.message
        if len(words) > _MAX_WORDS_CHARS:
            words = words[:_MAX_WORDS_CHARS] + "..."
        raise ToolFailure(f"wrong arguments: {words}")


def _key(tool: Tool) -> str:
    return json.dumps(tool["function"].get("parameters") or {}, sort_keys=True)


@lru_cache(maxsize=1024)
def _validator(key: str) -> Validator:
    """A validator that reads nothing from elsewhere: jsonschema's own would fetch a `$ref`."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from referencing import Registry

    schema = json.loads(key)
    kind = validator_for(schema, default=Draft202012Validator)
    kind.check_schema(schema)
    return kind(schema, registry=Registry())


def _expected(tool: Tool) -> str:
    parameters = tool["function"].get("parameters") or {}
    names = parameters.get("required") or list(parameters.get("properties") or {})
    return ", ".join(names) or "{}"
