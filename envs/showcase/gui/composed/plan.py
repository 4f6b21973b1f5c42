"""A composed task before it is put into words and a grade: its parts, and what is left of them.

Parts say what is to be done, not on which pages: turns follow from the desk as it is when a part's
turn comes, so that what is put on it while the plan is made has its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from clawrl_gym.envs.gui.task import Step
from clawrl_gym.envs.phrasing import Phrasings
from clawrl_gym.envs.showcase.gui.composed.desk import Desk, known_numbers, settled
from clawrl_gym.envs.showcase.gui.composed.library import SKILLS
from clawrl_gym.envs.showcase.gui.composed.lookups import LOOKUPS
from clawrl_gym.envs.showcase.gui.composed.open_page import OpenPage
from clawrl_gym.envs.showcase.gui.composed.skill import Args, Found, Refused, Value
from clawrl_gym.envs.showcase.gui.families.family import Turns, answer, done

NOT_DONE = (Refused, LookupError, ValueError)
"""Errors of a action that is refused, or whose object is gone, or is no such thing."""
Action = tuple[str, Args]
"""A skill that is used, and with what."""


@dataclass(frozen=True, slots=True)
class Said:
    """A question's answer, and others that are near it."""

    right: str
    wrong: str
    blind: str
    """Answer of an agent that looks up only names; the right one where that is enough."""
    host: str
    about: str
    """Text on a page that shows the answer."""


@dataclass(frozen=True, slots=True)
class Part:
    """One thing to do, or one question."""

    skill: str
    """Name of the skill, of the lookup that is asked about, or of the held-out family."""
    phrasings: Phrasings
    words: Mapping[str, str]
    """The arguments as the request says them."""
    actions: tuple[Action, ...]
    """The oracle's, with what is refused at first."""
    near: tuple[Action, ...] = ()
    """The same in a wrong but near solution."""
    blind: tuple[Action, ...] = ()
    """The same by an agent that looks at nothing but names in the request."""
    glances: tuple[tuple[str, Value], ...] = ()
    """Lookups, and of what, by an agent that looks nothing else up: those of a question."""
    spoils: tuple[Action, ...] = ()
    """Deeds that replace `blind` where the wanted state holds already; empty: `blind` as it is."""
    misled: bool = False
    """Whether doing that is wrong."""
    found: tuple[Found, ...] = ()
    """Lookups on the way."""
    looks: tuple[tuple[str, Value], ...] = ()
    """Lookups whose pages have to be seen besides, and of what."""
    uses: frozenset[str] = frozenset()
    """Records that it is done with."""
    makes: frozenset[str] = frozenset()
    """Records that are new."""
    tail: str = ""
    """Clause that the request adds, such as what to do when something is in the way."""
    weight: int = 1
    """Number of skills that it counts as."""
    obstacles: int = 0
    decoys: int = 0
    holds: bool = False
    """The wanted state holds already: the oracle looks, and leaves it."""
    said: Said | None = None
    """Answer of a question."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the lookups on the way, and of the skill."""
        return (*(found.lookup for found in self.found), self.skill)

    @property
    def hosts(self) -> frozenset[str]:
        """Hosts of the applications in which something is looked up or done."""
        looked = {LOOKUPS[found.lookup].host for found in self.found}
        asked = set() if self.said is None else {self.said.host}
        return frozenset(looked | asked | {SKILLS[name].host for name, _ in self.actions})

    def depends_on(self, other: Part) -> bool:
        """Whether it works with what the other makes, or works with, too."""
        return bool(self.uses & (other.makes | other.uses))


