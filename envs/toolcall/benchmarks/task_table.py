"""Common parts of loaders of foreign task files: a source, reading files, a small goal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.types import Split
from clawrl_gym.envs.selection import Selection
from clawrl_gym.envs.toolcall.task import Outcome, ToolTask

MAX_FILE_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True)
class TaskTable:
    """Tasks that were read before."""

    tasks: Mapping[str, ToolTask]
    where: str
    selection: Selection
    """The used part of the files, and why not the rest."""

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


def read_json(file: Path) -> Any:
    """Raises TaskError."""
    try:
        return json.loads(read_text(file))
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{file} is not JSON: {error}") from None


def read_text(file: Path) -> str:
    """Raises TaskError for what is no file, or too long a one."""
    if not file.is_file() or file.stat().st_size > MAX_FILE_BYTES:
        raise TaskError(f"{file}: expected a file of at most {MAX_FILE_BYTES} bytes")
    return file.read_text("utf-8", "replace")
