"""The configuration of any Gymnasium environment with text in and text out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import gymnasium
from pydantic import Field

from clawrl_gym.config.envs import EnvConfig, Films
from clawrl_gym.core.types import Split
from clawrl_gym.envs.registration import make_env


class GymEnvConfig(EnvConfig):
    """Any Gymnasium environment with text in and text out."""

    type: Literal["gym"] = "gym"
    id: str | None = None
    """A registered id: `Name-v0`, or `module:Name-v0` to import the module that registers it."""
    target: str | None = None
    """`package.module:ClassName`, when the class is registered nowhere."""
    kwargs: dict[str, object] = Field(default_factory=dict)
    """Keyword arguments of the environment."""
    max_turns: int = Field(8, ge=1)
    """Steps after which an episode is truncated."""
    own_thread: bool = True
    """All calls of one environment come from a thread of its own. False: from any thread, one after
    another, so that thousands that wait for the policy cost nothing but memory."""
    films: Films = "measured"
    """Which episodes are kept as pictures, of an environment that has `filming` and `film()`."""

    @property
    def has_own_thread(self) -> bool:
        return self.own_thread

    def make(self) -> gymnasium.Env[str, str]:
        return make_env(self.id, self.target, dict(self.kwargs))

    def task_ids(self, split: Split) -> Sequence[str] | None:
        """Those of the environment's own `task_ids(split)`, such as every `TaskEnv` has; None for
        one without: its tasks are seeds, and only it knows whether held-out ones differ."""
        env = self.make()
        try:
            task_ids = getattr(env.unwrapped, "task_ids", None)
            return task_ids(split) if callable(task_ids) else None
        finally:
            env.close()
