"""Tasks: what an environment asks for, how it is set up, graded and solved.

A task's grader runs in a fresh sandbox over the files the agent left. Every task has an oracle.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from clawrl_gym.types import Split

SUBMIT = "submit"
"""The command by which an agent says that it is done."""


class Leftovers(Protocol):
    """What the agent left, seen from outside: no program of the sandbox runs to look at it."""

    def read(self, path: str) -> bytes | None:
        """A file's content; None for what is missing, no regular file, or too large."""
        ...

    def mode(self, path: str) -> int | None:
        """A file's permission bits; None for what is missing."""
        ...


class Check(Protocol):
    """One condition that a solved task meets."""

    def passed(self, left: Leftovers) -> bool:
        """True when what the agent left meets the condition."""
        ...

    def why(self, left: Leftovers) -> str | None:
        """What failed, in words that do not give the wanted content away; None when it passed."""
        ...

    def could_say(self) -> tuple[str, ...]:
        """What `why` usually says, whatever the agent left."""
        ...


@dataclass(frozen=True, slots=True)
class FileData:
    """A file that a task brings along."""

    data: bytes
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class BuildStep:
    """One step that makes a task's machine: files, then a command."""

    files: Mapping[str, FileData] = field(default_factory=dict)
    """By absolute path."""
    command: str = ""
    """Bash; anything but exit code 0 is an error of the task."""
    timeout_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Task:
    """One problem for the terminal."""

    id: str
    family: str
    split: Split
    instruction: str
    build: tuple[BuildStep, ...] = ()
    """Carried out before everything else, for tasks that describe their machine."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files written before the episode, by absolute path or path relative to `workdir`."""
    setup: str = ""
    """Bash run before the episode, after the files are there."""
    checks: tuple[Check, ...] = ()
    """Conditions read from outside the sandbox; all must pass before the grader runs, if any."""
    grader: str = ""
    """Bash run in a fresh sandbox over what the agent left; exit code 0 means solved."""
    grader_files: Mapping[str, FileData] = field(default_factory=dict)
    """Files written for the grader only, by absolute path, after the agent has ended."""
    reward_files: tuple[str, ...] = ()
    """When given, the grader leaves the reward in the first of these that exists (a JSON object
    or a number) and its exit code is ignored."""
    solution: tuple[str, ...] = ()
    """The oracle: commands that solve the task."""
    solution_files: Mapping[str, FileData] = field(default_factory=dict)
    """Files written for the oracle only, by absolute path."""
    turns: int | None = None
    """The task ends after this many commands; None waits for `submit`."""
    workdir: str = "/root"
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the agent's shell."""
    grader_timeout_s: float | None = None
    """None takes the environment's own."""

    def content_hash(self) -> str:
        """Hash of what the agent can see: equal tasks are equal whatever their ids."""
        built = [
            [sorted((path, _digest(f.data)) for path, f in step.files.items()), step.command]
            for step in self.build
        ]
        files = sorted((path, _digest(data)) for path, data in self.files.items())
        seen = [
            self.instruction, built, files, self.setup, self.workdir, sorted(self.env.items()),
        ]  # fmt: skip
        return _digest(json.dumps(seen).encode())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
