"""Environment ids: ours, those of installed plug-ins, and any import path.

Everything is resolved from strings, so a Ray worker on another machine finds an environment
without anything that the driver had registered.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.metadata import entry_points

import gymnasium
from gymnasium.envs.registration import EnvSpec

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.plugins import ENVIRONMENTS, load

_KINDS = tuple(
    path.partition(":")[0].removesuffix(".config")
    for name, path in ENVIRONMENTS.builtin.items()
    if name != "gym"
)
"""The packages of the kinds that this package ships, each with its Gymnasium id and class."""


def register_builtin_envs() -> None:
    """Register our ids. Shell output is not bit-exact, hence `nondeterministic` stays False only
    because observations leave out everything that varies (times, pids, host names)."""
    for package in _KINDS:
        kind = importlib.import_module(package)
        if kind.GYM_ID not in gymnasium.registry:
            gymnasium.register(kind.GYM_ID, entry_point=kind.GYM_CLASS, disable_env_checker=True)


def register_plugin_envs() -> None:
    """Register the environments of installed packages.

    Entry points `Name-v0 = "pkg.mod:EnvClass"` of the group `clawrl_gym.envs` are registered under
    their names. A kind with a configuration of its own stands there too, under a plain name.
    """
    for entry in entry_points(group=ENVIRONMENTS.group):
        if entry.name not in gymnasium.registry:
            gymnasium.register(entry.name, entry_point=entry.value, disable_env_checker=True)


def make_env(
    env_id: str | None, target: str | None, kwargs: Mapping[str, object]
) -> gymnasium.Env[str, str]:
    """Build an environment from its id (`Name-v0` or `module:Name-v0`) or its import path."""
    if target is not None:
        made = load(target, f"env.target={target!r}")
        try:
            built = made(**kwargs)
        except SystemExit as error:
            raise ConfigError(f"env.target={target!r} raised SystemExit({error})") from error
        if not isinstance(built, gymnasium.Env):
            raise ConfigError(
                f"env.target={target!r} made a {type(built).__name__}, expected a gymnasium.Env"
            )
        return built
    if env_id is None:
        raise ConfigError("got neither env.id nor env.target, expected one of them")
    register_builtin_envs()
    register_plugin_envs()
    try:
        return gymnasium.make(env_id, disable_env_checker=True, **kwargs)
    except gymnasium.error.UnregisteredEnv as error:
        raise ConfigError(
            f"no environment is registered as {env_id!r} ({error}); known ids of ours: "
            f"{_our_ids()}; for your own class use env.target=package.module:ClassName"
        ) from error
    except ModuleNotFoundError as error:
        raise ConfigError(f"cannot import the module of env.id={env_id!r}: {error}") from error


def builtin_specs() -> list[EnvSpec]:
    """The specs of the environments this package ships."""
    register_builtin_envs()
    return [gymnasium.registry[env_id] for env_id in _our_ids()]


def _our_ids() -> list[str]:
    return sorted(importlib.import_module(package).GYM_ID for package in _KINDS)
