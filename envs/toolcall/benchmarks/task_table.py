"""What loaders of foreign task files share: a source over tasks in memory, and a small goal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.types import Split
from clawrl_gym.envs.selection import Selection
from clawrl_gym.envs.toolcall.task import Outcome, ToolTask


@dataclass(frozen=True, slots=True)
class TaskTable:
    """Tasks that were read before."""

    tasks: Mapping[str, ToolTask]
    where: str
    selection: Selection
    """What of the files is used, and why not the rest."""

    def ids(self, split: Split) -> Sequence[str]:
        return [task.id for task in self.tasks.values() if task.split == split]

    def load(self, task_id: str) -> ToolTask:
        if task_id not in self.tasks:
            if (reason := self.selection.reason_of(task_id)) is not None:
                raise TaskError(f"task {task_id!r} of {self.where} cannot be used here: {reason}")
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
