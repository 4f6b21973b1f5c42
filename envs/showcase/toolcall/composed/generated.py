"""Composed tool-call tasks by id: `office-chain-train-000123` is family, split and number.

Everything in the task follows from its id. Skills in one order belong to one split by their hash,
and no way of asking is used in both. Families that are held out as a whole have no training tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from clawrl_gym.core.types import Json, Split
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.phrasing import with_budget
from clawrl_gym.envs.showcase.toolcall.composed.actions import ACTIONS
from clawrl_gym.envs.showcase.toolcall.composed.cast import DRAWN, records
from clawrl_gym.envs.showcase.toolcall.composed.families import FAMILIES, PLAIN_FAMILIES, Composed
from clawrl_gym.envs.showcase.toolcall.composed.goals import (
    LOOKS,
    YES_WORDS,
    ConfirmationGoal,
    DoneGoal,
    NameGoal,
    OfficeGoal,
    RefusalGoal,
    SeenGoal,
    UndoneGoal,
)
from clawrl_gym.envs.showcase.toolcall.composed.plan import Part, Plan, Turn
from clawrl_gym.envs.showcase.toolcall.composed.rules import RULES
from clawrl_gym.envs.showcase.toolcall.composed.wording import system
from clawrl_gym.envs.showcase.toolcall.families.family import replies
from clawrl_gym.envs.showcase.toolcall.office.toolset import TOOLS
from clawrl_gym.envs.showcase.toolcall.office.world import state_of
from clawrl_gym.envs.task_ids import GeneratedTasks, first_drawn, parse_id, select_families
from clawrl_gym.envs.toolcall.goals import AnswerGoal
from clawrl_gym.envs.toolcall.schema import name_of
from clawrl_gym.envs.toolcall.task import Goal, ToolTask

PREFIX = "office-"
_ALL_FAMILIES = {**FAMILIES, **PLAIN_FAMILIES}
HELDOUT_FAMILIES = frozenset(name for name, family in _ALL_FAMILIES.items() if family.heldout_only)
"""Families without training tasks."""
_SPARE_REPLIES = 3
"""Beyond what the oracle takes with a call a reply."""
_MAX_ATTEMPTS = 2_000
_MORE_TOOLS = 3
"""Number of offered tools that change things and are not needed."""
_NAMES = tuple(name_of(tool) for tool in TOOLS)
_LOOKS = tuple(name for name in _NAMES if name.startswith(LOOKS))
_AREAS = ("people", "ticket", "meeting", "room", "item", "order")


def composed_tasks(families: Sequence[str] | None = None) -> GeneratedTasks[ToolTask]:
    """The shipped families as a source of tasks; None takes all of them.

    Raises ConfigError for an unknown family or an empty list.
    """
    chosen = select_families(FAMILIES, families)
    return GeneratedTasks(chosen, make_task, PREFIX, HELDOUT_FAMILIES)


def plain_tasks(families: Sequence[str] | None = None) -> GeneratedTasks[ToolTask]:
    """The same skills, one to three of them, said plainly; None takes all three families.

    Raises ConfigError for an unknown family or an empty list.
    """
    chosen = select_families(PLAIN_FAMILIES, families)
    return GeneratedTasks(chosen, make_task, PREFIX, HELDOUT_FAMILIES)


def make_task(task_id: str) -> ToolTask:
    """The task of an id. Raises TaskError for what is not an id."""
    parsed = parse_id(task_id, _ALL_FAMILIES, PREFIX, HELDOUT_FAMILIES)
    return task_of(task_id, compose(parsed.family, parsed.split, parsed.number))


def task_of(task_id: str, composed: Composed) -> ToolTask:
    """The composition of an id, as a task."""
    parsed, plan = parse_id(task_id, _ALL_FAMILIES, PREFIX), composed.plan
    turns = len(plan.turns) + _SPARE_REPLIES
    tools = _tools(plan, Draw(f"{task_id}/tools"))
    return ToolTask(
        id=task_id,
        family=parsed.family,
        split=parsed.split,
        instruction=with_budget(composed.instruction, turns),
        goals=tuple(_goals(plan)),
        toolsets=("office", *(["calculator"] if "calculate" in tools else [])),
        tools=tools,
        system=system(plan.rules),
        state={"office": state_of(plan.start)},
        customer=_customer(plan),
        solution=replies(*map(_as_reply, plan.turns)),
        turns=turns,
        difficulty=plan.difficulty,
    )


def compose(family: str, split: Split, number: int) -> Composed:
    """The composition that an id stands for, before it is a task."""
    draw = partial(_ALL_FAMILIES[family].draw, split=split)
    return first_drawn(f"{PREFIX}{family}/{split}/{number}", draw, _MAX_ATTEMPTS)


def _as_reply(turn: Turn) -> str | list[tuple[str, Json]]:
    return turn if isinstance(turn, str) else [turn]


def _goals(plan: Plan) -> Iterator[Goal]:
    yield OfficeGoal(state_of(plan.end))
    yield DoneGoal()
    for part in plan.parts:
        if isinstance(part.answer, int):
            yield AnswerGoal(str(part.answer))
        elif part.answer is not None:
            names = tuple(sorted({person.name for person in plan.start.people.values()}))
            yield NameGoal(str(part.answer), names)
        if part.verdict == "forbidden":
            yield RefusalGoal()
        if not part.is_done:
            yield UndoneGoal(*part.calls[-1])
        if part.seen and (part.answer is not None or part.verdict == "forbidden"):
            yield SeenGoal(tuple(sorted(part.seen)))
        if part.verdict in ("confirmed", "denied"):
            yield ConfirmationGoal(*part.calls[-1], yes_to(plan, part))


def _customer(plan: Plan) -> dict[str, object] | None:
    """Customer who answers questions, where a rule may ask for a yes; None: the first reply without
    a call is the last."""
    if not plan.rules:
        return None
    part = next(part for part in plan.parts if part.verdict is not None)
    answer = "Yes, go ahead."
    if part.verdict == "denied":
        record = next(iter(part.words.values()))
        answer = f"No, then do not do that to {record}. The rest stands."
    elif part.verdict == "forbidden":
        answer = "If the rules forbid it, leave it. The rest stands."
    return {
        "type": "script",
        "yes": answer,
        "yes_words": list(YES_WORDS),
        "yes_to": list(yes_to(plan, part)),
        "unsure": "I have said all that I know.",
    }


def yes_to(plan: Plan, part: Part) -> tuple[str, ...]:
    """Words that show that a question is about a part with a rule: those for what is done, ids, and
    what the records are called."""
    words = [*next(rule.words for rule in RULES.values() if rule.skill == part.skill)]
    for argument, kind in ACTIONS[part.skill].takes.items():
        if kind in DRAWN:
            record_id = str(part.calls[-1][1][argument])
            record = records(plan.end, kind)[record_id]
            words += [record_id, getattr(record, "title", ""), getattr(record, "name", "")]
    return tuple(dict.fromkeys(word for word in words if word))


def _tools(plan: Plan, draw: Draw) -> tuple[str, ...]:
    """Needed tools, all that look at what it is about, and some that are not needed."""
    needed = {name for name, _ in (*plan.calls, *_unmade(plan))}
    areas = {area for area in _AREAS for name in needed if area in f"{name} people"}
    looks = {name for name in _LOOKS if any(area in name for area in {*areas, "person"})}
    others = [name for name in _NAMES if name not in {*_LOOKS, *needed}]
    offered = {*needed, *looks, *draw.some(others, _MORE_TOOLS)}
    return (*(name for name in _NAMES if name in offered), *(offered - set(_NAMES)))


def _unmade(plan: Plan) -> list[tuple[str, Json]]:
    """Calls that a rule forbids, which could be made."""
    return [part.calls[-1] for part in plan.parts if not part.is_done]
