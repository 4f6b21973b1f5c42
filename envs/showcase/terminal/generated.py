"""The space of generated tasks: ids, splits, and the task that an id names.

`copy-train-000123` is family, split and number, and everything in the task follows from it.
What is asked belongs to one split by its hash, so what is held out is never seen in training, not
even over other files. The requests of `note` are two in all: there it is the note that belongs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from clawrl_gym.core.types import Split
from clawrl_gym.envs.showcase.terminal.families import FAMILIES, TaskContent
from clawrl_gym.envs.task_ids import (
    GeneratedTasks,
    TaskIds,
    draw_content,
    parse_id,
    select_families,
    split_of_content,
)
from clawrl_gym.envs.terminal.task import Task


def generated_tasks(
    families: Sequence[str] | None = None, spare_replies: int | None = None
) -> GeneratedTasks[Task]:
    """The shipped families as a source of tasks; None takes all of them.

    `spare_replies`: as `TerminalEnvConfig` has it. Raises ConfigError for an unknown family or an
    empty list.
    """
    chosen = select_families(FAMILIES, families)
    if spare_replies is None:
        return GeneratedTasks(chosen, make_task)
    return GeneratedTasks(chosen, partial(_with_spare_replies, spare_replies))


def task_ids(split: Split, families: Sequence[str] | None = None) -> TaskIds:
    """The ids of a split. Raises ConfigError as `generated_tasks` does."""
    return generated_tasks(families).ids(split)


def _with_spare_replies(count: int, task_id: str) -> Task:
    task = make_task(task_id)
    return replace(task, turns=len(task.solution) + count, tells_budget=True)


def make_task(task_id: str) -> Task:
    """The task of an id. Raises TaskError for what is not an id."""
    parsed = parse_id(task_id, FAMILIES)
    family = FAMILIES[parsed.family]
    seed = f"{parsed.family}/{parsed.split}/{parsed.number}"
    content = draw_content(parsed.split, seed, family.draw, split_of)
    return Task(
        id=task_id,
        family=parsed.family,
        split=parsed.split,
        instruction=content.instruction,
        files=content.files,
        checks=content.checks,
        grader=content.grader,
        solution=content.solution,
        turns=family.turns,
        env=content.env,
    )


def split_of(content: TaskContent) -> Split:
    """The one split that a request belongs to."""
    return split_of_content(content.key or "\n".join((content.instruction, *content.solution)))
