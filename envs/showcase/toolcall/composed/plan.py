"""A composed task before it is put into words and goals: its parts, and what is left of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from clawrl_gym.envs.phrasing import Phrasings
from clawrl_gym.envs.showcase.toolcall.composed.lookups import LOOKUPS
from clawrl_gym.envs.showcase.toolcall.composed.skill import Found, Value
from clawrl_gym.envs.showcase.toolcall.families.family import CallSpec
from clawrl_gym.envs.showcase.toolcall.office.toolset import OfficeTools
from clawrl_gym.envs.showcase.toolcall.office.world import Office
from clawrl_gym.envs.toolcall.toolset import ToolFailure

Turn = str | CallSpec
"""Words, or one call."""
Verdict = Literal["allowed", "forbidden", "confirmed", "denied"]
"""Result of a part that a rule is about: it does not apply; it forbids; or it wants a yes of the
user's, who says yes or no."""


@dataclass(frozen=True, slots=True)
class Part:
    """One thing to do, or one question."""

    skill: str
    """Name of the skill, of the question, or of the held-out family."""
    phrasings: Phrasings
    words: Mapping[str, str]
    """The arguments as the request says them."""
    looks: tuple[CallSpec, ...]
    """Calls that have to look at something first."""
    calls: tuple[CallSpec, ...]
    """Calls to make, with those that are refused at first."""
    near: tuple[Turn, ...]
    """The same in a wrong but near solution."""
    guessed: tuple[Turn, ...] = ()
    """The same by an agent that looks up only names in the request; empty where that is right."""
    found: tuple[Found, ...] = ()
    """Lookups on the way."""
    uses: frozenset[Value] = frozenset()
    """Arguments of the part."""
    changes: frozenset[str] = frozenset()
    """Ids of the records that it makes or changes."""
    weight: int = 1
    """Number of skills that it counts as."""
    obstacles: int = 0
    decoys: int = 0
    answer: Value | None = None
    """Answer to a question."""
    verdict: Verdict | None = None
    seen: frozenset[str] = frozenset()
    """Initial ids of which an agent has to see at least one before it answers, or refuses, without
    guessing."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the lookups on the way, and of the skill."""
        return (*(found.lookup for found in self.found), self.skill)

    @property
    def is_done(self) -> bool:
        return self.verdict not in ("forbidden", "denied")

    @property
    def is_free(self) -> bool:
        """Whether no rule is in its way."""
        return self.verdict in (None, "allowed")

    def depends_on(self, other: Part) -> bool:
        """Whether it works with what the other has made or changed."""
        return bool(self.uses & other.changes)


@dataclass(frozen=True, slots=True)
class Plan:
    """A task's work, from its first to its last state."""

    parts: tuple[Part, ...]
    start: Office
    end: Office
    rules: tuple[str, ...] = ()
    """Rules beside those that always hold; one of them may concern a part."""

    @property
    def hidden(self) -> int:
        """Lookups: what is to be found out beyond names."""
        return sum(len(part.found) for part in self.parts)

    @property
    def obstacles(self) -> int:
        """Number of obstacles."""
        return sum(part.obstacles for part in self.parts)

    @property
    def decoys(self) -> int:
        """Number of records with the same name as one that is meant."""
        return sum(part.decoys for part in self.parts)

    @property
    def difficulty(self) -> int:
        """Skills, things to find out, obstacles, decoys, and a rule to be minded: one each."""
        skills = sum(part.weight for part in self.parts)
        return skills + self.hidden + self.obstacles + self.decoys + bool(self.rules)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all skills, in the order of the work."""
        return tuple(name for part in self.parts for name in part.names)

    @property
    def is_sound(self) -> bool:
        """Whether all calls lead to the end, and whatever is looked up is what it is said to be
        when its turn comes: what was put into the office later may have a say in it."""
        office = self.start
        for part in self.parts:
            if any(LOOKUPS[f.lookup].value(office, f.of) != f.value for f in part.found):
                return False
            office = played(office, part.calls if part.is_done else ())
        return office == self.end

    @property
    def turns(self) -> list[Turn]:
        """The oracle's. What was looked at once is known."""
        turns: list[Turn] = []
        for part in self.parts:
            turns += [look for look in part.looks if look not in turns]
            turns += _done(part)
        return [*turns, self.last_words]

    @property
    def calls(self) -> list[CallSpec]:
        """Calls of the oracle."""
        return [turn for turn in self.turns if not isinstance(turn, str)]

    @property
    def last_words(self) -> str:
        """The oracle's last words."""
        refused = [part for part in self.parts if part.verdict == "forbidden"]
        left = [part for part in self.parts if part.verdict == "denied"]
        answers = [part.answer for part in self.parts if part.answer is not None]
        said = [
            *("I cannot do one of these: the rules of the office forbid it." for _ in refused),
            *("I have left one of these as it was." for _ in left),
            *(f"The answer is {answer}." for answer in answers),
        ]
        return " ".join(["Done.", *said])

    def near(self) -> Iterator[list[Turn]]:
        """Wrong but near solutions: one thing is done wrongly, or left out."""
        for part in self.parts:
            yield from self.near_in(part)

    def near_in(self, wrong: Part) -> Iterator[list[Turn]]:
        """Near solutions in which the slip is in this part."""
        for slip in (wrong.near, wrong.guessed):
            if slip:
                yield self._with(wrong, slip)
        yield self._with(wrong, ())

    def _with(self, wrong: Part, slip: Sequence[Turn]) -> list[Turn]:
        """The oracle's turns with others in one part. A question's are its answer."""
        turns: list[Turn] = []
        for part in self.parts:
            turns += part.looks if part is not wrong or slip else ()
            turns += slip if part is wrong and part.answer is None else _done(part)
        last = self.last_words
        if wrong.answer is not None:
            last = " ".join(["Done.", *(turn for turn in slip if isinstance(turn, str))])
        if wrong.verdict == "forbidden":
            last = "Done."
        return [*turns, last]


def confirmation(part: Part) -> str:
    """The question for a yes."""
    name, arguments = part.calls[-1]
    words = " ".join(map(str, arguments.values()))
    return f"Please confirm: shall I go ahead with {name.replace('_', ' ')} ({words})?"


def _done(part: Part) -> list[Turn]:
    """The oracle's turns for a part."""
    asked = [confirmation(part)] if part.verdict in ("confirmed", "denied") else []
    return [*asked, *(part.calls if part.is_done else ())]


def played(start: Office, turns: Sequence[Turn]) -> Office:
    """The office after these turns; a refused one has no effect, and the next one follows."""
    tools = OfficeTools(start.copy())
    for turn in turns:
        if not isinstance(turn, str) and turn[0] != "calculate":
            with suppress(ToolFailure):
                tools.call(*turn, 1.0)
    return tools.office


def succeeds(office: Office, calls: Sequence[CallSpec]) -> list[bool]:
    """Whether each of these calls is carried out."""
    tools = OfficeTools(office.copy())
    done = []
    for call in calls:
        try:
            tools.call(*call, 1.0)
        except ToolFailure:
            done.append(False)
        else:
            done.append(True)
    return done
