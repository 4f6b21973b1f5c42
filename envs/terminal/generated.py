"""The space of generated tasks: ids, splits, and the task that an id names.

`copy-train-000123` is family, split and number, and everything in the task follows from it.
A request with its solution belongs to one split by its hash, so what is held out is never seen
in training, not even over other files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.task_ids import NUMBERS, TaskIds, chosen_families
from clawrl_gym.envs.tasks import Task
from clawrl_gym.envs.terminal.families import FAMILIES, Family
from clawrl_gym.errors import TaskError
from clawrl_gym.types import Split

HELDOUT_SHARE = 5
"""One request in this many is held out."""


def task_ids(split: Split, families: Sequence[str] | None = None) -> TaskIds:
    """The ids of a split. Raises ConfigError for an unknown family or an empty list."""
    return TaskIds(split, chosen_families(FAMILIES, families))


def make_task(task_id: str) -> Task:
    """The task of an id. Raises TaskError for what is not an id."""
    family, split, number = _parse(task_id)
    for attempt in range(10_000):
        task = _draw_task(task_id, family, split, f"{family.name}/{split}/{number}/{attempt}")
        if split_of(task) == split:
            return task
    raise TaskError(f"family {family.name!r} never drew a content of the split {split!r}")


def split_of(task: Task) -> Split:
    """The one split that a request and its solution belong to."""
    told = "\n".join((task.instruction, *task.solution))
    digest = hashlib.sha256(told.encode()).digest()
    return "heldout" if int.from_bytes(digest[:4], "big") % HELDOUT_SHARE == 0 else "train"


def _draw_task(task_id: str, family: Family, split: Split, seed: str) -> Task:
    draft = family.draft(Draw(seed))
    return Task(
        id=task_id,
        family=family.name,
        split=split,
        instruction=draft.instruction,
        files=draft.files,
        checks=draft.checks,
        grader=draft.grader,
        solution=draft.solution,
        turns=family.turns,
        env=draft.env,
    )


def _parse(task_id: str) -> tuple[Family, Split, int]:
    name, _, rest = task_id.partition("-")
    split, _, digits = rest.partition("-")
    family = FAMILIES.get(name)
    if family is None or split not in NUMBERS or not (digits.isascii() and digits.isdigit()):
        raise TaskError(
            f"got task {task_id!r}, expected FAMILY-SPLIT-NUMBER such as 'copy-train-000123'; "
            f"families: {', '.join(FAMILIES)}"
        )
    known: Split = "heldout" if split == "heldout" else "train"
    if int(digits) >= NUMBERS[known] or len(digits) != 6:
        raise TaskError(f"got task {task_id!r}, expected six digits below {NUMBERS[known]}")
    return family, known, int(digits)


@dataclass(frozen=True, slots=True)
class GeneratedTasks:
    """The shipped families as a source of tasks; None takes all of them."""

    families: tuple[str, ...] | None = None

    def ids(self, split: Split) -> TaskIds:
        return task_ids(split, self.families)

    def load(self, task_id: str) -> Task:
        return make_task(task_id)
