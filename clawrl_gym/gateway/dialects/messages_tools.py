"""Tools of a Messages request, as tools of chat completions.

Chat templates are given one list of tools: those in effect at the conversation's end, as vLLM's own
converter finds them. Tools that would run on a server are left out and named.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from clawrl_gym.core.types import JsonObject
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.gateway.wire.requests import Fields

_FIELDS = frozenset({
    "name", "description", "input_schema", "type", "strict", "defer_loading",
})  # fmt: skip
_WITHOUT_EFFECT = frozenset({"allowed_callers", "cache_control", "eager_input_streaming"})
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


class ToolChoice(Fields):
    """Which tools may or must be called."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None

    def in_chat(self, tools: Sequence[JsonObject]) -> object:
        """The choice among tools of chat completions. Raises Refusal (400)."""
        if self.type in ("auto", "none"):
            return _CHOICES[self.type]
        chosen: JsonObject = {"type": "function", "function": {"name": self.name}}
        if self.type == "any" and tools:
            return _CHOICES[self.type]
        if self.type == "tool" and any(_name_in(tool) == self.name for tool in tools):
            return chosen
        wanted = f"tool {self.name!r:.100}" if self.type == "tool" else "'any'"
        raise Refusal(
            400,
            f"tool_choice: got {wanted}, expected one of the tools with an input_schema: tools "
            "that run on a server are not offered",
            param="tool_choice",
        )


def tools_in_chat(
    tools: Sequence[JsonObject], changes: Sequence[JsonObject], unread: set[str]
) -> list[JsonObject]:
    """The tools that can be called. `changes`: the blocks that add and remove some of them.
    `unread` gets the names of what is left out. Raises Refusal (400)."""
    offered = [tool for at, tool in enumerate(tools) if _runs_here(tool, f"tools.{at}", unread)]
    return [_function(tool) for tool in _changed(offered, changes, unread)]


def _changed(
    tools: list[JsonObject], changes: Sequence[JsonObject], unread: set[str]
) -> list[JsonObject]:
    """The tools after all changes."""
    if not changes:
        return tools
    by_name, removed = {str(tool.get("name")): tool for tool in tools}, set[str]()
    for block in changes:
        kind, change = str(block["type"]), block.get("tool")
        change = change if isinstance(change, dict) else {}
        definition = change.get("definition")
        if kind == "tool_addition" and isinstance(definition, dict):
            name = str(definition.get("name"))
            if not _runs_here(definition, f"{kind}.tool.definition", unread):
                continue
            by_name[name] = definition
        else:
            name = str(change.get("name"))
            if name not in by_name:
                wrong = f"{kind}: got {change!r:.100}, expected the name of one of the tools"
                raise Refusal(400, wrong, param="messages")
            if kind == "tool_addition":
                by_name[name] = {**by_name[name], "defer_loading": None}
        (removed.add if kind == "tool_removal" else removed.discard)(name)
    return [tool for name, tool in by_name.items() if name not in removed]


def _runs_here(tool: JsonObject, where: str, unread: set[str]) -> bool:
    """Whether a tool is the client's: it has a schema. Raises Refusal (400)."""
    kind, schema = tool.get("type"), tool.get("input_schema")
    if isinstance(schema, dict):
        extra = tool.keys() - _FIELDS - _WITHOUT_EFFECT
        unread.update(f"tools.{name}" for name in extra if tool[name])
        return True
    if kind in (None, "custom"):
        where = f"{where}.input_schema"
        raise Refusal(400, f"{where}: got {schema!r:.100}, expected a JSON schema", param=where)
    unread.add(f"tools.{kind}")
    return False


def _function(tool: JsonObject) -> JsonObject:
    schema = tool["input_schema"]
    assert isinstance(schema, dict)  # `_runs_here` leaves nothing else
    function: JsonObject = {"name": tool.get("name")}
    if tool.get("description") is not None:
        function["description"] = tool["description"]
    function["parameters"] = schema if "type" in schema else {**schema, "type": "object"}
    for name in ("strict", "defer_loading"):
        if tool.get(name) is not None:
            function[name] = tool[name]
    return {"type": "function", "function": function}


def _name_in(tool: JsonObject) -> object:
    function = tool["function"]
    assert isinstance(function, dict)  # made by `_function`
    return function["name"]
