"""Tools by the set: schemas to offer, calls to carry out, a state to grade.

A toolset lives as long as one episode. What the model does wrong is a `ToolFailure`, which becomes
the call's result; what the machine does wrong is an EnvError.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from clawrl_gym.core.types import Json, Tool
from clawrl_gym.envs.sandbox.sandboxes import Opener, Sandboxes
from clawrl_gym.envs.toolcall.config import ToolCallEnvConfig


class ToolFailure(Exception):
    """A call that cannot be carried out, in words for the model."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Context that toolsets, tasks and customers are made with."""

    config: ToolCallEnvConfig = field(default_factory=ToolCallEnvConfig)
    open_sandbox: Opener | None = None
    """Takes the place of the configured kind's."""

    @property
    def sandboxes(self) -> Sandboxes:
        return Sandboxes.of(self.config.sandbox, self.open_sandbox)


class Toolset(Protocol):
    """The tools of one kind, with their state. Calls of one toolset never overlap."""

    def tools(self) -> list[Tool]:
        """The schemas, each `{"type": "function", "function": {...}}`."""
        ...

    def call(self, name: str, arguments: Json, timeout_s: float) -> str:
        """Carry out one call whose arguments fit the schema. Raises ToolFailure."""
        ...

    def state(self) -> object:
        """State that a grade compares, as JSON; None when there is none."""
        ...

    def close(self) -> None:
        """Let go of everything; idempotent."""
        ...


@runtime_checkable
class SharedToolset(Protocol):
    """A toolset of which a simulated user has tools of its own."""

    def user_tools(self) -> list[Tool]: ...

    def call_as_user(self, name: str, arguments: Json, timeout_s: float) -> str:
        """Raises ToolFailure."""
        ...


def tool(name: str, description: str, properties: Json, *required: str) -> Tool:
    """A schema; all properties are required unless some are named."""
    parameters = {
        "type": "object",
        "properties": dict(properties),
        "required": list(required or properties),
        "additionalProperties": False,
    }
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }
