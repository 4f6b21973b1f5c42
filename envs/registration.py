"""Environment ids: ours, those of installed plug-ins, and any import path.

Everything is resolved from strings, so a Ray worker on another machine finds an environment
without anything that the driver had registered.
"""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from clawrl_gym.core.errors import ConfigError

ENTRY_POINT_GROUP = "clawrl_gym.envs"
"""Entry points `Name-v0 = "pkg.mod:EnvClass"` of this group are registered under their name."""

CONVERSATION_ENV_ID = "ClawRL/Conversation-v0"
GUI_ENV_ID = "ClawRL/Gui-v0"
SWE_ENV_ID = "ClawRL/SWE-v0"
TERMINAL_ENV_ID = "ClawRL/Terminal-v0"
TOOLCALL_ENV_ID = "ClawRL/ToolCall-v0"

_BUILTIN = {
    CONVERSATION_ENV_ID: "clawrl_gym.envs.conversation.env:ConversationEnv",
    GUI_ENV_ID: "clawrl_gym.envs.gui.env:GuiEnv",
    SWE_ENV_ID: "clawrl_gym.envs.swe.env:SweEnv",
    TERMINAL_ENV_ID: "clawrl_gym.envs.terminal.env:TerminalEnv",
    TOOLCALL_ENV_ID: "clawrl_gym.envs.toolcall.env:ToolCallEnv",
}


def register_builtin_envs() -> None:
    """Register our ids. Shell output is not bit-exact, hence `nondeterministic` stays False only
    because observations leave out everything that varies (times, pids, host names)."""
    for env_id, entry_point in _BUILTIN.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(env_id, entry_point=entry_point, disable_env_checker=True)


def register_plugin_envs() -> None:
    """Register the environments of installed packages (entry-point group `clawrl_gym.envs`)."""
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        if entry.name not in gymnasium.registry:
            gymnasium.register(entry.name, entry_point=entry.value, disable_env_checker=True)


def load_target(target: str) -> Any:
    """The object at `pkg.mod:Name`.

    Raises ConfigError naming what is missing: the colon, the module or the attribute.
    """
    module_name, colon, name = target.partition(":")
    if not colon or not module_name or not name:
        raise ConfigError(f"got env.target={target!r}, expected 'package.module:ClassName'")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(
            f"cannot import {module_name!r} of env.target={target!r}: {error}; "
            "install the package or put its folder on PYTHONPATH"
        ) from error
    try:
        return getattr(module, name)
    except AttributeError:
        raise ConfigError(
            f"module {module_name!r} has no {name!r} (env.target={target!r})"
        ) from None


def make_env(
    env_id: str | None, target: str | None, kwargs: dict[str, Any]
) -> gymnasium.Env[Any, Any]:
    """Build an environment from its id (`Name-v0` or `module:Name-v0`) or its import path."""
    if target is not None:
        built = load_target(target)(**kwargs)
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
            f"{sorted(_BUILTIN)}; for your own class use env.target=package.module:ClassName"
        ) from error
    except ModuleNotFoundError as error:
        raise ConfigError(f"cannot import the module of env.id={env_id!r}: {error}") from error


def builtin_specs() -> list[EnvSpec]:
    """The specs of the environments this package ships."""
    register_builtin_envs()
    return [gymnasium.registry[env_id] for env_id in sorted(_BUILTIN)]
