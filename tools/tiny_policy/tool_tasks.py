"""Demonstrations of tool-call tasks: the agent's messages, the oracle's replies, true results."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from clawrl_gym.agents.tool_calls import Reply, encode_results, message_of
from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.types import Json, Split, Tool
from clawrl_gym.envs.showcase.toolcall import shop
from clawrl_gym.envs.showcase.toolcall.generated import make_task, task_ids
from clawrl_gym.envs.toolcall.agent import ToolCallAgent
from clawrl_gym.envs.toolcall.task import ToolTask
from clawrl_gym.envs.toolcall.toolbox import Toolbox
from clawrl_gym.envs.toolcall.toolset import ToolContext, Toolset
from clawrl_gym.envs.toolcall.toolsets import calculator, files
from clawrl_gym.envs.toolcall.toolsets.python import PYTHON
from tools.tiny_policy import tool_slips
from tools.tiny_policy.conversations import Conversation, drawn

HARD = MappingProxyType({"append": 2, "both": 2, "save": 2})
"""Times a family is shown in training, where it takes longer to learn than others."""
TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True)
class ToolDemonstrations:
    """Generated tool-call tasks of one split, each drawn at random and shown once."""

    split: Split = "train"
    careless: bool = True
    """With slips (see `tool_slips`); False shows the oracle's own solutions."""
    families: tuple[str, ...] | None = None
    """Only these families; None takes all."""

    def conversations(self, seed: int) -> Iterator[Conversation]:
        """Fresh conversations, endlessly, from the seed alone."""
        slips = random.Random(f"tool slips/{seed}")
        for task in self.tasks(seed):
            luck = slips.random() if self.careless else 1.0
            yield demonstrate(task, tool_slips.demonstrated_replies(task, luck))

    def tasks(self, seed: int) -> Iterator[ToolTask]:
        """The tasks that `conversations` shows."""
        families = task_ids(self.split, self.families).families
        ids = {family: task_ids(self.split, (family,)) for family in families}
        shares = HARD if self.split == "train" else {}
        yield from map(make_task, drawn(ids, shares, seed))


def demonstrate(task: ToolTask, replies: Sequence[Reply]) -> Conversation:
    """A conversation in which these replies are given; the last one says something."""
    tools = Toolbox({name: _MAKERS[name](task) for name in task.toolsets}, task.tools)
    observations = [task.instruction]
    for reply in replies[:-1]:
        executed = tools.carry_out(reply.calls, TIMEOUT_S)
        observations.append(encode_results(reply.calls, [call.result for call in executed]))
    messages = [message_of(reply) for reply in replies]
    prompt = ToolCallAgent().messages(observations, messages[:-1])
    return Conversation([*prompt, messages[-1]], f"call-{task.family}", tools.schemas)


class _Sums:
    """The interpreter of the recipe, which runs no sandbox: sums over whole numbers only."""

    def tools(self) -> list[Tool]:
        return [PYTHON]

    def call(self, name: str, arguments: Json, timeout_s: float) -> str:
        code = str(arguments["code"])
        match = re.fullmatch(r"sum\(range\((\d+), (\d+)( \+ 1)?\)\)", code)
        if match is None:
            raise TaskError(f"got {code!r}, expected sum(range(A, B + 1)): no sandbox runs here")
        return str(sum(range(int(match[1]), int(match[2]) + bool(match[3]))))

    def state(self) -> None:
        return None

    def close(self) -> None:
        """Do nothing: nothing is open."""


_MAKERS: Mapping[str, Callable[[ToolTask], Toolset]] = MappingProxyType(
    {
        "calculator": lambda task: calculator.make(task, ToolContext()),
        "files": lambda task: files.make(task, ToolContext()),
        "python": lambda task: _Sums(),
        "shop": lambda task: shop.make(task, ToolContext()),
    }
)
