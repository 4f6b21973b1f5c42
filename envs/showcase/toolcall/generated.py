"""The space of generated tool-call tasks: ids, splits, and the task that an id names.

`call-copy-train-000123` is family, split and number, and everything in the task follows from it.
What is asked belongs to one split by its hash, so what is held out is never seen in training, not
even with other files beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

from clawrl_gym.agents.tool_calls import encode
from clawrl_gym.core.types import Split
from clawrl_gym.envs.showcase.toolcall.families import FAMILIES, TaskContent
from clawrl_gym.envs.task_ids import (
    GeneratedTasks,
    TaskIds,
    draw_content,
    parse_id,
    select_families,
    split_of_content,
)
from clawrl_gym.envs.toolcall.task import ToolTask

PREFIX = "call-"
SPARE_TURNS = 1
"""Turns beyond the oracle's: for one mistake and its mending."""


def generated_tasks(families: Sequence[str] | None = None) -> GeneratedTasks[ToolTask]:
    """The shipped families as a source of tasks; None takes all of them.

    Raises ConfigError for an unknown family or an empty list.
    """
    return GeneratedTasks(select_families(FAMILIES, families), make_task, PREFIX)


def task_ids(split: Split, families: Sequence[str] | None = None) -> TaskIds:
    """The ids of a split. Raises ConfigError as `generated_tasks` does."""
    return generated_tasks(families).ids(split)


def make_task(task_id: str) -> ToolTask:
    """The task of an id. Raises TaskError for what is not an id."""
    parsed = parse_id(task_id, FAMILIES, PREFIX)
    seed = f"{PREFIX}{parsed.family}/{parsed.split}/{parsed.number}"
    draft = draw_content(parsed.split, seed, FAMILIES[parsed.family].draft, split_of)
    return ToolTask(
        id=task_id,
        family=parsed.family,
        split=parsed.split,
        instruction=draft.instruction,
        goals=draft.goals,
        toolsets=draft.toolsets,
        tools=draft.tools,
        state=draft.state,
        solution=draft.solution,
        turns=len(draft.solution) + SPARE_TURNS,
    )


def split_of(draft: TaskContent) -> Split:
    """The one split that a request belongs to."""
    return split_of_content(
        draft.key or "\n".join((draft.instruction, *(encode(reply) for reply in draft.solution)))
    )
