"""When a task is solved: the answer, the state that was left, what was said, calls, a program.

No goal's words give away what it wanted: they become a report that the policy may learn from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from clawrl_gym.envs.toolcall.answer_matching import boxed, last_number, number_of, same_text, says
from clawrl_gym.envs.toolcall.json_matching import differences, fits
from clawrl_gym.envs.toolcall.task import ExecutedCall, Outcome

_DIFFERENCES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class AnswerGoal:
    """The last thing said gives the answer: what is in its last box, else what it ends with."""

    wanted: str
    form: Literal["number", "text"] = "number"
    """`text` compares without regard to case, spaces and a full stop at the end."""
    boxed: bool = False
    r"""Only \boxed{...} counts as an answer."""
    tolerance: float = 1e-9
    """form=number: how far off it may be."""

    def missing(self, outcome: Outcome) -> Sequence[str]:
        if not outcome.said:
            return ["no answer was given"]
        said = outcome.said[-1]
        answer = boxed(said)
        if answer is None and self.boxed:
            return ["the answer is not in a \\boxed{}"]
        right = self._is_number(said, answer) if self.form == "number" else self._is(said, answer)
        return [] if right else ["the answer is wrong"]

    def _is(self, said: str, answer: str | None) -> bool:
        return same_text(said if answer is None else answer, self.wanted)

    def _is_number(self, said: str, answer: str | None) -> bool:
        got = last_number(said) if answer is None else number_of(answer)
        wanted = number_of(self.wanted)
        if got is None or wanted is None:
            return False
        return abs(got - wanted) <= Fraction(self.tolerance)


@dataclass(frozen=True, slots=True)
class StateGoal:
    """A toolset's state is as it should be at the end."""

    toolset: str
    wanted: Any
    """JSON."""
    at: tuple[str, ...] = ()
    """Keys that lead to the part that is looked at."""
    contains: bool = False
    """Objects may hold more than what is wanted."""

    def missing(self, outcome: Outcome) -> Sequence[str]:
        state = outcome.states.get(self.toolset)
        for key in self.at:
            state = state.get(key) if isinstance(state, Mapping) else None
        place = (self.toolset, *self.at)
        return differences(state, self.wanted, place, self.contains)[:_DIFFERENCES_SHOWN]


@dataclass(frozen=True, slots=True)
class MentionGoal:
    """Every one of these texts was said at some time, as whole words, in any case."""

    texts: tuple[str, ...]

    def missing(self, outcome: Outcome) -> Sequence[str]:
        said = "\n".join(outcome.said)
        lacking = sum(not says(said, text) for text in self.texts)
        return [f"{lacking} of {len(self.texts)} things were not said"] if lacking else []


@dataclass(frozen=True, slots=True)
class ExpectedCall:
    """A call that is to be made, in the manner of BFCL."""

    name: str
    arguments: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """By argument, the values that are allowed; "" among them: it may be left out.

    A value that is an object holds, by key, a list of what is allowed there.
    """

    def is_made_by(self, made: ExecutedCall) -> bool:
        return (
            not made.failed
            and made.call.name == self.name
            and fits(dict(made.arguments), dict(self.arguments))
        )


@dataclass(frozen=True, slots=True)
class CallsGoal:
    """These calls were made, each by a call of its own."""

    wanted: tuple[ExpectedCall, ...]
    """Empty: no call is to be made."""
    ordered: bool = False
    extra: bool = False
    """Other calls are allowed beside them."""

    def missing(self, outcome: Outcome) -> Sequence[str]:
        made = [one for reply in outcome.made for one in reply]
        met = self._met_in_order(made) if self.ordered else self._met(made)
        wrong = []
        if met < len(self.wanted):
            lacking = len(self.wanted) - met
            wrong.append(f"{lacking} of {len(self.wanted)} calls that were needed were not made")
        if not self.extra and len(made) > len(self.wanted):
            wrong.append("calls were made that were not needed")
        return wrong

    def _met_in_order(self, made: Sequence[ExecutedCall]) -> int:
        met = 0
        for one in made:
            if met < len(self.wanted) and self.wanted[met].is_made_by(one):
                met += 1
        return met

    def _met(self, made: Sequence[ExecutedCall]) -> int:
        """The most wanted calls that can be given a made call each."""
        owner: dict[int, int] = {}

        def give(wish: int, tried: set[int]) -> bool:
            for at, one in enumerate(made):
                if at in tried or not self.wanted[wish].is_made_by(one):
                    continue
                tried.add(at)
                if at not in owner or give(owner[at], tried):
                    owner[at] = wish
                    return True
            return False

        return sum(give(wish, set()) for wish in range(len(self.wanted)))
