"""Demonstrations of single skills of plain tasks, without a slip.

No reply of a demonstration does two things of one request by itself. Where a request has two, the
other one is somebody else's (`show_other_is_not_asked`), or a person answers when the first is done
(`show_led`); or the second is asked for when the first is done (`show_one_after_the_other`).
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from clawrl_gym.core.types import Split
from clawrl_gym.envs.draw import Draw
from clawrl_gym.envs.phrasing import Place, numbered, sentence, upper
from tools.tiny_policy.conversations import Conversation, drawn
from tools.tiny_policy.skill_words import (
    DONE,
    HAS_BEEN_DONE,
    NODS,
    NOT_ASKED,
    ORDERS,
    PEOPLE,
    WILL_BE_DONE,
)

BUDGETS = (5, 6)
"""Replies that a request says there are, of a session of one and of two skills."""


class Skilled(Protocol):
    """A part of a task."""

    @property
    def skill(self) -> str: ...


PartT = TypeVar("PartT", bound=Skilled)
SessionT = TypeVar("SessionT", bound="Session")


@dataclass(frozen=True, slots=True)
class SkillDemonstrations(ABC):
    """Plain tasks of one split, each drawn at random and shown once. Of two skills, only training
    compositions are drawn, whatever the split."""

    split: Split = "train"
    alone: float = 0.5
    """Share of requests with one thing to do; the others are shares too."""
    other_is_not_asked: float = 0.22
    one_after_the_other: float = 0.08
    led: float = 0.2
    orders: float = 0.5
    """Share of led steps in which the user says what else to do; in the others they nod."""
    nods: float = 0.3
    """Share of the last steps that a person answers."""
    bare: bool = False
    """Only requests with one thing to do, without all that is always said, and what does it."""

    def conversations(self, seed: int) -> Iterator[Conversation]:
        """Fresh conversations, endlessly, from the seed alone; the family is the skill's name."""
        chance = random.Random(f"shown/{seed}")
        ones = drawn({"one": self.ids("one", self.split)}, {}, seed)
        twos = drawn({"two": self.ids("two", "train")}, {}, seed + 1)
        of_two: tuple[Callable[[str, random.Random], Conversation], ...] = (
            self.show_other_is_not_asked, self.show_one_after_the_other, self.show_led,
        )  # fmt: skip
        shares = (self.other_is_not_asked, self.one_after_the_other, self.led)
        while True:
            if self.bare or chance.random() < self.alone:
                task_id = next(ones)
                if self.is_shown(task_id):
                    yield self.show_alone(task_id, chance)
            else:
                (show,) = chance.choices(of_two, shares)
                yield show(next(twos), chance)

    def show_other_is_not_asked(self, task_id: str, chance: random.Random) -> Conversation:
        """A conversation where one of two things was done before, or somebody else will do it."""
        draw = Draw(f"not asked/{task_id}")
        body, is_first = one_of_two(draw, *self.clauses(draw, task_id))
        return self.show_one_of_two(task_id, self.surrounded(draw, body), is_first, chance)

    def show_one_after_the_other(self, task_id: str, chance: random.Random) -> Conversation:
        """The second thing is asked for when the first is done."""
        draw = Draw(f"one after the other/{task_id}")
        first, second = self.clauses(draw, task_id)
        request = self.surrounded(draw, sentence(draw, "train", "first", first))
        place: Place = draw.pick(("next", "last"))
        return self.show_both(task_id, request, sentence(draw, "train", place, second), chance)

    def show_led(self, task_id: str, chance: random.Random) -> Conversation:
        """Two things are asked for, and a person answers when the first is done."""
        word = chance.choice(ORDERS if chance.random() < self.orders else NODS)
        return self.show_both(task_id, self.request(task_id), word, chance)

    def is_shown(self, task_id: str) -> bool:
        """Whether a request with one thing to do is one of those to show."""
        return True

    @abstractmethod
    def ids(self, family: str, split: Split) -> Sequence[str]:
        """Ids of the tasks with one thing to do, or two."""

    @abstractmethod
    def request(self, task_id: str) -> str:
        """The environment's request, but for the number of replies."""

    @abstractmethod
    def clauses(self, draw: Draw, task_id: str) -> tuple[str, str]:
        """The two things of a task as imperatives."""

    @abstractmethod
    def surrounded(self, draw: Draw, body: str) -> str:
        """The request with the words around it."""

    @abstractmethod
    def show_alone(self, task_id: str, chance: random.Random) -> Conversation:
        """A request with one thing to do."""

    @abstractmethod
    def show_one_of_two(
        self, task_id: str, request: str, is_first: bool, chance: random.Random
    ) -> Conversation:
        """The request asks for one thing of a task that has two."""

    @abstractmethod
    def show_both(
        self, task_id: str, request: str, word: str, chance: random.Random
    ) -> Conversation:
        """The first thing; then a person says the word, and the second is done."""


