"""Common parts of the configurations of the kinds that this package ships.

Apart from `registration.py`, which `import clawrl_gym` needs and which must stay light.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import gymnasium

from clawrl_gym.config.envs import EnvConfig
from clawrl_gym.core.broken_tasks import broken_line
from clawrl_gym.core.plugins import load
from clawrl_gym.core.types import Split, TaskTraits
from clawrl_gym.envs.registration import make_env
from clawrl_gym.envs.selection import selection_of
from clawrl_gym.envs.task_source import TaskSource


class RegisteredEnvConfig(EnvConfig):
    """Configuration of a shipped kind, whose environment is registered under an id.

    The environment's class reads this configuration; so it is found by name, never imported.
    """

    gym_class: ClassVar[str]
    """package.module:Name of the environment."""

    id: str
    """Id for `gymnasium.make`."""

    @property
    def has_own_thread(self) -> bool:
        return False

    def make(self) -> gymnasium.Env[str, str]:
        return make_env(self.id, None, self.options())

    def task_ids(self, split: Split) -> Sequence[str]:
        return self._source().ids(split)

    def traits(self) -> Callable[[str], TaskTraits]:
        source = self._source()

        def of(task_id: str) -> TaskTraits:
            task = source.load(task_id)
            return TaskTraits(getattr(task, "family", None), getattr(task, "difficulty", None))

        return of

    def left_out(self) -> Sequence[str]:
        selection, broken = selection_of(self._source()), self.broken_tasks()
        lines = () if selection is None else selection.lines()
        return (*lines, broken_line(broken)) if broken else lines

    def broken_tasks(self) -> Mapping[str, str]:
        broken = getattr(self._source(), "broken", None)
        return {} if broken is None else broken()

    def _source(self) -> TaskSource[object]:
        source: TaskSource[object] = self.env_class().source_of(self)
        return source

    @classmethod
    def env_class(cls) -> Any:
        return load(cls.gym_class, cls.gym_class)
