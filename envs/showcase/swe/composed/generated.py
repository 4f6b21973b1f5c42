"""Composed repositories by id: `repo-filed-train-000123` is family, split and number.

Everything in the task follows from its id. Repositories belong to one split as a whole, with all
that is said of them. Families that are held out as a whole have no training tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from clawrl_gym.core.types import Split
from clawrl_gym.envs.showcase.swe.composed.families import FAMILIES, Composed
from clawrl_gym.envs.showcase.swe.corpus.corpus import as_instance
from clawrl_gym.envs.swe.rows.instance import Instance
from clawrl_gym.envs.task_ids import GeneratedTasks, first_drawn, parse_id, select_families

PREFIX = "repo-"
HELDOUT_FAMILIES = frozenset(name for name, family in FAMILIES.items() if family.heldout_only)
"""Families without training tasks."""
_MAX_ATTEMPTS = 1_000


def composed_instances(families: Sequence[str] | None = None) -> GeneratedTasks[Instance]:
    """The shipped families as a source of instances; None takes all of them.

    Raises ConfigError for an unknown family or an empty list.
    """
    chosen = select_families(FAMILIES, families)
    return GeneratedTasks(chosen, make_instance, PREFIX, HELDOUT_FAMILIES)


def make_instance(instance_id: str) -> Instance:
    """The instance of an id. Raises TaskError for what is not an id."""
    parsed = parse_id(instance_id, FAMILIES, PREFIX, HELDOUT_FAMILIES)
    return instance_of(instance_id, compose(parsed.family, parsed.split, parsed.number))


def instance_of(instance_id: str, composed: Composed) -> Instance:
    """The composition of an id, in SWE-bench's fields."""
    plan = composed.plan
    return as_instance(
        instance_id,
        parse_id(instance_id, FAMILIES, PREFIX),
        plan.ground.name,
        plan.ground.runner,
        issue=composed.instruction,
        broken=plan.start,
        fixed=plan.end,
        tests=plan.tests,
        failing=() if plan.made is None else plan.made.breaks,
        difficulty=plan.difficulty,
    )


def compose(family: str, split: Split, number: int) -> Composed:
    """The composition that an id stands for, before it is an instance."""
    draw = partial(FAMILIES[family].draw, split=split)
    return first_drawn(f"{PREFIX}{family}/{split}/{number}", draw, _MAX_ATTEMPTS)


def runners_of(families: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Programs that run the tests of each family's repositories."""
    return {family: FAMILIES[family].runners for family in families}
