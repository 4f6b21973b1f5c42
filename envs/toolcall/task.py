"""A task with tools: a request, what the tools start from, and when it is solved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from clawrl_gym.agents.tool_calls import Call, Reply
from clawrl_gym.core.types import Json, Split


@dataclass(frozen=True, slots=True)
class ExecutedCall:
    """One call that was carried out."""

    call: Call
    arguments: Json
    """Parsed and valid for the tool's schema; empty when the call failed before that."""
    result: str
    failed: bool


@dataclass(frozen=True, slots=True)
class Utterance:
    """One message of a conversation, as a judge reads it."""

    role: Literal["assistant", "user", "tool"]
    text: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of an episode, which goals look at."""

    replies: tuple[str, ...]
    """Text of each reply; empty texts are left out."""
    calls: tuple[tuple[ExecutedCall, ...], ...]
    """Calls, reply by reply (only replies that called something)."""
    states: Mapping[str, object]
    """Final state of each toolset, as JSON."""
    user_calls: tuple[Call, ...] = ()
    """Calls of the user's own tools."""
    transcript: tuple[Utterance, ...] = ()
    """All of the conversation, in order."""
    ended: bool = True
    """It came to its end by itself: neither cut off nor out of turns."""


class Goal(Protocol):
    """One condition that a solved task meets."""

    def missing(self, outcome: Outcome) -> Sequence[str]:
        """Missing parts, in words that do not give the wanted answer away; none when met."""
        ...


class Customer(Protocol):
    """A simulated user who answers what is said. One for each episode."""

    def hear(self, reply: str) -> str | None:
        """The user's next message; None when the user has no more to say and the episode ends.

        Raises EnvError when a model that speaks for the user fails.
        """
        ...


@dataclass(frozen=True, slots=True)
class ToolTask:
    """One problem for tools."""

    id: str
    family: str
    split: Split
    instruction: str
    """The user's first message."""
    goals: tuple[Goal, ...]
    """All must be met."""
    toolsets: tuple[str, ...] = ()
    """Names of `toolset.TOOLSETS`."""
    tools: tuple[str, ...] | None = None
    """Only these tools of them are offered, in this order; None offers all."""
    system: str = ""
    """System message for the assistant, such as a shop's rules; `info["system"]`."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """Initial state of each toolset (JSON)."""
    customer: Json | None = None
    """Script of a simulated user (JSON, read by `customer.py`); None: the first reply without a
    call ends the episode."""
    solution: tuple[Reply, ...] = ()
    """The oracle: one reply a step."""
    turns: int | None = None
    """The task's own number of turns; None leaves it to the environment."""
    difficulty: int = 1
    """Difficulty by a source that rates its tasks; 1 where nothing does."""
