"""Which toolsets there are, and the tools of one episode: what is offered, and calls carried out.

A further toolset is one more line of `TOOLSETS`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clawrl_gym.agents.tool_calls import Call, failure
from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.plugins import load
from clawrl_gym.core.types import Tool
from clawrl_gym.envs.toolcall.schema import arguments_of, name_of, say_what_is_unchecked
from clawrl_gym.envs.toolcall.task import ExecutedCall, ToolTask
from clawrl_gym.envs.toolcall.toolset import SharedToolset, ToolContext, ToolFailure, Toolset

_log = logging.getLogger(__name__)

TOOLSETS: Mapping[str, str] = {
    "bfcl": "clawrl_gym.envs.toolcall.benchmarks.bfcl:make",
    "calculator": "clawrl_gym.envs.toolcall.toolsets.calculator:make",
    "files": "clawrl_gym.envs.toolcall.toolsets.files:make",
    "mcp": "clawrl_gym.envs.toolcall.toolsets.mcp:make",
    "office": "clawrl_gym.envs.showcase.toolcall.office:make",
    "python": "clawrl_gym.envs.toolcall.toolsets.python:make",
    "shop": "clawrl_gym.envs.showcase.toolcall.shop:make",
    "tau2_airline": "clawrl_gym.envs.toolcall.benchmarks.tau_airline:make",
    "tau2_retail": "clawrl_gym.envs.toolcall.benchmarks.tau_retail:make_second",
    "tau2_telecom": "clawrl_gym.envs.toolcall.benchmarks.tau_telecom:make",
    "tau_retail": "clawrl_gym.envs.toolcall.benchmarks.tau_retail:make",
}
"""Factories `make(task, context) -> Toolset` by name."""

MAX_CALLS = 16
"""Calls that are carried out of one reply."""
MAX_RESULT_CHARS = 20_000
_MAX_NAME_CHARS = 100
_OF_DATA = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""Errors of a toolset over arguments or data that it did not expect; the machine's are others."""


@dataclass(frozen=True, slots=True)
class _Offer:
    """One tool as it is offered."""

    schema: Tool
    toolset: Toolset
    name: str
    """Name in its toolset."""


class UserTools:
    """The tools that a simulated user has in one episode."""

    def __init__(self, toolset: SharedToolset) -> None:
        self._toolset = toolset
        self._schemas = {name_of(schema): schema for schema in toolset.user_tools()}
        self.calls: list[Call] = []
        """Calls so far."""

    @property
    def schemas(self) -> list[Tool]:
        return list(self._schemas.values())

    def carry_out(self, call: Call, timeout_s: float) -> str:
        """The result of a call, or why it failed."""
        self.calls.append(call)
        try:
            if call.name not in self._schemas:
                raise ToolFailure(f"there is no such tool; tools: {', '.join(self._schemas)}")
            arguments = arguments_of(call.arguments, self._schemas[call.name])
            return _cut(self._toolset.call_as_user(call.name, arguments, timeout_s))
        except ToolFailure as why:
            return failure(call.name[:_MAX_NAME_CHARS], _cut(str(why)))


