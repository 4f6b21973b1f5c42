"""Partners of the policy: the seam between Gymnasium and the sources of conversations."""

from __future__ import annotations

from typing import Protocol

from clawrl_gym.agents.tool_calls import Reply
from clawrl_gym.core.types import Json
from clawrl_gym.envs.task_env import Info


class Partner(Protocol):
    """One conversation at a time."""

    def begin(self, number: int, options: Json) -> tuple[str, Info]:
        """Start the next conversation; where chance decides, `number` does."""
        ...

    def hear(self, reply: Reply) -> tuple[str, float, bool, bool, Info]:
        """The result of a reply, as `Env.step` returns it."""
        ...

    def close(self) -> None: ...
