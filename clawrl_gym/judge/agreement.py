"""Verdicts on the same turns beside each other: those of then, those of now, and those of people.

Shares have Wilson's interval, which takes turns as independent: those of one conversation are more
alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal, get_args

from clawrl_gym.core.intervals import Estimate, share_of
from clawrl_gym.core.types import Verdict

Outcome = Literal["+1", "0", "-1", "abstained", "not judged"]
"""A judge's verdict on a turn, if it was asked."""
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
NOT_JUDGED: Outcome = "not judged"
_CLEAR = ("+1", "-1")
_BY_VALUE: dict[int | None, Outcome] = {1: "+1", 0: "0", -1: "-1", None: "abstained"}


def outcome_of(verdict: Verdict | None) -> Outcome:
    """The outcome of a verdict; None: nobody was asked."""
    return NOT_JUDGED if verdict is None else _BY_VALUE[verdict.value]


@dataclass(frozen=True, slots=True)
class Rejudged:
    """A turn that was judged once more."""

    turn_id: int
    before: Outcome
    """Outcome by the run's own judge."""
    now: Outcome
    person: Outcome
    """Outcome by explicit feedback."""
    weight: float
    """Strength of the evidence of the present verdict."""
    by: str
    """The basis of that verdict, without a word of the conversation: a rule, or votes."""

    @property
    def has_flipped(self) -> bool:
        return self.before not in (self.now, NOT_JUDGED)

    @property
    def has_turned_round(self) -> bool:
        """Whether it changed from good to bad, or from bad to good."""
        return self.has_flipped and self.before in _CLEAR and self.now in _CLEAR


@dataclass(frozen=True, slots=True)
class Agreement:
    """Old and new verdicts of all turns that were judged again."""

    turns: Sequence[Rejudged]

    @property
    def table(self) -> dict[Outcome, Counter[Outcome]]:
        """Number of turns by old verdict and then by new one; rows that are not empty."""
        counts: dict[Outcome, Counter[Outcome]] = {outcome: Counter() for outcome in OUTCOMES}
        for turn in self.turns:
            counts[turn.before][turn.now] += 1
        return {before: row for before, row in counts.items() if row}

    @property
    def same(self) -> Estimate:
        """The share of turns, of those that had a verdict, that have the same one now."""
        judged = [turn for turn in self.turns if turn.before != NOT_JUDGED]
        return share_of([turn.before == turn.now for turn in judged])

    @property
    def with_people(self) -> tuple[Estimate, Estimate] | None:
        """The shares of turns on which the judge said what a person did, then and now; over turns
        that all three judged. None where there is none."""
        turns = [turn for turn in self.turns if NOT_JUDGED not in (turn.before, turn.person)]
        if not turns:
            return None
        then = share_of([turn.before == turn.person for turn in turns])
        return then, share_of([turn.now == turn.person for turn in turns])

    @property
    def flips(self) -> list[Rejudged]:
        """Turns whose verdict is another one now, in their order."""
        flipped = (turn for turn in self.turns if turn.has_flipped)
        return sorted(flipped, key=lambda turn: turn.turn_id)

    @property
    def turned_round(self) -> list[Rejudged]:
        """The flips from good to bad, or from bad to good."""
        return [turn for turn in self.flips if turn.has_turned_round]


def figures_of(agreement: Agreement) -> dict[str, object]:
    """For programs."""
    people = agreement.with_people
    return {
        "turns": len(agreement.turns),
        "table": {before: dict(counts) for before, counts in agreement.table.items()},
        "same": asdict(agreement.same) if agreement.same.n else None,
        "turned_round": len(agreement.turned_round),
        "as_people_said": people and {"before": asdict(people[0]), "now": asdict(people[1])},
    }
