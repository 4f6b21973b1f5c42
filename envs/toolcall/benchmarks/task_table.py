"""What loaders of foreign task files share: a source over tasks in memory, and two small goals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.types import Split
from clawrl_gym.envs.toolcall.task import Outcome, ToolTask


@dataclass(frozen=True, slots=True)
class TaskTable:
    """Tasks that were read before."""

    tasks: Mapping[str, ToolTask]
    where: str
    left_out: int = 0
    """Tasks of the files that cannot be used here."""

    def ids(self, split: Split) -> Sequence[str]:
        return [task.id for task in self.tasks.values() if task.split == split]

    def load(self, task_id: str) -> ToolTask:
        if task_id not in self.tasks:
            first = next(iter(self.tasks), "none")
            raise TaskError(
                f"got task {task_id!r}, expected one of the {len(self.tasks)} of {self.where}, "
                f"such as {first!r}"
            )
        return self.tasks[task_id]


@dataclass(frozen=True, slots=True)
class AnyReplyGoal:
    """Something was said: doing nothing at all solves no task."""

    def missing(self, outcome: Outcome) -> Sequence[str]:
        return () if outcome.replies else ("nothing was said",)


@dataclass(frozen=True, slots=True)
class AnyCallGoal:
    """Any of the tools was called, in a way that its schema allows."""

    def missing(self, outcome: Outcome) -> Sequence[str]:
        has_call = any(not executed.failed for calls in outcome.calls for executed in calls)
        return () if has_call else ("no tool was called",)
