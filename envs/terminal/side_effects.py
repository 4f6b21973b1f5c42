"""Checks that nothing else was changed: for tasks whose whole folder has a known end."""

from __future__ import annotations

import json
import stat
from dataclasses import dataclass

from clawrl_gym.envs.terminal.checks import Checked
from clawrl_gym.envs.terminal.task import FinalFiles

TRACES = frozenset(
    {".bash_history", ".cache", ".config", ".gnupg", ".lesshst", ".local", ".python_history",
     ".sqlite_history", ".ssh", ".viminfo", ".wget-hsts"}
)  # fmt: skip
"""Files that programs leave in a home folder by themselves."""


@dataclass(frozen=True, slots=True)
class Unchanged(Checked):
    """A file that is as it was, with its permissions."""

    path: str
    content: bytes
    mode: int | None = None
    """None: whatever they are."""

    def failure(self, files_left: FinalFiles) -> str | None:
        mode = files_left.mode(self.path)
        if mode is None:
            return self.possible_failures()[1]
        is_as_it_was = files_left.read(self.path) == self.content and self.mode in (None, mode)
        return None if is_as_it_was else self.possible_failures()[0]

    def possible_failures(self) -> tuple[str, ...]:
        return (f"{self.path} was changed", f"{self.path} is missing")


@dataclass(frozen=True, slots=True)
class JsonIs(Checked):
    """A file that holds this JSON value, however it is written."""

    path: str
    value: str
    """Value as JSON."""

    def failure(self, files_left: FinalFiles) -> str | None:
        content = files_left.read(self.path)
        if content is None:
            return self.possible_failures()[1]
        try:
            is_value = json.loads(content) == json.loads(self.value)
        except (ValueError, RecursionError):
            is_value = False
        return None if is_value else self.possible_failures()[0]

    def possible_failures(self) -> tuple[str, ...]:
        return (f"{self.path} does not hold what was asked for", f"{self.path} is missing")


@dataclass(frozen=True, slots=True)
class NothingElse(Checked):
    """The working directory holds these files and folders and, but for `free`, no others."""

    files: frozenset[str]
    folders: frozenset[str]
    free: frozenset[str] = frozenset()
    """Files that need not be there."""
    gone: frozenset[str] = frozenset()
    """Files whose absence another check looks after."""

    def failure(self, files_left: FinalFiles) -> str | None:
        tree = files_left.tree()
        if tree is None:
            return self.possible_failures()[0]
        tree = {path: mode for path, mode in tree.items() if path.split("/")[0] not in TRACES}
        known = self.files | self.folders | self.free | self.gone
        extra = sorted(path for path in tree if path not in known)
        if extra:
            return f"{_shortened(extra[0])} was left behind, or is not where it should be"
        for path, mode in sorted(tree.items()):
            if stat.S_ISDIR(mode) != (path in self.folders):
                return f"{_shortened(path)} is {'a folder' if stat.S_ISDIR(mode) else 'no folder'}"
            if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                return f"{_shortened(path)} is no plain file"
        missing = sorted(self.folders - tree.keys())
        return f"{_shortened(missing[0])} is missing" if missing else None

    def possible_failures(self) -> tuple[str, ...]:
        return ("the folder cannot be looked through",)


def _shortened(path: str) -> str:
    """A name that the agent chose, as far as a report shows it."""
    printable = path if path.isprintable() else ascii(path)
    return printable if len(printable) <= 80 else f"{printable[:77]}..."
