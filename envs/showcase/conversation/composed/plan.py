"""A composed conversation before anybody speaks: what the user says, and what is right then."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clawrl_gym.envs.showcase.conversation.composed.answers import (
    MAX_CHARS,
    Answer,
    accepts,
    visible,
)
from clawrl_gym.envs.showcase.conversation.composed.numbers import figures_in
from clawrl_gym.envs.showcase.conversation.composed.wishes import WISHES, Wish, shows

_ECHOED_WORDS = 9


@dataclass(frozen=True, slots=True)
class Held:
    """One wish of this conversation."""

    name: str
    word: str
    """Or number, that belongs to it."""
    told: bool
    """False: only a complaint says it."""

    @property
    def wish(self) -> Wish:
        return WISHES[self.name]


@dataclass(frozen=True, slots=True)
class Write:
    """A file that is asked for."""

    path: str
    holds: tuple[Answer, ...]
    near: tuple[Answer, ...] = ()
    """Answers of an agent that missed the last word."""


@dataclass(frozen=True, slots=True)
class Step:
    """One message of the user's, and what a reply to it has to be."""

    text: str
    skills: tuple[str, ...]
    """Names of the skills that come up in it, for the composition and the difficulty."""
    answers: tuple[Answer, ...] = ()
    """Answers to its questions; empty: it only tells something, or wants a file."""
    stale: tuple[Answer, ...] = ()
    """Answers of an agent that missed a correction; empty where there is no difference."""
    lured: tuple[Answer, ...] = ()
    """Answers of an agent that takes a mere mention for a fact."""
    read: str | None = None
    """The file that has to be looked at before."""
    write: Write | None = None
    excepted: str | None = None
    """The wish that does not hold for this answer."""
    remembers: bool = False
    """It needs something that was said, or seen, before this message."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole conversation."""

    steps: tuple[Step, ...]
    wishes: Mapping[int, tuple[Held, ...]]
    """Wishes by the step from which they hold."""
    files: Mapping[str, str]
    """The workspace at the start, by path."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all skills in order."""
        return tuple(name for step in self.steps for name in step.skills)

    @property
    def difficulty(self) -> int:
        """Questions, files, wishes, corrections, exceptions, distractions: one each."""
        return sum(not name.startswith("tell:") for name in self.names)

    @property
    def all_wishes(self) -> tuple[Held, ...]:
        return tuple(held for wishes in self.wishes.values() for held in wishes)

    def held_at(self, at: int) -> tuple[Held, ...]:
        """The wishes that hold for the reply to a step, an exception taken out."""
        step = self.steps[at]
        begun = [held for start, wishes in self.wishes.items() if start <= at for held in wishes]
        return tuple(
            held for held in begun
            if held.name != step.excepted and (step.answers or not held.wish.only_answers)
        )  # fmt: skip

    def excepted_at(self, at: int) -> Held | None:
        name = self.steps[at].excepted
        return next((held for held in self.all_wishes if held.name == name), None)

    def broken(self, at: int, text: str) -> tuple[Held, ...]:
        """The wishes that a reply to a step does not keep; an exception not made is one of them."""
        answers = self.steps[at].answers
        broken = [held for held in self.held_at(at) if not is_kept(held, answers, text)]
        excepted = self.excepted_at(at)
        if excepted is not None and not is_excepted(excepted, self.steps[at].answers, text):
            broken.append(excepted)
        return tuple(broken)


def is_kept(held: Held, answers: Sequence[Answer], text: str) -> bool:
    """Whether a reply has the form that is wished."""
    if answers and held.wish.inside is not None and not accepts(answers, held.wish.inside(text)):
        return False
    return bool(held.wish.kept(text, held.word))


def is_excepted(held: Held, answers: Sequence[Answer], text: str) -> bool:
    """Whether a reply has the form that was asked for just once."""
    if held.name == "short":
        return all(shows(text, answer.operands) for answer in answers)
    if held.name == "spelt":
        return {answer.value for answer in answers} <= figures_in(visible(text))
    return bool(held.wish.dropped(text, held.word))


def is_done(step: Step, text: str, files: Mapping[str, str]) -> bool:
    """Whether a reply, with the files as they are now, does what a step asks for."""
    if step.write is not None and not accepts(step.write.holds, files.get(step.write.path, "")):
        return False
    if is_echo(step, text):
        return False
    if step.answers:
        return accepts(step.answers, text)
    return bool(re.search(r"\w", text)) and len(text) <= MAX_CHARS


def is_echo(step: Step, text: str) -> bool:
    """Whether a reply has the whole message in it; a short question may be said again."""
    said = _plain(step.text)
    return len(said.split()) >= _ECHOED_WORDS and said in _plain(text)


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))
