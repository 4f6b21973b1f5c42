"""Engines by the name that `policy.engine` gives."""

from __future__ import annotations

from pydantic import BaseModel

from clawrl_gym.config import PolicyConfig
from clawrl_gym.core.plugins import ENGINES
from clawrl_gym.inference.engine import Engine, EngineSetup


def engine_class(config: PolicyConfig) -> type[Engine]:
    """The configured class. Raises ConfigError for one that is not there, or does not fit."""
    found: type[Engine] = ENGINES.resolve(config.engine).target
    return found


def engine_options(config: PolicyConfig) -> BaseModel | None:
    """Options of the configured class; None where it takes none. Raises ConfigError."""
    return ENGINES.resolve(config.engine).options(config.options)


def make_engine(setup: EngineSetup) -> Engine:
    """The configured one. Raises ConfigError when its class cannot make it."""
    engine: Engine = ENGINES.resolve(setup.config.engine).build(setup.config, plain=(setup,))
    return engine
