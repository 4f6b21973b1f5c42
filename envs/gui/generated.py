"""The space of generated page tasks: ids, splits, and the task that an id names.

`gui-shop_add-train-000123` is family, split and number, and everything in the task follows from
it. What is asked belongs to one split by its hash, whatever the phrasing: what is held out is
never asked in training, not even of another page.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.gui.families import FAMILIES
from clawrl_gym.envs.gui.families.base import Draft, Family, Served
from clawrl_gym.envs.gui.grading import InfeasibleGrader, StateGrader
from clawrl_gym.envs.gui.task import Grader, GuiTask
from clawrl_gym.envs.task_ids import NUMBERS, TaskIds, chosen_families
from clawrl_gym.errors import TaskError
from clawrl_gym.types import Split

PREFIX = "gui-"
HELDOUT_SHARE = 5
"""One request in this many is held out."""
SPARE_TURNS = 1
"""Turns beyond the oracle's: for one mistake and its mending."""
MAX_ATTEMPTS = 10_000


def task_ids(split: Split, families: Sequence[str] | None = None) -> TaskIds:
    """The ids of a split. Raises ConfigError for an unknown family or an empty list."""
    return TaskIds(split, chosen_families(FAMILIES, families), PREFIX)


def make_task(task_id: str) -> GuiTask:
    """The task of an id. Raises TaskError for what is not an id."""
    family, split, number = _parse(task_id)
    for attempt in range(MAX_ATTEMPTS):
        draft = family.draft(Draw(f"{PREFIX}{family.name}/{split}/{number}/{attempt}"))
        if split_of(family.name, draft) == split:
            return GuiTask(
                id=task_id,
                family=family.name,
                split=split,
                instruction=draft.instruction,
                start=draft.start,
                grader=_grader(draft),
                sites=draft.sites,
                solution=draft.solution,
                turns=len(draft.solution) + SPARE_TURNS,
                seed=number,
            )
    raise TaskError(f"family {family.name!r} never drew a content of the split {split!r}")


def split_of(family: str, draft: Draft) -> Split:
    """The one split that a request belongs to."""
    digest = hashlib.sha256(f"{family}/{draft.key}".encode()).digest()
    return "heldout" if int.from_bytes(digest[:4], "big") % HELDOUT_SHARE == 0 else "train"


def _grader(draft: Draft) -> Grader:
    expected: Mapping[str, Any] = {
        host: Served(served.app, draft.after.get(host, served.world))().state()
        for host, served in draft.sites.items()
    }
    if draft.feasible:
        return StateGrader(expected, draft.answer)
    return InfeasibleGrader(expected)


def _parse(task_id: str) -> tuple[Family, Split, int]:
    name, _, rest = task_id.removeprefix(PREFIX).partition("-")
    split, _, digits = rest.partition("-")
    family = FAMILIES.get(name)
    known = family is not None and task_id.startswith(PREFIX) and split in NUMBERS
    if not (family and known and digits.isascii() and digits.isdigit()):
        raise TaskError(
            f"got task {task_id!r}, expected {PREFIX}FAMILY-SPLIT-NUMBER such as "
            f"'{PREFIX}shop_add-train-000123'; families: {', '.join(FAMILIES)}"
        )
    named: Split = "heldout" if split == "heldout" else "train"
    if int(digits) >= NUMBERS[named] or len(digits) != 6:
        raise TaskError(f"got task {task_id!r}, expected six digits below {NUMBERS[named]}")
    return family, named, int(digits)


@dataclass(frozen=True, slots=True)
class GeneratedTasks:
    """The shipped families as a source of tasks; None takes all of them."""

    families: tuple[str, ...] | None = None

    def ids(self, split: Split) -> TaskIds:
        return task_ids(split, self.families)

    def load(self, task_id: str) -> GuiTask:
        return make_task(task_id)
