"""A family: a name and a function from draws to the content of one task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.terminal.task import Check


@dataclass(frozen=True, slots=True)
class TaskContent:
    """A task without its id and split."""

    instruction: str
    solution: tuple[str, ...]
    """One command a turn."""
    checks: tuple[Check, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    grader: str = ""
    key: str = ""
    """The request's key where the solution says more than it, such as what stands in a file:
    decides the split. Empty: the request with its solution decides."""


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of task; `draw` draws one."""

    name: str
    draw: Callable[[Draw], TaskContent]
    turns: int = 1
    """Commands after which each of its tasks ends."""
