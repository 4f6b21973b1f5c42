"""The grade of an episode: the state of the servers, the answer, or that it cannot be done.

Where some tasks cannot be done, giving up one that can costs: else giving up at once would pay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from clawrl_gym.envs.gui.answers import same_answer
from clawrl_gym.envs.gui.task import FinalState

_MAX_SHOWN_CHARS = 120
_GAVE_UP = "the model gave up, and the task can be done"
GIVING_UP_COSTS = 2.0
"""Twice what it earns where it is right: it pays where it is right more than two times in three. At
most half of the tasks of any family cannot be done."""


@dataclass(frozen=True, slots=True)
class StateGrader:
    """Every named server ends with exactly this state, and the answer, if one is asked for, fits.

    What was changed besides is part of the state, so side effects cost the reward.
    """

    expected: Mapping[str, object]
    """State by host name."""
    answer: str | None = None
    """None: nothing is asked for, and an answer does no harm."""
    giving_up_costs: float = 0.0
    """Cost of a `give_up`, as the task can be done."""

    @property
    def needs_pages(self) -> bool:
        return False

    def grade(self, final_state: FinalState) -> tuple[float, tuple[str, ...]]:
        missing = [_GAVE_UP] if final_state.gave_up else []
        for host, state in self.expected.items():
            missing += differences(state, final_state.states.get(host), host)
        said = final_state.answer
        if self.answer is not None and not same_answer(self.answer, said, final_state.question):
            missing.append(_wrong_answer(self.answer, said))
        if final_state.gave_up and self.giving_up_costs:
            return -self.giving_up_costs, tuple(missing)
        return _graded(missing)


@dataclass(frozen=True, slots=True)
class AnswerGrader:
    """The answer fits; servers may be left in any state."""

    answer: str

    @property
    def needs_pages(self) -> bool:
        return False

    def grade(self, final_state: FinalState) -> tuple[float, tuple[str, ...]]:
        return StateGrader({}, self.answer).grade(final_state)


@dataclass(frozen=True, slots=True)
class InfeasibleGrader:
    """The task cannot be done: 1 only when the model says so itself, and has changed nothing."""

    unchanged: Mapping[str, object] | None = None
    """State of each server as it was in the beginning; None: it does not matter."""

    @property
    def needs_pages(self) -> bool:
        return False

    def grade(self, final_state: FinalState) -> tuple[float, tuple[str, ...]]:
        missing = (
            [] if final_state.gave_up else ["the task cannot be done, and the model did not say so"]
        )
        for host, state in (self.unchanged or {}).items():
            missing += differences(state, final_state.states.get(host), host)
        return _graded(missing)


def differences(expected: object, actual: object, where: str) -> Iterator[str]:
    """Differences of two JSON values, in words; none when they are equal."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in [*expected, *(key for key in actual if key not in expected)]:
            if key not in actual:
                yield f"{where}.{key} is missing, expected {_quoted(expected[key])}"
            elif key not in expected:
                yield f"{where}.{key} is {_quoted(actual[key])}, expected none"
            else:
                yield from differences(expected[key], actual[key], f"{where}.{key}")
    elif isinstance(expected, list | tuple) and isinstance(actual, list | tuple):
        if len(expected) != len(actual):
            yield f"{where} has {len(actual)} entries, expected {len(expected)}"
            return
        for i, (expected_entry, entry) in enumerate(zip(expected, actual, strict=True)):
            yield from differences(expected_entry, entry, f"{where}[{i}]")
    elif expected != actual or isinstance(expected, bool) != isinstance(actual, bool):
        yield f"{where} is {_quoted(actual)}, expected {_quoted(expected)}"


def _graded(missing: list[str]) -> tuple[float, tuple[str, ...]]:
    return 0.0 if missing else 1.0, tuple(missing)


def _wrong_answer(expected: str, answer: str | None) -> str:
    quoted = "no answer" if answer is None else f"the answer {_quoted(answer)}"
    return f"got {quoted}, expected {_quoted(expected)}"


def _quoted(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARS else text[: _MAX_SHOWN_CHARS - 3] + "..."
