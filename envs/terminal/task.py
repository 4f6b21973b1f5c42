"""Tasks: what an environment asks for, how it is set up, graded and solved.

A task's grader runs in a fresh sandbox over the files the agent left. Every task has an oracle.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from clawrl_gym.core.types import Split
from clawrl_gym.envs.sandbox.interface import FileData

SUBMIT = "submit"
"""The command by which an agent says that it is done."""


BUDGET = "You have {n} replies. Run submit when you are done."
"""How a request says its budget."""


class FinalFiles(Protocol):
    """The agent's files, seen from outside: no program of the sandbox runs to look at it."""

    def read(self, path: str) -> bytes | None:
        """A file's content; None for what is missing, no regular file, or too large."""
        ...

    def mode(self, path: str) -> int | None:
        """A file's permission bits; None for what is missing."""
        ...

    def tree(self) -> Mapping[str, int] | None:
        """All that is below the working directory, by relative path, with type and permissions as
        `st_mode`; None for what cannot be listed, or is too much."""
        ...


class Check(Protocol):
    """One condition that a solved task meets."""

    def passed(self, files_left: FinalFiles) -> bool:
        """True when what the agent left meets the condition."""
        ...

    def failure(self, files_left: FinalFiles) -> str | None:
        """Failure in words that do not give the wanted content away; None when it passed."""
        ...

    def possible_failures(self) -> tuple[str, ...]:
        """Usual words of `failure`, whatever the agent left."""
        ...


@dataclass(frozen=True, slots=True)
class BuildStep:
    """One step that makes a task's machine: files, then a command."""

    files: Mapping[str, FileData] = field(default_factory=dict)
    """Files by absolute path."""
    command: str = ""
    """Bash; anything but exit code 0 is an error of the task."""
    timeout_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Image:
    """A Docker image that a task asks for: one that is there or can be pulled, or one to build."""

    name: str = ""
    """Empty: it is built from `context`."""
    context: str = ""
    """Folder of the build, on this machine."""
    dockerfile: str = "Dockerfile"
    """Relative to `context`."""
    build_args: tuple[tuple[str, str], ...] = ()
    build_timeout_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Health:
    """A command that must succeed before a machine is used, asked again and again."""

    command: str
    interval_s: float = 5.0
    timeout_s: float = 30.0
    """Seconds of one attempt."""
    start_period_s: float = 0.0
    """So long failures do not count."""
    start_interval_s: float = 5.0
    """Between attempts in that time."""
    retries: int = 3
    """Failures that count until the machine is given up."""


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """Parts that a sandbox of a task is made of."""

    image: Image | None = None
    """Docker; None: the sandbox as it is."""
    build: tuple[BuildStep, ...] = ()
    """Carried out in the sandbox before everything else."""
    workdir: str | None = "/root"
    """None: the image's own."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the shell."""
    user: str | None = None
    """Docker: who the shell runs as; None: the image's own."""
    health: Health | None = None


@dataclass(frozen=True, slots=True)
class Artifact:
    """The agent's files that a grader on a machine of its own gets."""

    source: str
    """Absolute path; it lies at the same path on the grader's machine."""
    exclude: tuple[str, ...] = ()
    """Patterns of tar's --exclude."""


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
    tells_budget: bool = False
    """The request says how many replies there are; it always does where `turns` is None."""
    difficulty: int = 1
    """Rating by a source that rates its tasks; 1 where nothing does."""
    workdir: str | None = "/root"
    """None: the image's own."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the agent's shell."""
    grader_timeout_s: float | None = None
    """Seconds for the grader; None: the environment's own limit."""
    image: Image | None = None
    """Docker: what the task runs in; None takes the environment's own."""
    user: str | None = None
    """Docker: who the agent's shell runs as; None: the image's own."""
    health: Health | None = None
    verifier: MachineSpec | None = None
    """Where the grader runs; None: over all that the agent left."""
    collect: tuple[BuildStep, ...] = ()
    """Commands over what the agent left, before the grader or its artifacts; may fail."""
    artifacts: tuple[Artifact, ...] = ()
    """The agent's files that a grader on its own machine sees, whatever `takes` adds."""
    takes: Literal["artifacts", "work", "all"] = "artifacts"
    """Other files that it sees: none; the work folder and the places that the task names;
    or all files but those of the system. Then `verifier` is made as the agent's machine was."""
    trusted: bool | None = None
    """Whether the agent cannot have prepared its grade; None: nothing of its sandbox decides."""
    expected_tests: tuple[str, ...] | None = None
    """When given, the grader prints a summary of pytest, and these tests must all have passed."""
    steps: tuple[Task, ...] = ()
    """Told, submitted and graded one after the other on this task's machine, which is the only
    thing that counts of the task itself."""
    step_reward: Literal["mean", "final"] = "mean"
    """Rule that combines the rewards of the steps; a step that was never reached counts 0."""
    key: str = ""
    """Key of a user's task: names it by its files and its sandboxes, for what is known of its
    verifier (`verdicts.py`). Empty: the verifier is ours, and works."""
    repaired: tuple[str, ...] = ()
    """Its scripts that had Windows line ends or a byte order mark, which are gone here."""
    min_reward: float | None = None
    """Least reward of a step: with less, the steps after it are left out."""

    @property
    def machine(self) -> MachineSpec:
        """Specification of the agent's sandbox."""
        return MachineSpec(self.image, self.build, self.workdir, self.env, self.user, self.health)

    def request(self, max_turns: int) -> str:
        """Request to the agent; `max_turns`: of the environment, whatever the task has."""
        if self.turns is not None and not self.tells_budget:
            return self.instruction
        return f"{self.instruction}\n\n{BUDGET.format(n=self.budget(max_turns))}"

    def budget(self, max_turns: int) -> int:
        """Replies that the agent has; `max_turns`: of the environment, whatever the task has."""
        return min(self.turns or max_turns, max_turns)

    def content_hash(self) -> str:
        """Hash of what the agent can see: equal tasks are equal whatever their ids."""
        built = [
            [sorted((path, _digest(f.data)) for path, f in step.files.items()), step.command]
            for step in self.build
        ]
        files = sorted((path, _digest(data)) for path, data in self.files.items())
        visible = [
            self.instruction, built, files, self.setup, self.workdir, sorted(self.env.items()),
            repr(self.image), [step.content_hash() for step in self.steps],
        ]  # fmt: skip
        return _digest(json.dumps(visible).encode())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
