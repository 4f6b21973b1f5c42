"""Where tasks in text come from: shipped grounds, the package reasoning-gym."""

from __future__ import annotations

from clawrl_gym.envs.task_source import TaskSource
from clawrl_gym.envs.text.config import TextEnvConfig
from clawrl_gym.envs.text.task import TextTask


def open_source(config: TextEnvConfig) -> TaskSource[TextTask]:
    """The source that `env.tasks` names. Raises ConfigError."""
    if config.tasks == "length":
        from clawrl_gym.envs.text.length import length_tasks

        return length_tasks(config.lengths, config.heldout_lengths)
    if config.tasks == "format":
        from clawrl_gym.envs.text.formats import format_tasks

        return format_tasks(config.families)
    if config.tasks == "reverse_text":
        from clawrl_gym.envs.text.reverse import reverse_tasks

        return reverse_tasks(config.families)
    from clawrl_gym.envs.text.reasoning import reasoning_tasks

    return reasoning_tasks(config.families, config.family_options, config.system_prompt)
