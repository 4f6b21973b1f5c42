"""The space of generated page tasks: ids, splits, and the task that an id names.

`gui-shop_add-train-000123` is family, split and number, and everything in the task follows from
it. What is asked belongs to one split by its hash, whatever the phrasing: what is held out is
never asked in training, not even of another page.
"""

from __future__ import annotations

from collections.abc import Sequence

from clawrl_gym.core.types import Split
from clawrl_gym.envs.gui.grading import GIVING_UP_COSTS, InfeasibleGrader, StateGrader
from clawrl_gym.envs.gui.task import Grader, GuiTask
from clawrl_gym.envs.showcase.gui.families import FAMILIES
from clawrl_gym.envs.showcase.gui.families.family import TaskContent
from clawrl_gym.envs.task_ids import (
    GeneratedTasks,
    TaskIds,
    draw_content,
    parse_id,
    select_families,
    split_of_content,
)

PREFIX = "gui-"
SPARE_TURNS = 1
"""Turns beyond the oracle's: for one mistake and its mending."""


def generated_tasks(families: Sequence[str] | None = None) -> GeneratedTasks[GuiTask]:
    """The shipped families as a source of tasks; None takes all of them.

    Raises ConfigError for an unknown family or an empty list.
    """
    return GeneratedTasks(select_families(FAMILIES, families), make_task, PREFIX)


def task_ids(split: Split, families: Sequence[str] | None = None) -> TaskIds:
    """The ids of a split. Raises ConfigError as `generated_tasks` does."""
    return generated_tasks(families).ids(split)


def make_task(task_id: str) -> GuiTask:
    """The task of an id. Raises TaskError for what is not an id."""
    parts = parse_id(task_id, FAMILIES, PREFIX)
    family, split, number = parts.family, parts.split, parts.number
    draft = draw_content(
        split,
        f"{PREFIX}{family}/{split}/{number}",
        FAMILIES[family].draft,
        lambda draft: split_of(family, draft),
    )
    return GuiTask(
        id=task_id,
        family=family,
        split=split,
        instruction=draft.instruction,
        start=draft.start,
        grader=_grader(draft, FAMILIES[family].may_be_infeasible),
        sites=draft.sites,
        solution=draft.solution,
        turns=len(draft.solution) + SPARE_TURNS,
        seed=number,
    )


def split_of(family: str, draft: TaskContent) -> Split:
    """The one split that a request belongs to."""
    return split_of_content(f"{family}/{draft.key}")


def _grader(draft: TaskContent, may_be_infeasible: bool) -> Grader:
    solved_sites = {**draft.sites, **draft.solved_sites}
    expected = {host: make_site().state() for host, make_site in solved_sites.items()}
    if draft.feasible:
        cost = GIVING_UP_COSTS if may_be_infeasible else 0.0
        return StateGrader(expected, draft.answer, cost)
    return InfeasibleGrader(expected)
