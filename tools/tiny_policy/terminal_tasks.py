"""Demonstrations of terminal tasks: the agent's prompts, the oracle's commands, true outputs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.types import Message, Split
from clawrl_gym.envs.sandbox.interface import ExecResult
from clawrl_gym.envs.showcase.terminal.generated import make_task, task_ids
from clawrl_gym.envs.terminal.agent import TerminalAgent, reply_text
from clawrl_gym.envs.terminal.env import observation_of
from clawrl_gym.envs.terminal.task import Task
from tools.tiny_policy.careless import demonstrated
from tools.tiny_policy.conversations import Conversation, drawn

HARD = MappingProxyType({"lookup": 2, "note": 2, "replace": 2, "trail": 2})
"""Times a family is shown in training, where it takes longer to learn than others."""


@dataclass(frozen=True, slots=True)
class TerminalDemonstrations:
    """Terminal tasks of one split, each drawn at random and shown once."""

    split: Split = "train"
    careless: bool = True
    """With slips (see `careless`); False shows the oracle's own solutions."""
    families: tuple[str, ...] | None = None
    """Only these families; None takes all."""

    def conversations(self, seed: int) -> Iterator[Conversation]:
        """Fresh conversations, endlessly, from the seed alone."""
        slips = random.Random(f"slips/{seed}")
        for task in self.tasks(seed):
            luck = slips.random() if self.careless else 1.0
            yield Conversation(_messages(task, _commands(task, luck)), task.family)

    def tasks(self, seed: int) -> Iterator[Task]:
        """The tasks that `conversations` shows."""
        families = task_ids(self.split, self.families).families
        ids = {family: task_ids(self.split, (family,)) for family in families}
        shares = HARD if self.split == "train" else {}
        yield from map(make_task, drawn(ids, shares, seed))


def _commands(task: Task, luck: float) -> list[str]:
    *earlier, last = task.solution
    return [*earlier, demonstrated(task.family, last, luck)]


def _messages(task: Task, commands: Sequence[str]) -> list[Message]:
    observations = [task.instruction, *(shown_by(task, command) for command in commands[:-1])]
    replies: list[Message] = [
        {"role": "assistant", "content": reply_text(command)} for command in commands
    ]
    prompt = TerminalAgent().messages(observations, replies[:-1])
    return [*prompt, replies[-1]]


def shown_by(task: Task, command: str) -> str:
    """The environment's output of a command that only prints one of the task's files."""
    program, _, name = command.partition(" ")
    if program != "cat" or name not in task.files:
        raise TaskError(
            f"got {command!r} before the last turn of {task.id}, expected 'cat FILE' with a file "
            "of the task: the recipe runs no sandbox"
        )
    return observation_of(ExecResult(output=task.files[name].decode(), exit_code=0))
