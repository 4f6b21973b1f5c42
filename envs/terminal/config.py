"""The configuration of `ClawRL/Terminal-v0`, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import gymnasium
from pydantic import Field

from clawrl_gym.config.envs import EnvConfig, SandboxConfig
from clawrl_gym.core.types import Split
from clawrl_gym.envs.registration import make_env
from clawrl_gym.envs.terminal import GYM_ID


class TerminalEnvConfig(EnvConfig):
    """`ClawRL/Terminal-v0`: a shell in a sandbox."""

    usual_agent: ClassVar[str] = "terminal"
    starts_here: ClassVar[bool] = True

    type: Literal["terminal"] = "terminal"
    id: str = GYM_ID
    tasks: str = "generated"
    """`generated`: the shipped seeded families; or a folder of tasks in the Harbor or
    Terminal-Bench layout."""
    families: list[str] | None = None
    """Only these generated families; None takes all."""
    max_turns: int = Field(8, ge=1)
    """Commands after which an episode is truncated (a task may end earlier by itself)."""
    command_timeout_s: float = Field(10.0, gt=0)
    grader_timeout_s: float = Field(60.0, gt=0)
    sandbox: SandboxConfig = SandboxConfig()

    def make(self) -> gymnasium.Env[str, str]:
        return make_env(self.id, None, self.options())

    def task_ids(self, split: Split) -> Sequence[str]:
        from clawrl_gym.envs.terminal.source import open_source

        return open_source(self).ids(split)

    def prepare(self, say: Callable[[str], None]) -> None:
        from clawrl_gym.envs.terminal.env import prepare

        prepare(self, say)
