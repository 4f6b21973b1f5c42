"""Common parts of the domains of tau-bench and tau2-bench: methods as tools, shared rows.

A method under `offered` is a tool: its signature is the schema, its docstring the description. Data
is shared by all episodes and never written: what an episode changes is kept beside it.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import (
    Any,
    Generic,
    Literal,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from clawrl_gym.core.types import Json, Tool
from clawrl_gym.envs.toolcall.toolset import ToolFailure, tool

MethodT = TypeVar("MethodT", bound=Callable[..., object])
RowT = TypeVar("RowT")
_PLAIN: Mapping[object, str] = {
    str: "string", int: "integer", float: "number", bool: "boolean", dict: "object",
}  # fmt: skip


def offered(method: MethodT) -> MethodT:
    """Marks a method as a tool."""
    method.__dict__["is_offered"] = True
    return method


@lru_cache
def tools_of(kind: type) -> tuple[Tool, ...]:
    """The schemas of a class's tools, in the order in which they are written."""
    return tuple(
        _schema(name, method)
        for name, method in vars(kind).items()
        if getattr(method, "is_offered", False)
    )


def call_offered(owner: object, name: str, arguments: Json) -> str:
    """Carry out one call whose arguments fit the schema. Raises ToolFailure."""
    method = getattr(type(owner), name, None)
    if not getattr(method, "is_offered", False):
        raise ToolFailure(f"there is no such tool: {name[:80]}")
    return call_method(owner, name, arguments)


def call_method(owner: object, name: str, arguments: Json) -> str:
    """Raises ToolFailure, as either benchmark does for whatever goes wrong within a tool."""
    try:
        result = getattr(owner, name)(**arguments)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ToolFailure(f"it failed: {type(error).__name__}: {error}") from error
    return result if isinstance(result, str) else json.dumps(result)


def _schema(name: str, method: Callable[..., object]) -> Tool:
    hints = get_type_hints(method)
    parameters = list(inspect.signature(method).parameters.values())[1:]
    properties = {one.name: _json_type(hints[one.name]) for one in parameters}
    schema = tool(name, " ".join((method.__doc__ or name).split()), properties)
    schema["function"]["parameters"]["required"] = [
        one.name for one in parameters if one.default is inspect.Parameter.empty
    ]
    return schema


def _json_type(hint: Any) -> dict[str, object]:
    """JSON schema of a plain type, a list, some literals, or a TypedDict."""
    if is_typeddict(hint):
        fields = {name: _json_type(field) for name, field in get_type_hints(hint).items()}
        required = sorted(hint.__required_keys__)
        return {"type": "object", "properties": fields, "required": required}
    if get_origin(hint) is Literal:
        return {"type": "string", "enum": list(get_args(hint))}
    if get_origin(hint) is list:
        return {"type": "array", "items": _json_type(get_args(hint)[0])}
    return {"type": _PLAIN[hint]}


class Table(Generic[RowT]):
    """A table as one episode sees it: the shared rows, and its own copies of those it changes."""

    def __init__(self, name: str, rows: Mapping[str, RowT]) -> None:
        """`name`: what one row is called."""
        self._name = name
        self._rows = rows
        self._edited: dict[str, RowT] = {}

    def ids(self) -> Iterable[str]:
        return self._rows

    def row(self, row_id: str) -> RowT:
        """A row, to be read only. Raises ToolFailure when it is not there."""
        if row_id in self._edited:
            return self._edited[row_id]
        if row_id not in self._rows:
            raise ToolFailure(f"{self._name} not found")
        return self._rows[row_id]

    def edit(self, row_id: str) -> RowT:
        """The episode's own copy of a row, to be written."""
        if row_id not in self._edited:
            self._edited[row_id] = copy.deepcopy(self._rows[row_id])
        return self._edited[row_id]

    def add(self, row_id: str, row: RowT) -> None:
        self._edited[row_id] = row

    def __contains__(self, row_id: str) -> bool:
        return row_id in self._edited or row_id in self._rows

    def changes(self) -> dict[str, RowT]:
        """The rows that are other than at the start, by id."""
        return {
            row_id: row
            for row_id, row in self._edited.items()
            if row_id not in self._rows or row != self._rows[row_id]
        }


def merged(base: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """An object with what another one has put in its place, objects within objects too."""
    both = dict(base)
    for key, value in changes.items():
        inner = both.get(key)
        if isinstance(value, Mapping) and isinstance(inner, dict):
            both[key] = merged(inner, value)
        else:
            both[key] = value
    return both
