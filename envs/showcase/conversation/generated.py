"""The space of conversation tasks: ids, splits, and the task that an id names.

`student-ask-train-000123` is persona, family, split and number; everything else follows from it.
`student_heldout-ask-train-000123` is a task of the same person in held-out wording.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clawrl_gym.core.errors import ConfigError, TaskError
from clawrl_gym.core.types import Split, Tool
from clawrl_gym.envs.conversation.tools import READ, WRITE
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.showcase.conversation.personas import HELDOUT_PERSONAS, PERSONAS, Persona
from clawrl_gym.envs.showcase.conversation.problems import Problem, answers_in, draw_problem
from clawrl_gym.envs.task_ids import (
    NUMBERS,
    GeneratedTasks,
    TaskIds,
    parse_id,
    select_families,
)

FAMILIES = ("ask", "homework", "read", "save")
"""`ask`: the message has the problem; `read`: it is in a file; `save`: like `ask`, and the accepted
text goes to a file; `homework`: both."""
LARGEST_FILE = 99
_HELDOUT = "_heldout"
_SPEAKERS = {**PERSONAS, **{f"{name}{_HELDOUT}": p for name, p in HELDOUT_PERSONAS.items()}}
"""Personas in both wordings, as ids name them."""
_SPEAKERS_AND_FAMILIES = {
    f"{speaker}-{family}": (speaker, family) for speaker in _SPEAKERS for family in FAMILIES
}


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
        """The tools that it takes, and no others: their schemas cost prompt tokens."""
        return [READ] * (self.source is not None) + [WRITE] * (self.target is not None)

    def has_answer(self, text: str) -> bool:
        """Whether it says a number that the problem does not."""
        return bool(answers_in(text, self.problem))

    def score(self, text: str) -> float:
        """Fit of a text to the wish, in [0, 1]."""
        return self.persona.style.score(text, self.problem)

    def is_right(self, text: str) -> bool:
        """Whether it does what was asked for."""
        return self.persona.right(text, self.problem)


def generated_tasks(
    persona: str, families: Sequence[str] | None = None, wording: Split = "train"
) -> GeneratedTasks[ConversationTask]:
    """A persona's tasks as a source. Raises ConfigError for an unknown persona or family."""
    if persona not in PERSONAS:
        raise ConfigError(f"got env.persona={persona!r}, expected one of: {', '.join(PERSONAS)}")
    chosen = select_families(FAMILIES, families)
    return GeneratedTasks(chosen, make_task, f"{speaker_of(persona, wording)}-")


def speaker_of(persona: str, wording: Split) -> str:
    """The persona in this wording, as ids name it."""
    return f"{persona}{_HELDOUT}" if wording == "heldout" else persona


def task_ids(persona: str, split: Split, families: Sequence[str] | None = None) -> TaskIds:
    """The ids of a persona's tasks. Raises ConfigError as `generated_tasks` does."""
    return generated_tasks(persona, families).ids(split)


def make_task(task_id: str) -> ConversationTask:
    """The task of an id. Raises TaskError for what is not an id."""
    persona, family, split = _parse(task_id)
    draw = Draw(f"conversation/{task_id}")
    problem = draw_problem(split, draw)
    number = draw.between(1, LARGEST_FILE)
    source = f"homework/{number}.txt" if family in ("read", "homework") else None
    target = f"answers/{number}.txt" if family in ("save", "homework") else None
    request = persona.task.format(text=problem.text, name=problem.name, claimed=problem.claimed)
    form = draw.pick(persona.read if source else persona.ask)
    return ConversationTask(
        id=task_id,
        family=family,
        split=split,
        persona=persona,
        problem=problem,
        opening=form.format(task=request, file=source),
        files={} if source is None else {source: request},
        source=source,
        target=target,
    )


def _parse(task_id: str) -> tuple[Persona, str, Split]:
    try:
        parsed = parse_id(task_id, _SPEAKERS_AND_FAMILIES)
    except TaskError:
        raise TaskError(
            f"got task {task_id!r}, expected PERSONA-FAMILY-SPLIT-NUMBER such as "
            f"'student-ask-train-000123'; personas: {', '.join(PERSONAS)}; "
            f"families: {', '.join(FAMILIES)}; held-out numbers are below {NUMBERS['heldout']}"
        ) from None
    speaker, family = _SPEAKERS_AND_FAMILIES[parsed.family]
    return _SPEAKERS[speaker], family, parsed.split
