"""What the configurations of the kinds that this package ships have in common.

Apart from `registration.py`, which `import clawrl_gym` needs and which must stay light.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium

from clawrl_gym.config.envs import EnvConfig
from clawrl_gym.core.plugins import load
from clawrl_gym.core.types import Split
from clawrl_gym.envs.registration import make_env


class RegisteredEnvConfig(EnvConfig):
    """Of a kind of ours, whose environment is registered under an id.

    The environment's class reads this configuration; so it is found by name, never imported.
    """

    gym_class: ClassVar[str]
    """package.module:Name of the environment."""

    id: str
    """What `gymnasium.make` takes."""

    def make(self) -> gymnasium.Env[str, str]:
        return make_env(self.id, None, self.options())

    def task_ids(self, split: Split) -> Sequence[str]:
        ids: Sequence[str] = self.env_class().list_tasks(self, split)
        return ids

    @classmethod
    def env_class(cls) -> Any:
        return load(cls.gym_class, cls.gym_class)
