"""A family: a name and a function from draws to the content of one task."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from clawrl_gym.agents.tool_calls import Call, Reply
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.toolcall.task import Goal

CallSpec = tuple[str, Mapping[str, object]]
"""A tool's name and its arguments."""


@dataclass(frozen=True, slots=True)
class TaskContent:
    """A task without its id and split."""

    instruction: str
    solution: tuple[Reply, ...]
    goals: tuple[Goal, ...]
    toolsets: tuple[str, ...]
    tools: tuple[str, ...]
    """Names of at most four tools: a small policy sees no more signatures."""
    state: Mapping[str, object] = field(default_factory=dict)
    key: str = ""
    """The request's key where the solution says more than it, such as what stands in a file:
    decides the split. Empty: the request with its solution decides."""


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of task; `draft` draws one."""

    name: str
    draft: Callable[[Draw], TaskContent]


def replies(*turns: str | Sequence[CallSpec]) -> tuple[Reply, ...]:
    """Replies, each something said or the calls that it makes; no two calls have the same id."""
    return tuple(
        Reply(turn) if isinstance(turn, str) else Reply("", _calls(place, turn))
        for place, turn in enumerate(turns, start=1)
    )


def _calls(place: int, specs: Sequence[CallSpec]) -> tuple[Call, ...]:
    return tuple(
        Call(f"call-{place}-{number}", name, json.dumps(arguments))
        for number, (name, arguments) in enumerate(specs, start=1)
    )