class Toolbox:
    """The toolsets of one episode."""

    def __init__(self, toolsets: Mapping[str, Toolset], names: Sequence[str] | None) -> None:
        self._toolsets = dict(toolsets)
        self._offers = _choose(_offers(toolsets), names)

    @classmethod
    def open(cls, task: ToolTask, context: ToolContext) -> Toolbox:
        """Raises TaskError for toolsets or tools that are not there."""
        names = list(task.toolsets)
        if context.config.mcp and "mcp" not in names:
            names.append("mcp")
        toolsets: dict[str, Toolset] = {}
        try:
            for name in names:
                toolsets[name] = _make(name, task, context)
            return cls(toolsets, _with_mcp(task.tools, toolsets))
        except BaseException:
            _close(toolsets)
            raise

    @property
    def schemas(self) -> list[Tool]:
        return [offer.schema for offer in self._offers.values()]

    def carry_out(self, calls: Sequence[Call], timeout_s: float) -> tuple[ExecutedCall, ...]:
        """The calls of one reply, in order."""
        executed = [self._carry_out(call, timeout_s) for call in calls[:MAX_CALLS]]
        too_many = f"too many calls at once: at most {MAX_CALLS}"
        return (*executed, *(_failed(call, {}, too_many) for call in calls[MAX_CALLS:]))

    def user_tools(self) -> UserTools | None:
        """Tools of a simulated user; None when there is none."""
        for toolset in self._toolsets.values():
            if isinstance(toolset, SharedToolset):
                return UserTools(toolset)
        return None

    def states(self) -> dict[str, object]:
        return {name: toolset.state() for name, toolset in self._toolsets.items()}

    def close(self) -> None:
        """Let go of all; idempotent."""
        toolsets, self._toolsets = self._toolsets, {}
        _close(toolsets)

    def _carry_out(self, call: Call, timeout_s: float) -> ExecutedCall:
        arguments: dict[str, object] = {}
        try:
            offer = self._offers.get(call.name)
            if offer is None:
                names = ", ".join(sorted(self._offers)) or "none"
                raise ToolFailure(f"there is no such tool; tools: {names}")
            arguments = arguments_of(call.arguments, offer.schema)
            result = offer.toolset.call(offer.name, arguments, timeout_s)
        except ToolFailure as why:
            return _failed(call, arguments, str(why))
        except _OF_DATA as error:
            _log.exception("the tool %r failed", call.name)
            return _failed(call, arguments, f"{type(error).__name__}: {error}")
        return ExecutedCall(call, arguments, _cut(result), failed=False)


def _make(name: str, task: ToolTask, context: ToolContext) -> Toolset:
    if name not in TOOLSETS:
        raise TaskError(
            f"task {task.id!r}: got the toolset {name!r}, expected one of: {', '.join(TOOLSETS)}"
        )
    toolset: Toolset = load(TOOLSETS[name], f"the toolset {name!r}")(task, context)
    return toolset


def _offers(toolsets: Mapping[str, Toolset]) -> dict[str, _Offer]:
    """Offers by name; a name that is taken gets the toolset's in front."""
    offers: dict[str, _Offer] = {}
    for toolset_name, toolset in toolsets.items():
        for schema in toolset.tools():
            say_what_is_unchecked(schema)
            own = name_of(schema)
            name = own if own not in offers else f"{toolset_name}_{own}"
            if name in offers:
                raise TaskError(f"the toolset {toolset_name!r} has two tools named {own!r}")
            renamed: Tool = {**schema, "function": {**schema["function"], "name": name}}
            offers[name] = _Offer(renamed, toolset, own)
    return offers


def _choose(offers: dict[str, _Offer], names: Sequence[str] | None) -> dict[str, _Offer]:
    if names is None:
        return offers
    unknown = sorted(set(names) - set(offers))
    if unknown:
        raise TaskError(f"got the tools {unknown}, expected some of: {', '.join(offers)}")
    return {name: offers[name] for name in names}


def _with_mcp(names: Sequence[str] | None, toolsets: Mapping[str, Toolset]) -> Sequence[str] | None:
    """A task's choice is among its own tools: those of the user's servers are offered too."""
    if names is None or "mcp" not in toolsets:
        return names
    own = {name: toolset for name, toolset in toolsets.items() if name != "mcp"}
    added = [name for name in _offers(toolsets) if name not in _offers(own)]
    return [*names, *(name for name in added if name not in names)]


def _close(toolsets: Mapping[str, Toolset]) -> None:
    for toolset in toolsets.values():
        toolset.close()


def _failed(call: Call, arguments: Mapping[str, object], why: str) -> ExecutedCall:
    result = failure(call.name[:_MAX_NAME_CHARS], _cut(why))
    return ExecutedCall(call, arguments, result, failed=True)


def _cut(text: str) -> str:
    if len(text) <= MAX_RESULT_CHARS:
        return text
    return f"{text[:MAX_RESULT_CHARS]}\n(output cut)"
