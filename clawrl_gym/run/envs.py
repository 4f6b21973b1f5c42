"""Whether a run's environments can be made here: asked before anything else is started."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import gymnasium

from clawrl_gym.config import AgentConfig, EnvConfig, EvaluateConfig, RunConfig
from clawrl_gym.core.errors import ConfigError, EnvError, boundary
from clawrl_gym.core.plugins import ENVIRONMENTS
from clawrl_gym.rollout import probe
from clawrl_gym.rollout.worker import build_agent

C = TypeVar("C", RunConfig, EvaluateConfig)


def settle(config: C, say: Callable[[str], None]) -> C:
    """The command with what its environment takes of this machine decided, before tasks are drawn.

    Raises ConfigError or EnvError where no choice works here.
    """
    return config.model_copy(update={"env": config.env.settled(say)})


def check_agent(config: AgentConfig, env: EnvConfig) -> None:
    """Make the agent once, as workers will. Raises ConfigError."""
    if config.type != "harness":
        build_agent(config, env)


def check_env(config: EnvConfig, say: Callable[[str], None], *, patient: bool = True) -> bool:
    """Make what all tasks share, such as images; then start one episode.

    An environment of others plays a step of each split (see `probe`). Of ours, where episodes need
    nothing of this machine there is nothing to find out that way. Not `patient`: what takes minutes
    is not made and `say` tells what it is; False then, to be called again.
    """
    with boundary(ConfigError, f"env={config.type} cannot be made"):
        env = config.make()
    if not isinstance(env, gymnasium.Env):
        raise ConfigError(
            f"env={config.type} made a {type(env).__name__}, expected a gymnasium.Env"
        )
    try:
        missing = None if patient else config.long_preparation()
        if missing is not None:
            say(missing)
            return False
        config.prepare(say)
        if _is_foreign(config):
            probe.check(config, _name_of(config), say)
        elif config.starts_here:
            with boundary(EnvError, f"env={config.type} cannot start an episode"):
                env.reset(seed=0)
    finally:
        env.close()
    return True


def _is_foreign(config: EnvConfig) -> bool:
    """Whether nobody here knows that it keeps the contract."""
    return config.type == "gym" or config.type not in ENVIRONMENTS.builtin


def _name_of(config: EnvConfig) -> str:
    """As the command line names it."""
    for key in ("target", "id"):
        value = getattr(config, key, None)
        if value is not None:
            return f"env.{key}={value}"
    return f"env={config.type}"
