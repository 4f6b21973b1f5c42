"""Whether a run's environments can be made here: asked before anything else is started."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import gymnasium
from gymnasium import spaces

from clawrl_gym.config import AgentConfig, EnvConfig, EvaluateConfig, RunConfig
from clawrl_gym.core.errors import ConfigError, EnvError, boundary
from clawrl_gym.rollout.worker import build_agent

C = TypeVar("C", RunConfig, EvaluateConfig)
_NO_TEXT = (
    spaces.Box, spaces.Dict, spaces.Discrete, spaces.Graph, spaces.MultiBinary,
    spaces.MultiDiscrete, spaces.OneOf, spaces.Sequence, spaces.Tuple,
)  # fmt: skip


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

    Where episodes need nothing of this machine there is nothing to find out that way. Not
    `patient`: what takes minutes is not made and `say` tells what it is; False then, to be called
    again.
    """
    with boundary(ConfigError, f"env={config.type} cannot be made"):
        env = config.make()
    if not isinstance(env, gymnasium.Env):
        raise ConfigError(
            f"env={config.type} made a {type(env).__name__}, expected a gymnasium.Env"
        )
    try:
        _check_spaces(env, config.type)
        missing = None if patient else config.long_preparation()
        if missing is not None:
            say(missing)
            return False
        config.prepare(say)
        if config.starts_here:
            with boundary(EnvError, f"env={config.type} cannot start an episode"):
                env.reset(seed=0)
    finally:
        env.close()
    return True


def _check_spaces(env: gymnasium.Env[str, str], name: str) -> None:
    """Raises ConfigError for an environment whose observations or actions are no text."""
    for kind in ("observation", "action"):
        space = getattr(env, f"{kind}_space", None)
        if isinstance(space, _NO_TEXT):
            raise ConfigError(
                f"env={name} has the {kind} space {space!r:.100}, expected one of text: wrap it in "
                "an environment that says in words what is seen and reads what is done"
            )
