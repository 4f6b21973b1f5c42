"""What a shop asks of its assistant beside the state that it leaves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from clawrl_gym.envs.toolcall.task import ExecutedCall, Outcome

CHANGES = frozenset(
    {"cancel_order", "change_address", "move_user", "exchange_item", "return_items"}
)
"""Tools that change the shop."""
_MAX_NUMBERS = 4
_REFUSALS = re.compile(
    r"\b(?:cannot|can not|can['\u2019]t|could not|couldn['\u2019]t|unable|not able|not possible|"
    r"impossible|not allowed|won['\u2019]t|no longer possible|unfortunately|sorry|only possible)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class IdentificationGoal:
    """Nothing is changed before the customer was found by name and zip."""

    user_id: str

    def missing(self, outcome: Outcome) -> Sequence[str]:
        for made in _all(outcome):
            found = made.call.name == "find_user" and f'"{self.user_id}"' in made.result
            if found and not made.failed:
                return ()
            if made.call.name in CHANGES and not made.failed:
                return ("the customer was not looked up before something was changed",)
        return ("the customer was not looked up",)


@dataclass(frozen=True, slots=True)
class AttemptGoal:
    """A tool was called with these values, whatever came of it."""

    tool: str
    values: tuple[str, ...]

    def missing(self, outcome: Outcome) -> Sequence[str]:
        for made in _all(outcome):
            given = {value for value in made.arguments.values() if isinstance(value, str)}
            if made.call.name == self.tool and given >= set(self.values):
                return ()
        return (f"{self.tool} was not called for what the customer asked about",)


@dataclass(frozen=True, slots=True)
class RefusalGoal:
    """The customer was told that it cannot be."""

    def missing(self, outcome: Outcome) -> Sequence[str]:
        if any(_REFUSALS.search(said) for said in outcome.said):
            return ()
        return ("the customer was not told that this cannot be done",)


@dataclass(frozen=True, slots=True)
class StatedNumberGoal:
    """A number was said in the last reply, which is no list of all that it could be."""

    number: int
    what: str

    def missing(self, outcome: Outcome) -> Sequence[str]:
        said = outcome.said[-1] if outcome.said else ""
        numbers = {int(n.replace(",", "")) for n in re.findall(r"(?<![\w.])\d[\d,]*(?!\w)", said)}
        told = self.number in numbers and len(numbers) <= _MAX_NUMBERS
        return () if told else (f"the customer was not told {self.what}",)


def _all(outcome: Outcome) -> Iterator[ExecutedCall]:
    return (made for calls in outcome.made for made in calls)