@dataclass(frozen=True, slots=True)
class Plan:
    """A task's work, from its first to its last state."""

    parts: tuple[Part, ...]
    start: Desk
    end: Desk
    page: OpenPage | None = None
    """Page on which all of it is done; None: from the start page on."""

    @property
    def hidden(self) -> int:
        """Number of lookups beyond names."""
        return sum(len(part.found) for part in self.parts)

    @property
    def obstacles(self) -> int:
        return sum(part.obstacles for part in self.parts)

    @property
    def decoys(self) -> int:
        """Number of records with the same name as one that is meant."""
        return sum(part.decoys for part in self.parts)

    @property
    def difficulty(self) -> int:
        """Things to do, things to find out, obstacles and decoys, and one where something is so
        already."""
        skills = sum(part.weight for part in self.parts)
        holds = any(part.holds for part in self.parts)
        return skills + self.hidden + self.obstacles + self.decoys + holds

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all skills and lookups, in the order of the work."""
        return tuple(name for part in self.parts for name in part.names)

    @property
    def hosts(self) -> frozenset[str]:
        return frozenset(host for part in self.parts for host in part.hosts)

    @property
    def said(self) -> Said | None:
        """Answer of the question at the end, if there is one."""
        return next((part.said for part in self.parts if part.said is not None), None)

    @property
    def turns(self) -> Turns:
        """The oracle's."""
        return self._turns(None, (), None if self.said is None else self.said.right)

    def near(self) -> Iterator[Turns]:
        """Wrong but near solutions: one thing is done wrongly, or left out."""
        right = None if self.said is None else self.said.right
        for wrong in self.parts:
            if wrong.said is not None:
                yield self._turns(None, (), wrong.said.wrong)
                if wrong.misled:
                    yield self._turns(None, (), wrong.said.blind)
                yield self._turns(None, (), None)
                continue
            yield self._turns(wrong, wrong.near, right)
            if wrong.misled:
                yield self._turns(wrong, wrong.blind, right)
            if not wrong.holds:
                yield self._turns(wrong, (), right)

    def blind(self, order: Sequence[int]) -> Turns:
        """The named work in the order of the request, by an agent that looks at nothing else."""
        desk, said = self.start.copy(), None
        turns: list[tuple[Step, ...]] = []
        for part in (self.parts[i] for i in order):
            turns += _pages(desk, part.glances)
            turns += self._way(desk, part.blind, blindly=part.holds)
            said = part.said or said
        return (*turns, ending(None if said is None else said.blind))

    def _turns(self, wrong: Part | None, slip: Sequence[Action], last: str | None) -> Turns:
        """The oracle's turns with other actions in one part."""
        desk = self.start.copy()
        turns: list[tuple[Step, ...]] = []
        for part in self.parts:
            looks = (*((found.lookup, found.of) for found in part.found), *part.looks)
            turns += _pages(desk, looks)
            is_wrong = part is wrong
            actions = slip if is_wrong else part.actions
            way = self._way(desk, actions, blindly=is_wrong and part.holds)
            turns += way[:-1] if part.holds and not is_wrong else way
        return (*turns, ending(last))

    def _way(
        self, desk: Desk, actions: Sequence[Action], *, blindly: bool
    ) -> list[tuple[Step, ...]]:
        """The turns of these actions, which are carried out on the desk. `blindly`: as is done by
        who does not look whether it is so already."""
        turns: list[tuple[Step, ...]] = []
        for name, args in actions:
            skill = SKILLS[name]
            steps = skill.blind if blindly and skill.blind is not None else skill.steps
            with suppress(*NOT_DONE):
                way = steps(desk, args)
                turns += way if self.page is None else way[-1:]
            do(desk, (name, args))
        return turns

    @property
    def is_sound(self) -> bool:
        """Whether what is looked up is the same all the time, whatever is done, and no part can be
        left out, or done wrongly, unnoticed."""
        found = (found for part in self.parts for found in part.found)
        if not all(_is_steady(one, desk) for one in found for desk in (self.start, self.end)):
            return False
        end = self._left(self.end)
        actions = [action for part in self.parts for action in part.actions]
        if self._left(played(self.start, actions)) != end:
            return False
        return all(self._left(played(self.start, slip)) != end for slip in self._slips())

    def settled(self, desk: Desk) -> dict[str, object]:
        """The part of a desk's states that counts."""
        return settled(desk.states(), known_numbers(self.start))

    def _left(self, desk: Desk) -> dict[str, object]:
        """Likewise of what is stored, to be compared."""
        return settled(desk.stored(), known_numbers(self.start))

    def _slips(self) -> Iterator[list[Action]]:
        for wrong in self.parts:
            slips = [wrong.near, *([] if wrong.holds else [()])]
            slips += [wrong.spoils or wrong.blind] if wrong.misled else []
            for slip in [] if wrong.said is not None else slips:
                yield [
                    action
                    for part in self.parts
                    for action in (slip if part is wrong else part.actions)
                ]


def ending(said: str | None) -> tuple[Step, ...]:
    """The last reply."""
    return done() if said is None else answer(said)


def played(start: Desk, actions: Sequence[Action]) -> Desk:
    """The desk after these actions; a refused one has no effect, and the next one follows."""
    desk = start.copy()
    for action in actions:
        do(desk, action)
    return desk


def do(desk: Desk, action: Action) -> bool:
    """Whether it was carried out."""
    name, args = action
    try:
        SKILLS[name].does(desk, args)
    except NOT_DONE:
        return False
    return True


def _pages(desk: Desk, looks: Sequence[tuple[str, Value]]) -> Iterator[tuple[Step, ...]]:
    """The turns of these lookups."""
    for name, of in looks:
        with suppress(*NOT_DONE):
            yield from LOOKUPS[name].looks(desk, of)


def _is_steady(found: Found, desk: Desk) -> bool:
    try:
        return LOOKUPS[found.lookup].value(desk, found.of) == found.value
    except NOT_DONE:
        return False
