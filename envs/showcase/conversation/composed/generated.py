"""Composed conversations by id: `talk-recall-train-000123` is family, split and number.

Everything in the task follows from its id. Skills in one order belong to one split by their hash,
and no way of saying something is used in both. Families that are held out as a whole have no
training tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from clawrl_gym.core.types import Split, Tool
from clawrl_gym.envs.conversation.tools import READ, WRITE
from clawrl_gym.envs.showcase.conversation.composed.families import FAMILIES
from clawrl_gym.envs.showcase.conversation.composed.plan import Plan
from clawrl_gym.envs.task_ids import GeneratedTasks, first_drawn, parse_id, select_families

PREFIX = "talk-"
HELDOUT_FAMILIES = frozenset(name for name, family in FAMILIES.items() if family.heldout_only)
"""Families without training tasks."""
_SPARE_REPLIES = 4
"""Beyond what the oracle takes."""
_MAX_ATTEMPTS = 2_000


@dataclass(frozen=True, slots=True)
class ComposedTask:
    """One conversation to hold."""

    id: str
    family: str
    split: Split
    plan: Plan

    @property
    def opening(self) -> str:
        """The user's first message."""
        return self.plan.steps[0].text

    @property
    def files(self) -> Mapping[str, str]:
        """The workspace at the start, by path."""
        return self.plan.files

    @property
    def difficulty(self) -> int:
        return self.plan.difficulty

    @property
    def tools(self) -> list[Tool]:
        """Both where a file comes up: one that is not needed can do harm."""
        uses = any(step.read or step.write for step in self.plan.steps)
        return [READ, WRITE] if uses else []

    @property
    def turns(self) -> int:
        """Replies after which it is truncated."""
        calls = sum((step.read is not None) + (step.write is not None) for step in self.plan.steps)
        return len(self.plan.steps) + calls + _SPARE_REPLIES


def composed_tasks(families: Sequence[str] | None = None) -> GeneratedTasks[ComposedTask]:
    """The shipped families as a source of tasks; None takes all of them.

    Raises ConfigError for an unknown family or an empty list.
    """
    chosen = select_families(FAMILIES, families)
    return GeneratedTasks(chosen, make_task, PREFIX, HELDOUT_FAMILIES)


def make_task(task_id: str) -> ComposedTask:
    """The task of an id. Raises TaskError for what is not an id."""
    parsed = parse_id(task_id, FAMILIES, PREFIX, HELDOUT_FAMILIES)
    draw = partial(FAMILIES[parsed.family].draw, split=parsed.split)
    seed = f"{PREFIX}{parsed.family}/{parsed.split}/{parsed.number}"
    plan = first_drawn(seed, draw, _MAX_ATTEMPTS)
    return ComposedTask(task_id, parsed.family, parsed.split, plan)