class Session(Protocol):
    """Conversation and actions so far, where a skill is done by a reply and what comes back."""

    def say(self, text: str) -> None:
        """A person's word behind what came back last."""
        ...

    def shown(self, skill: str) -> Conversation:
        """All of it, with the last reply."""
        ...


@dataclass(frozen=True, slots=True)
class SessionSkills(SkillDemonstrations, Generic[PartT, SessionT]):
    """Skills that are shown in sessions, of which a task's parts say what is done."""

    def show_alone(self, task_id: str, chance: random.Random) -> Conversation:
        (part,) = self.parts(task_id)
        if self.bare:
            return self.show_bare(task_id, part)
        session = self.session(task_id, self.request(task_id), BUDGETS[0], ())
        return self._to_the_end(session, part, chance)

    def show_one_of_two(
        self, task_id: str, request: str, is_first: bool, chance: random.Random
    ) -> Conversation:
        first, second = self.parts(task_id)
        finished = () if is_first else (first,)
        session = self.session(task_id, request, chance.choice(BUDGETS), finished)
        return self._to_the_end(session, first if is_first else second, chance)

    def show_both(
        self, task_id: str, request: str, word: str, chance: random.Random
    ) -> Conversation:
        first, second = self.parts(task_id)
        session = self.session(task_id, request, chance.choice(BUDGETS), ())
        self.work(session, first, chance)
        session.say(word)
        return self._to_the_end(session, second, chance)

    @abstractmethod
    def parts(self, task_id: str) -> Sequence[PartT]:
        """The skills of a task, in the order of its text."""

    @abstractmethod
    def session(
        self, task_id: str, request: str, budget: int, finished: Sequence[PartT]
    ) -> SessionT:
        """The session as it begins; `finished` was done before."""

    @abstractmethod
    def work(self, session: SessionT, part: PartT, chance: random.Random) -> None:
        """All of a skill."""

    @abstractmethod
    def show_bare(self, task_id: str, part: PartT) -> Conversation:
        """A request and what does it, without all that is always said."""

    def _to_the_end(self, session: SessionT, part: PartT, chance: random.Random) -> Conversation:
        self.work(session, part, chance)
        if chance.random() < self.nods:
            session.say(chance.choice(NODS))
        return session.shown(part.skill)


def one_of_two(draw: Draw, first: str, second: str) -> tuple[str, bool]:
    """The body of a request that asks for one of two things, and whether that is the first."""
    is_first = draw.below(2) == 0
    if draw.below(3) == 0:
        mark = draw.pick(NOT_ASKED if is_first else DONE)
        lines = [first, second + mark] if is_first else [first + mark, second]
        return numbered(draw, "train", lines), is_first
    if is_first:
        other = draw.pick(WILL_BE_DONE).format(who=draw.pick(PEOPLE), do=second)
        return f"{sentence(draw, 'train', 'first', first)} {upper(other)}", True
    other = draw.pick(HAS_BEEN_DONE).format(who=draw.pick(PEOPLE), do=first)
    own = sentence(draw, "train", draw.pick(("next", "last")), second)
    return f"{upper(other)} {own}", False
