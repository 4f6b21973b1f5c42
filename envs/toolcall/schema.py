"""Arguments of a call, checked: JSON within bounds that fits the tool's schema.

What does not fit is a ToolFailure in words for the model, whatever the model wrote. A schema that
cannot be read whole (`readable_schema.py`) is checked as far as it can, and never stops a call.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.types import Tool
from clawrl_gym.envs.toolcall.readable_schema import read_schema, say_once
from clawrl_gym.envs.toolcall.toolset import ToolFailure

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
    name = name_of(tool)
    why = read_schema(_key(tool)).why_unreadable
    if why:
        raise TaskError(
            f"the parameters of the tool {name!r} are no JSON schema: {why[:_MAX_WORDS_CHARS]}"
        )


def say_what_is_unchecked(tool: Tool) -> None:
    """Raises TaskError for what is no schema of a tool; of one that cannot be read whole the log
    says so once."""
    name = name_of(tool)
    why = read_schema(_key(tool)).why_unreadable
    if why:
        say_once(name, why)


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
    words = read_schema(_key(tool)).first_error(arguments, tool["function"]["name"])
    if len(words) > _MAX_WORDS_CHARS:
        words = words[:_MAX_WORDS_CHARS] + "..."
    if words:
        raise ToolFailure(f"wrong arguments: {words}")


def parameters_of(tool: Tool) -> Mapping[str, object]:
    """A tool's schema of arguments; empty for one that has none."""
    parameters: object = tool["function"].get("parameters")
    return parameters if isinstance(parameters, Mapping) else {}


def _key(tool: Tool) -> str:
    return json.dumps(parameters_of(tool), sort_keys=True, default=str)


def _expected(tool: Tool) -> str:
    parameters = parameters_of(tool)
    for names in (parameters.get("required"), parameters.get("properties")):
        if isinstance(names, list | dict) and names:
            return ", ".join(map(str, names))
    return "{}"
