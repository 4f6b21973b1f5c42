"""Whether a run's environments can be made here: asked before anything else is started."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import gymnasium

from clawrl_gym.config import AgentConfig, EnvConfig, EvaluateConfig, RunConfig
from clawrl_gym.core.errors import ConfigError, EnvError, boundary
from clawrl_gym.rollout.worker import build_agent
from clawrl_gym.run.others import OtherEnv, other_envs

C = TypeVar("C", RunConfig, EvaluateConfig)


def settle(config: C, say: Callable[[str], None]) -> C:
    """The command with what its environment takes of this machine decided, before tasks are drawn.

    Raises ConfigError or EnvError where no choice works here.
    """
    return config.model_copy(update={"env": config.env.settled(say)})


def check_envs(config: RunConfig, say: Callable[[str], None]) -> list[OtherEnv]:
    """Prepare the run's environment and those that are only measured, which are returned.

    Raises ConfigError for what cannot be made, EnvError for what cannot be isolated here.
    """
    measured = other_envs(config, say)
    for env_config in (config.env, *(env.config for env in measured)):
        check_env(env_config, say)
    return measured


def check_agent(config: AgentConfig, env: EnvConfig) -> None:
    """Make the agent once, as workers will. Raises ConfigError."""
    if config.type != "harness":
        build_agent(config, env)


def check_env(config: EnvConfig, say: Callable[[str], None]) -> None:
    """Make what all tasks share, such as images; then start one episode.

    Where episodes need nothing of this machine there is nothing to find out that way.
    """
    with boundary(ConfigError, f"env={config.type} cannot be made"):
        env = config.make()
    if not isinstance(env, gymnasium.Env):
        raise ConfigError(
            f"env={config.type} made a {type(env).__name__}, expected a gymnasium.Env"
        )
    try:
        config.prepare(say)
        if config.starts_here:
            with boundary(EnvError, f"env={config.type} cannot start an episode"):
                env.reset(seed=0)
    finally:
        env.close()
