"""The file of each user's use of their allowances, and of their refusals.

It stands beside the run's database and not in it: use is remembered when the sessions are deleted
that it was for.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from clawrl_gym.core.files.files import replace_text

ALLOWANCES_FILE = "allowances.json"
"""File name below a serving folder."""
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Taken:
    """Counts of all users."""

    windows: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """Number of the window and use in it, by limit and user."""
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Refusals since the run began, by limit and user."""

    def forget(self, user: str) -> None:
        """Forget a removed user."""
        self.windows = {key: taken for key, taken in self.windows.items() if key[1] != user}
        self.refused = Counter({key: n for key, n in self.refused.items() if key[1] != user})


def read_taken(folder: Path) -> Taken:
    """Read the file; empty without one. One that cannot be read is reported in the log."""
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
        _log.warning("%s cannot be read, allowances start from zero: %s", path, error)
        return Taken()


def write_taken(folder: Path, taken: Taken) -> None:
    """Write the file; a failure is reported in the log, for limits work without it."""
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
    """Remove a removed user from the file. For when nobody serves the folder."""
    if (folder / ALLOWANCES_FILE).exists():
        taken = read_taken(folder)
        taken.forget(user)
        write_taken(folder, taken)
