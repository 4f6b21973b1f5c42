"""A file of what each user took of their allowances, and how often they were refused.

It stands beside the run's database and not in it: what a user took is remembered when the sessions
are deleted that it was taken for.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from clawrl_gym.core.files import replace_text

ALLOWANCES_FILE = "allowances.json"
"""Below a serving folder."""
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Taken:
    """Counts of all users."""

    windows: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """By limit and user: the number of the window, and what was taken in it."""
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By limit and user, since the run began."""

    def forget(self, user: str) -> None:
        """The user was removed."""
        self.windows = {key: taken for key, taken in self.windows.items() if key[1] != user}
        self.refused = Counter({key: n for key, n in self.refused.items() if key[1] != user})


def read_taken(folder: Path) -> Taken:
    """Nothing where there is no file; one that cannot be read is said in the log."""
    path = folder / ALLOWANCES_FILE
    try:
        kept = json.loads(path.read_text())
        return Taken(
            {(str(limit), str(user)): (int(at), int(n)) for limit, user, at, n in kept["windows"]},
            Counter({(str(limit), str(user)): int(n) for limit, user, n in kept["refused"]}),
        )
    except FileNotFoundError:
        return Taken()
    except (OSError, ValueError, TypeError, KeyError) as error:
        _log.warning("%s cannot be read, allowances begin anew: %s", path, error)
        return Taken()


def write_taken(folder: Path, taken: Taken) -> None:
    """A folder that cannot be written to is said in the log: limits hold without it."""
    path = folder / ALLOWANCES_FILE
    kept = {
        "windows": [[*key, *window] for key, window in taken.windows.items()],
        "refused": [[*key, n] for key, n in taken.refused.items()],
    }
    try:
        replace_text(path, json.dumps(kept) + "\n")
    except OSError as error:
        _log.warning("%s cannot be written: %s", path, error)


def forget_taken(folder: Path, user: str) -> None:
    """Leave nothing of a removed user in the file. For when nobody serves the folder."""
    if (folder / ALLOWANCES_FILE).exists():
        taken = read_taken(folder)
        taken.forget(user)
        write_taken(folder, taken)
