"""What an episode is worth: the state of the servers, the answer, or that it cannot be done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from clawrl_gym.envs.gui.task import FinalState

_MAX_SHOWN_CHARS = 120
_GAVE_UP = "the model gave up, and the task can be done"


@dataclass(frozen=True, slots=True)
class StateGrader:
    """Every named server ends with exactly this state, and the answer, if one is asked for, fits.

    What was changed besides is part of the state, so side effects cost the reward.
    """

    expected: Mapping[str, Any]
    """State by host name."""
    answer: str | None = None
    """None: nothing is asked for, and an answer does no harm."""

    @property
    def needs_pages(self) -> bool:
        return False

    def grade(self, ended: FinalState) -> tuple[float, tuple[str, ...]]:
        missing = [_GAVE_UP] if ended.gave_up else []
        for host, state in self.expected.items():
            missing += differences(state, ended.states.get(host), host)
        if self.answer is not None and not same_answer(self.answer, ended.answer):
            missing.append(_wrong_answer(self.answer, ended.answer))
        return _graded(missing)


@dataclass(frozen=True, slots=True)
class AnswerGrader:
    """The answer fits; servers may be left in any state."""

    answer: str

    @property
    def needs_pages(self) -> bool:
        return False

    def grade(self, ended: FinalState) -> tuple[float, tuple[str, ...]]:
        return StateGrader({}, self.answer).grade(ended)


@dataclass(frozen=True, slots=True)
class InfeasibleGrader:
    """The task cannot be done: 1 only when the model says so itself, and has changed nothing."""

    unchanged: Mapping[str, Any] | None = None
    """State of each server as it was in the beginning; None: it does not matter."""

    @property
    def needs_pages(self) -> bool:
        return False

    def grade(self, ended: FinalState) -> tuple[float, tuple[str, ...]]:
        missing = [] if ended.gave_up else ["the task cannot be done, and the model did not say so"]
        for host, state in (self.unchanged or {}).items():
            missing += differences(state, ended.states.get(host), host)
        return _graded(missing)


def same_answer(expected: str, got: str | None) -> bool:
    """Case, whitespace and a full stop at the end do not count; numbers count by their value."""
    if got is None:
        return False
    wanted, given = _normal(expected), _normal(got)
    if wanted == given:
        return True
    numbers = _number(wanted), _number(given)
    return None not in numbers and numbers[0] == numbers[1]


def differences(expected: Any, got: Any, where: str) -> Iterator[str]:
    """What differs between two JSON values, in words; nothing when they are equal."""
    if isinstance(expected, dict) and isinstance(got, dict):
        for key in [*expected, *(key for key in got if key not in expected)]:
            if key not in got:
                yield f"{where}.{key} is missing, expected {_shown(expected[key])}"
            elif key not in expected:
                yield f"{where}.{key} is {_shown(got[key])}, expected none"
            else:
                yield from differences(expected[key], got[key], f"{where}.{key}")
    elif isinstance(expected, list | tuple) and isinstance(got, list | tuple):
        if len(expected) != len(got):
            yield f"{where} has {len(got)} entries, expected {len(expected)}"
            return
        for i, (wanted, given) in enumerate(zip(expected, got, strict=True)):
            yield from differences(wanted, given, f"{where}[{i}]")
    elif expected != got or isinstance(expected, bool) != isinstance(got, bool):
        yield f"{where} is {_shown(got)}, expected {_shown(expected)}"


def _graded(missing: list[str]) -> tuple[float, tuple[str, ...]]:
    return 0.0 if missing else 1.0, tuple(missing)


def _wrong_answer(expected: str, got: str | None) -> str:
    given = "no answer" if got is None else f"the answer {_shown(got)}"
    return f"got {given}, expected {_shown(expected)}"


def _normal(text: str) -> str:
    return " ".join(text.split()).casefold().removesuffix(".").rstrip()


def _number(text: str) -> Decimal | None:
    """The value of a number as people write it: 1,250.50 and $3 count too."""
    bare = text.removeprefix("$").replace(",", "") if _groups(text) else text.removeprefix("$")
    try:
        value = Decimal(bare)
    except InvalidOperation:
        return None
    return value if value.is_finite() else None


def _groups(text: str) -> bool:
    """Commas stand where thousands end."""
    whole, *groups = text.partition(".")[0].removeprefix("$").split(",")
    return 0 < len(whole.lstrip("-")) <= 3 and all(len(group) == 3 for group in groups)


def _shown(value: Any) -> str:
    told = repr(value)
    return told if len(told) <= _MAX_SHOWN_CHARS else told[: _MAX_SHOWN_CHARS - 3] + "..."
