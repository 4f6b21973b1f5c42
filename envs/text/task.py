"""One task in text: what is asked, and how the reply to it is graded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from clawrl_gym.core.errors import ClawError, EnvError
from clawrl_gym.core.types import Split
from clawrl_gym.envs.report import Grade


class Grader(Protocol):
    """Grades replies to one task."""

    @property
    def name(self) -> str:
        """Name of the task in errors."""
        ...

    def grade(self, reply: str) -> Grade:
        """Reward and report; from a reward of 1 on the task counts as solved."""
        ...


@dataclass(frozen=True, slots=True)
class TextTask:
    """A request that one reply answers."""

    id: str
    family: str
    split: Split
    prompt: str
    """The user's message, word for word."""
    grader: Grader
    solution: str | None = None
    """A reply that earns the whole reward; None: nobody knows one."""
    system: str = ""
    """The task's system message; empty: it has none."""


def graded(task: TextTask, reply: str) -> Grade:
    """The grade of a reply. Raises EnvError naming grader and task when it comes to none."""
    try:
        grade = task.grader.grade(reply)
    except ClawError:
        raise
    except Exception as error:
        raise EnvError(
            f"grader {task.grader.name!r} of task {task.id!r} raised {type(error).__name__}: "
            f"{error}; expected a reward"
        ) from error
    return Grade(finite_reward(grade.reward, task.grader.name, task.id), grade.report)


def finite_reward(value: object, grader: str, task_id: str) -> float:
    """A reward as a number. Raises EnvError for None, NaN, an infinity, a text."""
    try:
        reward = float(value)  # type: ignore[arg-type]  # whatever float() takes is a number
    except (TypeError, ValueError, OverflowError):
        reward = math.nan
    if not math.isfinite(reward) or isinstance(value, str | bytes):
        raise EnvError(
            f"grader {grader!r} of task {task_id!r} returned {value!r:.100}, expected a finite "
            "number"
        )
    return reward
