"""The seam between environments and the chat model: pure functions, no I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from clawrl_gym.core.types import Message, Tool


@dataclass(frozen=True, slots=True)
class Action:
    """Input of the environment's `step`."""

    text: str


@dataclass(frozen=True, slots=True)
class ParseFailure:
    """The reply holds no action; the message goes back to the model as an observation."""

    message: str


class Agent(Protocol):
    """Observation <-> messages <-> action."""

    def messages(self, observations: Sequence[str], replies: Sequence[Message]) -> list[Message]:
        """The request for the next turn. There is one observation more than replies."""
        ...

    def tools(self, env_tools: Sequence[Tool]) -> list[Tool]:
        """Which of the environment's tools (`info["tools"]`) each request offers to the model."""
        ...

    def instructions(self, env_tools: Sequence[Tool]) -> str:
        """End of the system message: tools in words, for a model that is offered none."""
        ...

    def action(self, reply: Message) -> Action | ParseFailure:
        """The action that the reply asks for."""
        ...
