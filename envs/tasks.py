"""Tasks: what an environment asks for, how it is set up, graded and solved.

A task's grader runs in a fresh sandbox over the files the agent left. Every task has an oracle.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from clawrl_gym.types import Split

SUBMIT = "submit"
"""The command by which an agent says that it is done."""


@dataclass(frozen=True, slots=True)
class Task:
    """One problem for the terminal."""

    id: str
    family: str
    split: Split
    instruction: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files written before the episode, by absolute path or path relative to `workdir`."""
    setup: str = ""
    """Bash run before the episode, after the files are there."""
    grader: str = ""
    """Bash run in a fresh sandbox over what the agent left; exit code 0 means solved."""
    grader_files: Mapping[str, bytes] = field(default_factory=dict)
    """Files written for the grader only, after the agent has ended."""
    reward_file: str | None = None
    """When given, the grader writes the reward there (a number) and its exit code is ignored."""
    solution: tuple[str, ...] = ()
    """The oracle: commands that solve the task."""
    turns: int | None = None
    """The task ends after this many commands; None waits for `submit`."""
    workdir: str = "/root"
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the agent's shell."""
    grader_timeout_s: float | None = None

    def content_hash(self) -> str:
        """Hash of what the agent can see: equal tasks are equal whatever their ids."""
        seen = [
            self.instruction, self.setup, self.workdir, sorted(self.env.items()),
            sorted((path, hashlib.sha256(data).hexdigest()) for path, data in self.files.items()),
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(seen).encode()).hexdigest()
