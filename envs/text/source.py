"""Where tasks in text come from."""

from __future__ import annotations

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.envs.task_source import TaskSource
from clawrl_gym.envs.text.config import TextEnvConfig
from clawrl_gym.envs.text.task import TextTask

LENGTH = "length"


def open_source(config: TextEnvConfig) -> TaskSource[TextTask]:
    """The source that `env.tasks` names. Raises ConfigError, or TaskError for wrong files."""
    if config.tasks == LENGTH:
        from clawrl_gym.envs.text.length import length_tasks

        return length_tasks(config.lengths, config.heldout_lengths)
    raise ConfigError(f"got env.tasks={config.tasks!r}, expected {LENGTH!r}")
