"""When a task is solved: the answer, the state that was left, what was said, calls, a program.

No goal's words give away what it wanted: they become a report that the policy may learn from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from clawrl_gym.envs.toolcall.answer_matching import boxed, last_number, number_of, same_text, says
from clawrl_gym.envs.toolcall.json_matching import differences, fits
from clawrl_gym.envs.toolcall.task import ExecutedCall, Outcome

_DIFFERENCES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class AnswerGoal:
    """The last thing said gives the answer: what is in its last box, else what it ends with."""

    expected: str
    form: Literal["number", "text"] = "number"
    """`text` compares without regard to case, spaces and a full stop at the end."""
    boxed: bool = False
    r"""Only \boxed{...} counts as an answer."""
    tolerance: float = 1e-9
    """form=number: how far off it may be."""

    def missing(self, outcome: Outcome) -> Sequence[str]:
        if not outcome.replies:
            return ["no answer was given"]
        reply = outcome.replies[-1]
        answer = boxed(reply)
        if answer is None and self.boxed:
            return ["the answer is not in a \\boxed{}"]
        right = self._is_number(reply, answer) if self.form == "number" else self._is(reply, answer)
        return [] if right else ["the answer is wrong"]

    def _is(self, reply: str, answer: str | None) -> bool:
        return same_text(reply if answer is None else answer, self.expected)

    def _is_number(self, reply: str, answer: str | None) -> bool:
        number = last_number(reply) if answer is None else number_of(answer)
        expected_number = number_of(self.expected)
        if number is None or expected_number is None:
            return False
        return abs(number - expected_number) <= Fraction(self.tolerance)


@dataclass(frozen=True, slots=True)
class StateGoal:
    """A toolset's state is as it should be at the end."""

    toolset: str
    expected: object
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
        return differences(state, self.expected, place, self.contains)[:_DIFFERENCES_SHOWN]


@dataclass(frozen=True, slots=True)
class MentionGoal:
    """Every one of these texts was said at some time, as whole words, in any case."""

    texts: tuple[str, ...]

    def missing(self, outcome: Outcome) -> Sequence[str]:
        conversation = "\n".join(outcome.replies)
        lacking = sum(not says(conversation, text) for text in self.texts)
        return [f"{lacking} of {len(self.texts)} things were not said"] if lacking else []


@dataclass(frozen=True, slots=True)
class ExpectedCall:
    """A call that is to be made, in the manner of BFCL."""

    name: str
    arguments: Mapping[str, Sequence[object]] = field(default_factory=dict)
    """By argument, the values that are allowed; "" among them: it may be left out.

    A value that is an object holds, by key, a list of what is allowed there.
    """

    def is_made_by(self, executed: ExecutedCall) -> bool:
        return (
            not executed.failed
            and executed.call.name == self.name
            and fits(dict(executed.arguments), dict(self.arguments))
        )


@dataclass(frozen=True, slots=True)
class CallsGoal:
    """These calls were made, each by a call of its own."""

    expected: tuple[ExpectedCall, ...]
    """Empty: no call is to be made."""
    ordered: bool = False
    extra: bool = False
    """Other calls are allowed beside them."""

    def missing(self, outcome: Outcome) -> Sequence[str]:
        executed = [call for reply in outcome.calls for call in reply]
        met = self._met_in_order(executed) if self.ordered else self._met(executed)
        wrong = []
        if met < len(self.expected):
            lacking = len(self.expected) - met
            wrong.append(f"{lacking} of {len(self.expected)} calls that were needed were not made")
        if not self.extra and len(executed) > len(self.expected):
            wrong.append("calls were made that were not needed")
        return wrong

    def _met_in_order(self, executed: Sequence[ExecutedCall]) -> int:
        met = 0
        for call in executed:
            if met < len(self.expected) and self.expected[met].is_made_by(call):
                met += 1
        return met

    def _met(self, executed: Sequence[ExecutedCall]) -> int:
        """The most wanted calls that can be given a made call each."""
        owner: dict[int, int] = {}

        def give(wish: int, tried: set[int]) -> bool:
            for at, call in enumerate(executed):
                if at in tried or not self.expected[wish].is_made_by(call):
                    continue
                tried.add(at)
                if at not in owner or give(owner[at], tried):
                    owner[at] = wish
                    return True
            return False

        return sum(give(wish, set()) for wish in range(len(self.expected)))
