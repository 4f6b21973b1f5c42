"""Whether a run's environments can be made here: asked before anything else is started."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import gymnasium

from clawrl_gym.agents.cli.hosts import check_host, with_room
from clawrl_gym.agents.cli.installation import guest_of
from clawrl_gym.config import AgentConfig, EnvConfig, EvaluateConfig, RunConfig
from clawrl_gym.core.errors import ConfigError, EnvError, boundary
from clawrl_gym.core.plugins import ENVIRONMENTS
from clawrl_gym.core.types import Split
from clawrl_gym.rollout import probe
from clawrl_gym.rollout.collection.worker import build_agent
from clawrl_gym.rollout.episodes.stage import Stage, Stages

C = TypeVar("C", RunConfig, EvaluateConfig)
_log = logging.getLogger(__name__)


def settle(config: C, say: Callable[[str], None]) -> C:
    """The command with what its environments take of this machine decided, before tasks are drawn.

    Raises ConfigError or EnvError where no choice works here.
    """
    if not isinstance(config, RunConfig) or not config.mixture:
        env = with_room(config.env.settled(say), config.agent, say)
        return config.model_copy(update={"env": env})
    mixture = {
        name: domain.model_copy(
            update={"env": with_room(domain.env.settled(say), domain.agent, say)}
        )
        for name, domain in config.mixture.items()
    }
    first = next(iter(mixture.values()))
    return config.model_copy(update={"env": first.env, "mixture": mixture})


def stages_of(config: RunConfig) -> Stages:
    """Stages of a run's episodes, by the names of its environments."""
    usual_s = config.rollout.episode_timeout_s
    return {
        name: Stage(
            domain.env, domain.agent, domain.episode_timeout_s or usual_s, domain.envs_per_worker
        )
        for name, domain in config.domains.items()
    }


def key_of(name: str) -> str:
    """Prefix of an environment's keys on the command line; empty for a run's only environment."""
    return f"mixture.{name}." if name else ""


def check_agent(config: AgentConfig, env: EnvConfig) -> None:
    """Make the agent once, as workers will. Raises ConfigError."""
    if config.type == "cli":
        check_host(env)
        guest_of(config, _log.info)
    elif not config.is_program:
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
                env.reset(seed=0, options={"split": _any_split(config)})
    finally:
        env.close()
    return True


def _any_split(config: EnvConfig) -> Split:
    """One that has tasks: training's unless all are held out."""
    ids = config.task_ids("train")
    return "train" if ids is None or ids else "heldout"


def _is_foreign(config: EnvConfig) -> bool:
    """Whether nobody here knows that it keeps the contract."""
    return config.type == "gym" or config.type not in ENVIRONMENTS.builtin


def _name_of(config: EnvConfig) -> str:
    """Its name on the command line."""
    for key in ("target", "id"):
        value = getattr(config, key, None)
        if value is not None:
            return f"env.{key}={value}"
    return f"env={config.type}"
