"""Tools of the Responses API as functions of a chat request, and the way back.

To the model every tool is a function: a free-form tool is one with a single text argument, and the
functions of a namespace have its name before theirs, as vLLM shows both. Tools that OpenAI itself
carries out are not offered here; they are left out and named.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from clawrl_gym.core.types import JsonObject
from clawrl_gym.gateway.wire.refusals import Refusal

_OF_FUNCTION = ("name", "description", "parameters", "strict", "defer_loading")
_FREE_FORM = {
    "type": "object",
    "properties": {
        "input": {"type": "string", "description": "The freeform text payload for this tool."}
    },
    "required": ["input"],
    "additionalProperties": False,
}
"""Parameters of a free-form tool; the words are vLLM's."""


def flat_name(namespace: str, name: str) -> str:
    """A namespaced function's name for the model."""
    return f"{namespace}__{name}"


@dataclass(frozen=True, slots=True)
class CallName:
    """What a client calls a tool."""

    name: str
    namespace: str | None = None
    is_custom: bool = False
    """Its calls are `custom_tool_call` items."""


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """The tools that the model is shown."""

    functions: dict[str, JsonObject] = field(default_factory=dict)
    """In the form of chat completions, by the name that the model knows."""
    names: dict[str, CallName] = field(default_factory=dict)
    """By the name that the model knows."""
    unread: set[str] = field(default_factory=set)
    """Names of what was left out."""

    def add(self, tool: JsonObject, called: CallName, flat: str) -> None:
        function = {name: tool[name] for name in _OF_FUNCTION if tool.get(name) is not None}
        function["name"] = flat
        if called.is_custom:
            function["parameters"] = _FREE_FORM
        self.functions[flat] = {"type": "function", "function": function}
        self.names[flat] = called

    def named(self, name: object) -> str:
        """The model's name of a tool, by that or by the one in its namespace. Raises Refusal."""
        if isinstance(name, str) and name in self.functions:
            return name
        found = [flat for flat, called in self.names.items() if called.name == name]
        if len(found) == 1:
            return found[0]
        why = f"it is in several namespaces: {', '.join(found)}" if found else "no tool has it"
        wrong = f"tool_choice: got the name {name!r:.100}, expected that of a tool: {why}"
        raise Refusal(400, wrong, param="tool_choice")


def offered_tools(tools: list[JsonObject]) -> OfferedTools:
    """What the model is shown of `tools`. Raises Refusal (400) for a tool without a name."""
    offered = OfferedTools()
    for at, tool in enumerate(tools):
        kind = tool.get("type")
        if kind == "function":
            name = _name_of(tool, f"tools.{at}")
            offered.add(tool, CallName(name), name)
            _name_unread(offered, tool, ())
        elif kind == "custom":
            name = _name_of(tool, f"tools.{at}")
            offered.add(_described(tool), CallName(name, is_custom=True), name)
            is_free = tool.get("format") in (None, {"type": "text"})
            _name_unread(offered, tool, ("format",) if is_free else ())
        elif kind == "namespace":
            _add_namespace(offered, tool, f"tools.{at}")
        else:
            offered.unread.add(f"tools.{kind}"[:100])
    return offered


def _described(tool: JsonObject) -> JsonObject:
    return {name: tool.get(name) for name in ("name", "description")}


def _add_namespace(offered: OfferedTools, tool: JsonObject, where: str) -> None:
    namespace, members = _name_of(tool, where), tool.get("tools")
    for at, member in enumerate(members if isinstance(members, list) else []):
        kind = member.get("type") if isinstance(member, dict) else None
        if kind == "function":
            name = _name_of(member, f"{where}.tools.{at}")
            offered.add(member, CallName(name, namespace), flat_name(namespace, name))
            _name_unread(offered, member, ())
        else:
            offered.unread.add(f"tools.namespace.{kind}"[:100])


def _name_unread(offered: OfferedTools, tool: JsonObject, neutral: tuple[str, ...]) -> None:
    others = tool.keys() - set(_OF_FUNCTION) - {"type", *neutral}
    offered.unread.update(f"tools.{name}"[:100] for name in others if tool[name])


def _name_of(tool: JsonObject, where: str) -> str:
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        wrong = f"{where}.name: got {name!r:.100}, expected a text"
        raise Refusal(400, wrong, param=f"{where}.name")
    return name


def chosen(choice: object, offered: OfferedTools) -> tuple[list[JsonObject], object]:
    """The functions among which the model chooses, and `tool_choice` in the form of chat
    completions; None where there is nothing to choose. Raises Refusal (400)."""
    kind = choice.get("type") if isinstance(choice, dict) else choice
    functions = list(offered.functions.values())
    if isinstance(choice, dict) and kind == "allowed_tools":
        functions = _allowed(choice, offered)
        choice = kind = choice.get("mode")
    if isinstance(choice, dict) and kind in ("function", "custom"):
        name = offered.named(choice.get("name"))
        return functions, {"type": "function", "function": {"name": name}}
    if kind not in (None, "auto", "none", "required"):
        wrong = (
            f"tool_choice: got {choice!r:.200}, expected auto, none, required, allowed_tools or a "
            "function's name: tools of OpenAI's own are not offered"
        )
        raise Refusal(400, wrong, param="tool_choice")
    if kind == "required" and not functions:
        wrong = "tool_choice: got 'required' without a function or custom tool, expected one"
        raise Refusal(400, wrong, param="tool_choice")
    return functions, choice if functions else None


def _allowed(choice: JsonObject, offered: OfferedTools) -> list[JsonObject]:
    """Only the allowed functions: the others are not shown. Raises Refusal (400)."""
    tools = choice.get("tools")
    names = set()
    for tool in tools if isinstance(tools, list) else []:
        kind = tool.get("type") if isinstance(tool, dict) else None
        if kind in ("function", "custom"):
            names.add(offered.named(tool.get("name")))
        elif kind == "namespace":
            space = tool.get("name")
            names |= {flat for flat, name in offered.names.items() if name.namespace == space}
    if not names:
        wrong = "tool_choice.tools: got no function or custom tool, expected one"
        raise Refusal(400, wrong, param="tool_choice.tools")
    return [function for name, function in offered.functions.items() if name in names]


def custom_input(arguments: str) -> str:
    """The text that a call gives to a free-form tool; bare text is passed on as it is."""
    try:
        fields = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    text = fields.get("input") if isinstance(fields, dict) else None
    return text if isinstance(text, str) else arguments
