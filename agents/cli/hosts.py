"""Which environments can hold an agent, and the room that it takes of their sandboxes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict

from clawrl_gym.agents.cli.recipes import RECIPES
from clawrl_gym.config import AgentConfig, EnvConfig
from clawrl_gym.config.envs import SandboxConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.plugins import SANDBOXES


def check_host(env: EnvConfig) -> None:
    """Raises ConfigError where no agent can work inside the environment's sandbox."""
    sandbox = getattr(env, "sandbox", None)
    if not env.hosts_agents or not isinstance(sandbox, SandboxConfig):
        raise ConfigError(
            f"got agent=cli with env={env.type}, expected an environment whose sandbox can hold an "
            "agent: env=terminal or env=swe"
        )
    if sandbox.type in SANDBOXES.words:
        return
    SANDBOXES.require(sandbox.type, {"agents": "agent=cli works inside it"})
    if sandbox.type == "docker" and os.geteuid() != 0:
        raise ConfigError(
            "got agent=cli with env.sandbox.type=docker, expected root: only root reaches a "
            "container's network from outside; run as root, or take env.sandbox.type=bubblewrap"
        )


def with_room(env: EnvConfig, agent: AgentConfig, say: Callable[[str], None]) -> EnvConfig:
    """The environment with sandboxes large enough for the agent."""
    sandbox = getattr(env, "sandbox", None)
    if agent.name is None or not isinstance(sandbox, SandboxConfig):
        return env
    least = asdict(RECIPES[agent.name].room)
    raised = {name: most for name, most in least.items() if getattr(sandbox, name) < most}
    if not raised:
        return env
    limits = ", ".join(f"{name}={value}" for name, value in raised.items())
    say(f"agent.name={agent.name}: its sandboxes get {limits}")
    return env.model_copy(update={"sandbox": sandbox.model_copy(update=raised)})
