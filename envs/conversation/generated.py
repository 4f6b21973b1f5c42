"""The space of conversation tasks: ids, splits, and the task that an id names.

`student-ask-train-000123` is persona, family, split and number; everything else follows from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clawrl_gym.core.errors import ConfigError, TaskError
from clawrl_gym.core.types import Split
from clawrl_gym.envs.conversation.personas import PERSONAS, Persona
from clawrl_gym.envs.conversation.problems import Problem, draw_problem
from clawrl_gym.envs.conversation.tools import READ, WRITE, Tool
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.task_ids import NUMBERS, TaskIds, select_families

FAMILIES = ("ask", "homework", "read", "save")
"""`ask`: the problem is told; `read`: it is in a file; `save`: it is told and the accepted text
goes to a file; `homework`: both."""
LARGEST_FILE = 99


@dataclass(frozen=True, slots=True)
class ConversationTask:
    """One conversation to hold."""

    id: str
    family: str
    split: Split
    persona: Persona
    problem: Problem
    opening: str
    """The user's first message."""
    files: Mapping[str, str]
    """The workspace at the start, by path."""
    source: str | None
    """The file that holds the problem."""
    target: str | None
    """The file that the accepted text goes to."""

    @property
    def tools(self) -> list[Tool]:
        """The tools that it takes, and no more: their schemas cost prompt tokens."""
        return [READ] * (self.source is not None) + [WRITE] * (self.target is not None)


def task_ids(persona: str, split: Split, families: Sequence[str] | None = None) -> TaskIds:
    """The ids of a persona's tasks. Raises ConfigError for an unknown persona or family."""
    if persona not in PERSONAS:
        raise ConfigError(f"got env.persona={persona!r}, expected one of: {', '.join(PERSONAS)}")
    return TaskIds(split, select_families(FAMILIES, families), f"{persona}-")


def make_task(task_id: str) -> ConversationTask:
    """The task of an id. Raises TaskError for what is not an id."""
    persona, family, split = _parse(task_id)
    draw = Draw(f"conversation/{task_id}")
    problem = draw_problem(split, draw)
    number = draw.between(1, LARGEST_FILE)
    source = f"homework/{number}.txt" if family in ("read", "homework") else None
    target = f"answers/{number}.txt" if family in ("save", "homework") else None
    told = persona.task.format(text=problem.text, name=problem.name, claimed=problem.claimed)
    form = draw.pick(persona.read if source else persona.ask)
    return ConversationTask(
        id=task_id,
        family=family,
        split=split,
        persona=persona,
        problem=problem,
        opening=form.format(task=told, file=source),
        files={} if source is None else {source: told},
        source=source,
        target=target,
    )


def _parse(task_id: str) -> tuple[Persona, str, Split]:
    persona, family, split, digits = [*task_id.split("-"), "", "", "", ""][:4]
    known: Split = "heldout" if split == "heldout" else "train"
    if (
        task_id != f"{persona}-{family}-{known}-{digits}"
        or persona not in PERSONAS
        or family not in FAMILIES
        or not (digits.isascii() and digits.isdigit() and len(digits) == 6)
        or int(digits) >= NUMBERS[known]
    ):
        raise TaskError(
            f"got task {task_id!r}, expected PERSONA-FAMILY-SPLIT-NUMBER such as "
            f"'student-ask-train-000123'; personas: {', '.join(PERSONAS)}; "
            f"families: {', '.join(FAMILIES)}; held-out numbers are below {NUMBERS['heldout']}"
        )
    return PERSONAS[persona], family, known
