"""Composed tasks by id, as `envs/showcase/terminal/generated.py` has those of single commands.

`chain-train-000123` is family, split and number, and everything in the task follows from it. Skills
in one order belong to one split by their hash, and no way of asking is used in both. Families that
are held out as a whole have no training tasks.
"""

from __future__ import annotations

import json
import shlex
import stat
from collections.abc import Iterator, Sequence
from functools import partial

from clawrl_gym.core.types import Split
from clawrl_gym.envs.showcase.terminal.composed.families import FAMILIES, PLAIN_FAMILIES, Composed
from clawrl_gym.envs.showcase.terminal.composed.plan import Plan
from clawrl_gym.envs.showcase.terminal.composed.world import DEFAULT_MODE
from clawrl_gym.envs.task_ids import GeneratedTasks, first_drawn, parse_id, select_families
from clawrl_gym.envs.terminal.checks import Absent, FileIs, ModeIs, TarHolds, tar_files
from clawrl_gym.envs.terminal.side_effects import JsonIs, NothingElse, Unchanged
from clawrl_gym.envs.terminal.task import Check, Task

_ALL_FAMILIES = {**FAMILIES, **PLAIN_FAMILIES}
HELDOUT_FAMILIES = frozenset(name for name, family in _ALL_FAMILIES.items() if family.heldout_only)
"""Families without training tasks."""
_SPARE_REPLIES = 3
"""Beyond what the oracle takes with a command a reply."""
_MAX_ATTEMPTS = 1000


def composed_tasks(families: Sequence[str] | None = None) -> GeneratedTasks[Task]:
    """The shipped families as a source of tasks; None takes all of them.

    Raises ConfigError for an unknown family or an empty list.
    """
    chosen = select_families(FAMILIES, families)
    return GeneratedTasks(chosen, make_task, heldout_only=HELDOUT_FAMILIES)


def plain_tasks(families: Sequence[str] | None = None) -> GeneratedTasks[Task]:
    """The same skills, one to three of them, said plainly; None takes all three families.

    Raises ConfigError for an unknown family or an empty list.
    """
    chosen = select_families(PLAIN_FAMILIES, families)
    return GeneratedTasks(chosen, make_task, heldout_only=HELDOUT_FAMILIES)


def make_task(task_id: str) -> Task:
    """The task of an id. Raises TaskError for what is not an id."""
    parsed = parse_id(task_id, _ALL_FAMILIES, heldout_only=HELDOUT_FAMILIES)
    composed = compose(parsed.family, parsed.split, parsed.number)
    plan = composed.plan
    solution = tuple(action.command for action in plan.actions)
    return Task(
        id=task_id,
        family=parsed.family,
        split=parsed.split,
        instruction=composed.instruction,
        files={path: file.content for path, file in plan.start.files.items()},
        setup=_setup(plan),
        checks=tuple(_checks(plan)),
        solution=solution,
        turns=len(solution) + _SPARE_REPLIES,
        tells_budget=True,
        difficulty=plan.difficulty,
        env=plan.start.env,
    )


def compose(family: str, split: Split, number: int) -> Composed:
    """The composition that an id stands for, before it is a task."""
    draw = partial(_ALL_FAMILIES[family].draw, split=split)
    return first_drawn(f"{family}/{split}/{number}", draw, _MAX_ATTEMPTS)


def _setup(plan: Plan) -> str:
    """Setup beyond the files' contents: their permissions."""
    modes = ((path, file.mode) for path, file in plan.start.files.items())
    return " && ".join(
        f"chmod {mode:o} {shlex.quote(path)}" for path, mode in modes
        if mode not in (None, DEFAULT_MODE)
    )  # fmt: skip


def _checks(plan: Plan) -> Iterator[Check]:
    """All that should be there, that nothing else is, and that nothing else was changed."""
    start, end = plan.start, plan.end
    for path, file in end.files.items():
        if path in end.free:
            continue
        if start.files.get(path) == file:
            yield Unchanged(path, file.content, file.mode)
            continue
        yield _content_check(path, file.content)
        if file.mode not in (None, DEFAULT_MODE):
            yield ModeIs(path, stat.S_IMODE(file.mode or 0))
    gone = start.files.keys() - end.files.keys() - end.free
    yield from map(Absent, sorted(gone))
    yield NothingElse(
        frozenset(end.files), frozenset(end.folders), frozenset(end.free), frozenset(gone)
    )


def _content_check(path: str, content: bytes) -> Check:
    ending = path.rpartition(".")[2]
    if ending == "tar":
        return TarHolds(path, tuple((tar_files(content) or {}).items()))
    if ending == "json":
        return JsonIs(path, json.dumps(json.loads(content)))
    return FileIs(path, content)
