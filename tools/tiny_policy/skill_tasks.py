"""Demonstrations of single skills in the terminal: mostly a look first, then the command that does
it and `submit` in one reply. Nothing is run: what is shown follows from the model of the folder.
"""

from __future__ import annotations

import random
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from clawrl_gym.core.types import Message, Split
from clawrl_gym.envs.sandbox.interface import ExecResult
from clawrl_gym.envs.terminal.agent import TerminalAgent, reply_text
from clawrl_gym.envs.terminal.composed.generated import compose, composed_tasks, make_task
from clawrl_gym.envs.terminal.composed.plan import Plan
from clawrl_gym.envs.terminal.env import observation_of
from clawrl_gym.envs.terminal.task import SUBMIT
from tools.tiny_policy.conversations import Conversation, drawn

FAMILY = "single"
MAX_TURNS = 16
"""As conf/env/terminal_composed.yaml has it."""


@dataclass(frozen=True, slots=True)
class SkillDemonstrations:
    """Single skills, each task drawn at random and shown once, without a slip."""

    split: Split = "train"
    looks: float = 0.75
    """Share of the tasks in which the folder, or what the skill works on, is looked at first."""

    def conversations(self, seed: int) -> Iterator[Conversation]:
        """Fresh conversations, endlessly, from the seed alone; the family is the skill's name."""
        chance = random.Random(f"looks/{seed}")
        for task_id in drawn({FAMILY: composed_tasks([FAMILY]).ids(self.split)}, {}, seed):
            plan = compose(FAMILY, self.split, int(task_id.rpartition("-")[2])).plan
            look = chance.choice(looks_at(plan)) if chance.random() < self.looks else None
            request = make_task(task_id).request(MAX_TURNS)
            yield Conversation(_messages(request, plan, look), plan.parts[0].skill.name)


def looks_at(plan: Plan) -> list[tuple[str, str]]:
    """Commands that show what a plan begins with, and what they print."""
    files = plan.start.files
    names = {path.partition("/")[0] for path in files}
    looks = [("ls", "\n".join(sorted(names)))]
    source = plan.parts[0].args.get("a", "")
    if source in plan.start.folders:
        looks.append((f"ls {shlex.quote(source)}", "\n".join(plan.start.names(source))))
    elif source in files and not source.endswith(".tar"):
        looks.append((f"cat {shlex.quote(source)}", files[source].content.decode()))
    return looks


def _messages(request: str, plan: Plan, look: tuple[str, str] | None) -> list[Message]:
    command = "\n".join([*(deed.command for deed in plan.deeds), SUBMIT])
    observations, commands = [request], [command]
    if look is not None:
        observations.append(observation_of(ExecResult(output=look[1], exit_code=0)))
        commands.insert(0, look[0])
    replies: list[Message] = [
        {"role": "assistant", "content": reply_text(command)} for command in commands
    ]
    return [*TerminalAgent().messages(observations, replies[:-1]), replies[-1]]
