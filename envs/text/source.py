"""Where tasks in text come from: shipped grounds, the package reasoning-gym, a user's file."""

from __future__ import annotations

from clawrl_gym.envs.task_source import TaskSource
from clawrl_gym.envs.text.config import TextEnvConfig
from clawrl_gym.envs.text.task import TextTask


def open_source(config: TextEnvConfig) -> TaskSource[TextTask]:
    """The source that `env.tasks` names. Raises ConfigError, or TaskError for wrong files."""
    if config.tasks == "length":
        from clawrl_gym.envs.text.length import length_tasks

        return length_tasks(config.lengths, config.heldout_lengths)
    if config.tasks == "format":
        from clawrl_gym.envs.text.formats import format_tasks

        return format_tasks(config.families)
    if config.tasks == "reverse_text":
        from clawrl_gym.envs.text.reverse import reverse_tasks

        return reverse_tasks(config.families)
    if config.tasks == "reasoning_gym":
        from clawrl_gym.envs.text.reasoning import reasoning_tasks

        return reasoning_tasks(config.families, config.family_options, config.system_prompt)
    from clawrl_gym.envs.text.task_file import open_file

    return open_file(config.tasks, config.grader or "")
