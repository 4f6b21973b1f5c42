"""What solves a task of BFCL: its data say what is right, not what to call."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from clawrl_gym.agents.tool_calls import Call, Reply
from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.toolcall.goals import WantedCall
from clawrl_gym.envs.toolcall.toolset import Tool


def right_reply(wanted: Sequence[WantedCall], functions: Sequence[Tool], where: str) -> Reply:
    """The calls that are right. Raises TaskError for one of a function that is not there."""
    by_name = {function["function"]["name"]: function for function in functions}
    unknown = [call.name for call in wanted if call.name not in by_name]
    if unknown:
        raise TaskError(f"{where}: the answer calls {unknown}, expected functions of the question")
    return Reply("", tuple(_call(call, n, by_name) for n, call in enumerate(wanted)))


def _call(wanted: WantedCall, number: int, functions: Mapping[str, Tool]) -> Call:
    """A call that is right: the first allowed value of each argument that it takes."""
    parameters = functions[wanted.name]["function"]["parameters"]
    required = parameters.get("required", ())
    given = {
        name: _first([value for value in values if value != ""] or values)
        for name, values in wanted.arguments.items()
        if name in required or "" not in values
    }
    return Call(f"call-{number + 1}", wanted.name, json.dumps(given))


def _first(values: Any) -> Any:
    """Of a list of allowed values the first, and so inside it."""
    return _inside(values[0] if isinstance(values, list) and values else values)


def _inside(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _first(v) for k, v in value.items() if not (isinstance(v, list) and "" in v)}
    return [_inside(one) for one in value] if isinstance(value, list) else value


def any_call(function: Tool) -> Call:
    """Some call that fits the schema of a function."""
    parameters = function["function"]["parameters"]
    properties = parameters.get("properties", {})
    given = {name: _sample(properties.get(name, {})) for name in parameters.get("required", [])}
    return Call("call-1", function["function"]["name"], json.dumps(given))


def _sample(schema: Mapping[str, Any]) -> Any:
    if schema.get("enum"):
        return schema["enum"][0]
    if schema.get("type") == "object":
        inner = schema.get("properties", {})
        return {name: _sample(inner.get(name, {})) for name in schema.get("required", [])}
    samples = {"array": [], "number": 1.0, "integer": 1, "boolean": True}
    return samples.get(str(schema.get("type")), "x")
