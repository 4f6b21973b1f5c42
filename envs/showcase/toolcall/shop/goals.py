"""Goals of a shop beside the state that its assistant leaves."""

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
    r"impossible|not allowed|won['\u2019]t|no longer possible|unfortunately|sorry|only possible|"
    r"not permitted|do(?:es)?(?: not|n['\u2019]t) (?:allow|permit)|must not|"
    r"mustn['\u2019]t|may not|forbids?|forbidden|prohibits?|prohibited|"
    r"against the (?:rules?|policy)|refused?)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class IdentificationGoal:
    """Nothing is changed before the customer was found by name and zip."""

    user_id: str

    def missing(self, outcome: Outcome) -> Sequence[str]:
        for executed in _all(outcome):
            matches = executed.call.name == "find_user" and f'"{self.user_id}"' in executed.result
            if matches and not executed.failed:
                return ()
            if executed.call.name in CHANGES and not executed.failed:
                return ("the customer was not looked up before something was changed",)
        return ("the customer was not looked up",)


@dataclass(frozen=True, slots=True)
class AttemptGoal:
    """A tool was called with these values, whatever came of it."""

    tool: str
    values: tuple[str, ...]

    def missing(self, outcome: Outcome) -> Sequence[str]:
        for executed in _all(outcome):
            values = {value for value in executed.arguments.values() if isinstance(value, str)}
            if executed.call.name == self.tool and values >= set(self.values):
                return ()
        return (f"{self.tool} was not called for what the customer asked about",)


@dataclass(frozen=True, slots=True)
class RefusalGoal:
    """The customer was told that it cannot be."""

    def missing(self, outcome: Outcome) -> Sequence[str]:
        if any(_REFUSALS.search(reply) for reply in outcome.replies):
            return ()
        return ("the customer was not told that this cannot be done",)


@dataclass(frozen=True, slots=True)
class StatedNumberGoal:
    """A number was said in the last reply, which is no list of all that it could be."""

    number: int
    subject: str

    def missing(self, outcome: Outcome) -> Sequence[str]:
        reply = outcome.replies[-1] if outcome.replies else ""
        numbers = {int(n.replace(",", "")) for n in re.findall(r"(?<![\w.])\d[\d,]*(?!\w)", reply)}
        is_stated = self.number in numbers and len(numbers) <= _MAX_NUMBERS
        return () if is_stated else (f"the customer was not told {self.subject}",)


def _all(outcome: Outcome) -> Iterator[ExecutedCall]:
    return (executed for calls in outcome.calls for executed in calls)
