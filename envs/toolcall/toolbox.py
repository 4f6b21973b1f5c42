"""Which toolsets there are, and the tools of one episode: what is offered, and calls carried out.

A further toolset is one more line of `TOOLSETS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clawrl_gym.agents.tool_calls import Call, failure
from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.plugins import load
from clawrl_gym.core.types import Tool
from clawrl_gym.envs.toolcall.schema import arguments_of, check_tool, name_of
from clawrl_gym.envs.toolcall.task import ExecutedCall, ToolTask
from clawrl_gym.envs.toolcall.toolset import ToolFailure, Toolset

TOOLSETS: Mapping[str, str] = {
    "bfcl": "clawrl_gym.envs.toolcall.benchmarks.bfcl:make",
    "calculator": "clawrl_gym.envs.toolcall.toolsets.calculator:make",
    "files": "clawrl_gym.envs.toolcall.toolsets.files:make",
    "mcp": "clawrl_gym.envs.toolcall.toolsets.mcp:make",
    "python": "clawrl_gym.envs.toolcall.toolsets.python:make",
    "shop": "clawrl_gym.envs.toolcall.shop:make",
    "tau_retail": "clawrl_gym.envs.toolcall.benchmarks.tau_retail:make",
}
"""By name, a factory `make(task, options) -> Toolset`; options are the environment's own."""

MAX_CALLS = 16
"""Calls that are carried out of one reply."""
MAX_RESULT_CHARS = 20_000
_MAX_NAME_CHARS = 100


@dataclass(frozen=True, slots=True)
class _Offer:
    """One tool as it is offered."""

    schema: Tool
    toolset: Toolset
    name: str
    """What its toolset calls it."""


class Toolbox:
    """The toolsets of one episode."""

    def __init__(self, toolsets: Mapping[str, Toolset], chosen: Sequence[str] | None) -> None:
        self._toolsets = dict(toolsets)
        self._offers = _choose(_offers(toolsets), chosen)

    @classmethod
    def open(cls, task: ToolTask, options: Mapping[str, Any]) -> Toolbox:
        """Raises TaskError for toolsets or tools that are not there."""
        names = list(task.toolsets)
        if options.get("mcp") and "mcp" not in names:
            names.append("mcp")
        made: dict[str, Toolset] = {}
        try:
            for name in names:
                made[name] = _make(name, task, options)
            return cls(made, _with_mcp(task.tools, made))
        except BaseException:
            _close(made)
            raise

    @property
    def offered(self) -> list[Tool]:
        return [offer.schema for offer in self._offers.values()]

    def carry_out(self, calls: Sequence[Call], timeout_s: float) -> tuple[ExecutedCall, ...]:
        """The calls of one reply, in order."""
        made = [self._carry_out(call, timeout_s) for call in calls[:MAX_CALLS]]
        too_many = f"too many calls at once: at most {MAX_CALLS}"
        return (*made, *(_failed(call, {}, too_many) for call in calls[MAX_CALLS:]))

    def states(self) -> dict[str, Any]:
        return {name: toolset.state() for name, toolset in self._toolsets.items()}

    def close(self) -> None:
        """Let go of all; idempotent."""
        toolsets, self._toolsets = self._toolsets, {}
        _close(toolsets)

    def _carry_out(self, call: Call, timeout_s: float) -> ExecutedCall:
        arguments: dict[str, Any] = {}
        try:
            offer = self._offers.get(call.name)
            if offer is None:
                known = ", ".join(sorted(self._offers)) or "none"
                raise ToolFailure(f"there is no such tool; tools: {known}")
            arguments = arguments_of(call.arguments, offer.schema)
            result = offer.toolset.call(offer.name, arguments, timeout_s)
        except ToolFailure as why:
            return _failed(call, arguments, str(why))
        return ExecutedCall(call, arguments, _cut(result), failed=False)


def _make(name: str, task: ToolTask, options: Mapping[str, Any]) -> Toolset:
    if name not in TOOLSETS:
        raise TaskError(
            f"task {task.id!r}: got the toolset {name!r}, expected one of: {', '.join(TOOLSETS)}"
        )
    toolset: Toolset = load(TOOLSETS[name], f"the toolset {name!r}")(task, options)
    return toolset


def _offers(toolsets: Mapping[str, Toolset]) -> dict[str, _Offer]:
    """By name; a name that is taken gets the toolset's in front."""
    offers: dict[str, _Offer] = {}
    for toolset_name, toolset in toolsets.items():
        for schema in toolset.tools():
            check_tool(schema)
            own = name_of(schema)
            name = own if own not in offers else f"{toolset_name}_{own}"
            if name in offers:
                raise TaskError(f"the toolset {toolset_name!r} has two tools named {own!r}")
            renamed: Tool = {**schema, "function": {**schema["function"], "name": name}}
            offers[name] = _Offer(renamed, toolset, own)
    return offers


def _choose(offers: dict[str, _Offer], chosen: Sequence[str] | None) -> dict[str, _Offer]:
    if chosen is None:
        return offers
    unknown = sorted(set(chosen) - set(offers))
    if unknown:
        raise TaskError(f"got the tools {unknown}, expected some of: {', '.join(offers)}")
    return {name: offers[name] for name in chosen}


def _with_mcp(chosen: Sequence[str] | None, made: Mapping[str, Toolset]) -> Sequence[str] | None:
    """A task's choice is among its own tools: those of the user's servers are offered too."""
    if chosen is None or "mcp" not in made:
        return chosen
    others = {name: toolset for name, toolset in made.items() if name != "mcp"}
    added = [name for name in _offers(made) if name not in _offers(others)]
    return [*chosen, *(name for name in added if name not in chosen)]


def _close(toolsets: Mapping[str, Toolset]) -> None:
    for toolset in toolsets.values():
        toolset.close()


def _failed(call: Call, arguments: Mapping[str, Any], why: str) -> ExecutedCall:
    told = failure(call.name[:_MAX_NAME_CHARS], _cut(why))
    return ExecutedCall(call, arguments, told, failed=True)


def _cut(text: str) -> str:
    if len(text) <= MAX_RESULT_CHARS:
        return text
    return f"{text[:MAX_RESULT_CHARS]}\n(output cut)"
