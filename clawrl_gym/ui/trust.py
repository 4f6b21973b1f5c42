"""A report's account of what each user brought to shared weights, and what guards did."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from clawrl_gym.core.metrics import REFUSED, RETURNED_TO
from clawrl_gym.core.ownership import OWNER
from clawrl_gym.store import UpdateRow, UserCounts
from clawrl_gym.store.allowance_file import Taken
from clawrl_gym.ui.text import number, share

_NEWEST = 20
"""Refused versions, and ways back, that are listed."""
_FEEDBACK = ("feedback_per_minute", "feedback_per_day")


@dataclass(frozen=True, slots=True)
class Trust:
    """The section; all of it is empty where one person talks and nothing was refused."""

    users: list[list[str]] = field(default_factory=list)
    """A row each: name, turns, feedback taken, feedback refused, samples learned from, their
    share, samples of refused updates, samples that wait."""
    refused: list[tuple[str, str, str]] = field(default_factory=list)
    """Version, when, and the guards with what they measured; the newest first."""
    returns: list[tuple[str, str, str]] = field(default_factory=list)
    """Version, when, and the version whose weights came back; the newest first."""
    refused_count: int = 0
    """Updates that were refused, of which the newest are listed."""

    @property
    def is_shown(self) -> bool:
        return len(self.users) > 1 or bool(self.refused or self.returns)


def trust_of(counts: Mapping[str, UserCounts], updates: Sequence[UpdateRow], taken: Taken) -> Trust:
    """Trust figures of one run."""
    everybody = {**counts, **{user: counts.get(user, UserCounts()) for _, user in taken.refused}}
    learned = sum(one.learned for one in everybody.values())
    users = [
        [
            "the owner" if user == OWNER else user,
            number(one.turns),
            number(one.feedback),
            number(sum(taken.refused[limit, user] for limit in _FEEDBACK)),
            number(one.learned),
            share(one.learned / learned) if learned else "-",
            number(one.undone),
            number(one.waiting),
        ]
        for user, one in sorted(everybody.items())
    ]
    refused = [row for row in updates if REFUSED in row.metrics]
    returns = [row for row in updates if RETURNED_TO in row.metrics]
    return Trust(
        users,
        [(number(row.version), _when(row), _why(row)) for row in refused[: -_NEWEST - 1 : -1]],
        [
            (number(row.version), _when(row), number(row.metrics[RETURNED_TO]))
            for row in returns[: -_NEWEST - 1 : -1]
        ],
        len(refused),
    )


def _why(row: UpdateRow) -> str:
    """The guards that refused an update, each with what it measured."""
    prefix = f"{REFUSED}/"
    names = [name.removeprefix(prefix) for name in row.metrics if name.startswith(prefix)]
    words = [f"{name} {row.metrics.get(f'guard/{name}', float('nan')):.3g}" for name in names]
    return ", ".join(words) or "not recorded"


def _when(row: UpdateRow) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(row.created_s))
