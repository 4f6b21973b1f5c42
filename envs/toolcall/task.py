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
    """What an episode left, for goals to look at."""

    replies: tuple[str, ...]
    """What was said, reply by reply; empty texts are left out."""
    calls: tuple[tuple[ExecutedCall, ...], ...]
    """Calls, reply by reply (only replies that called something)."""
    states: Mapping[str, object]
    """By toolset: its state as JSON."""
    user_calls: tuple[Call, ...] = ()
    """What the user did with tools of its own."""
    transcript: tuple[Utterance, ...] = ()
    """All of the conversation, in order."""
    ended: bool = True
    """It came to its end by itself: neither cut off nor out of turns."""


class Goal(Protocol):
    """One condition that a solved task meets."""

    def missing(self, outcome: Outcome) -> Sequence[str]:
        """What is missing, in words that do not give the wanted answer away; none when met."""
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
    """What the assistant is told before, such as a shop's rules; `info["system"]`."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """By toolset: what it starts from (JSON)."""
    customer: Json | None = None
    """Script of a simulated user (JSON, read by `customer.py`); None: the first reply without a
    call ends the episode."""
    solution: tuple[Reply, ...] = ()
    """The oracle: one reply a step."""
    turns: int | None = None
    """The task's own number of turns; None leaves it to the environment."""
    difficulty: int = 1
    """What a source that rates its tasks says of this one; 1 where nothing does."""
