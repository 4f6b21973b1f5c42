"""Composed page tasks by id: `desk-chain-train-000123` is family, split and number.

Everything in the task follows from its id. Skills in one order belong to one split by their hash,
and neither ways of asking nor names are used in both. Families that are held out as a whole have
no training tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

from clawrl_gym.core.types import Split
from clawrl_gym.envs.gui.task import GuiTask
from clawrl_gym.envs.phrasing import with_budget
from clawrl_gym.envs.showcase.gui.apps.start import HOST as START
from clawrl_gym.envs.showcase.gui.apps.start import Start, StartWorld
from clawrl_gym.envs.showcase.gui.composed.desk import HOSTS, known_numbers
from clawrl_gym.envs.showcase.gui.composed.families import FAMILIES, PLAIN_FAMILIES, Composed
from clawrl_gym.envs.showcase.gui.composed.grading import ComposedGrader, Watched
from clawrl_gym.envs.showcase.gui.families.family import Served
from clawrl_gym.envs.task_ids import GeneratedTasks, first_drawn, parse_id, select_families

PREFIX = "desk-"
_ALL_FAMILIES = {**FAMILIES, **PLAIN_FAMILIES}
HELDOUT_FAMILIES = frozenset(name for name, family in _ALL_FAMILIES.items() if family.heldout_only)
"""Families without training tasks."""
SPARE_REPLIES = 3
"""Beyond what the oracle takes."""
_MAX_ATTEMPTS = 2_000
_KEPT_TASKS = 16
"""The episodes of a group have the same task."""
_WORLD: StartWorld = {"names": {host: host.capitalize() for host in HOSTS}}


def composed_tasks(families: Sequence[str] | None = None) -> GeneratedTasks[GuiTask]:
    """The shipped families as a source of tasks; None takes all of them.

    Raises ConfigError for an unknown family or an empty list.
    """
    chosen = select_families(FAMILIES, families)
    return GeneratedTasks(chosen, make_task, PREFIX, HELDOUT_FAMILIES)


def plain_tasks(families: Sequence[str] | None = None) -> GeneratedTasks[GuiTask]:
    """One to three things to do on the page that is open, said plainly; None takes all families.

    Raises ConfigError for an unknown family or an empty list.
    """
    chosen = select_families(PLAIN_FAMILIES, families)
    return GeneratedTasks(chosen, make_task, PREFIX, HELDOUT_FAMILIES)


@lru_cache(maxsize=_KEPT_TASKS)
def make_task(task_id: str) -> GuiTask:
    """The task of an id. Raises TaskError for what is not an id."""
    parsed = parse_id(task_id, _ALL_FAMILIES, PREFIX, HELDOUT_FAMILIES)
    return task_of(task_id, compose(parsed.family, parsed.split, parsed.number))


def task_of(task_id: str, composed: Composed) -> GuiTask:
    """The composition of an id, as a task."""
    parsed, plan = parse_id(task_id, _ALL_FAMILIES, PREFIX), composed.plan
    solution, said = plan.turns, plan.said
    turns = len(solution) + SPARE_REPLIES
    sites, expected = plan.start.sites(), plan.settled(plan.end)
    if plan.page is None:
        sites = {START: Served(Start, _WORLD), **sites}
    else:
        host = plan.page.host
        sites, expected = {host: sites[host]}, {host: expected[host]}
    if said is not None:
        sites[said.host] = Watched(sites[said.host], said.right, said.about)
    return GuiTask(
        id=task_id,
        family=parsed.family,
        split=parsed.split,
        instruction=with_budget(composed.instruction, turns),
        start=f"http://{START}/" if plan.page is None else plan.page.url,
        grader=ComposedGrader(
            expected,
            known_numbers(plan.start),
            None if said is None else said.right,
            "" if said is None else said.host,
        ),
        sites=sites,
        solution=solution,
        turns=turns,
        seed=parsed.number,
        difficulty=plan.difficulty,
    )


def compose(family: str, split: Split, number: int) -> Composed:
    """The composition that an id stands for, before it is a task."""
    draw = partial(_ALL_FAMILIES[family].draw, split=split)
    return first_drawn(f"{PREFIX}{family}/{split}/{number}", draw, _MAX_ATTEMPTS)
