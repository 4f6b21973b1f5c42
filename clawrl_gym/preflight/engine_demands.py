"""Demands of a command on its engine; a class that lacks one is refused before a start."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from clawrl_gym.config import CommandConfig, EvaluateConfig, RunConfig, ServeConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.inference.capabilities import EngineCapabilities
from clawrl_gym.inference.engine import Engine
from clawrl_gym.inference.engine_classes import engine_class, engine_options

_MEANING = {
    "token_ids": "it samples from exact ids and tells those that it sampled",
    "logprobs": "it tells the log-prob of each sampled token",
    "weights": "it loads new weights while it serves and names the version of each token",
    "nodes": "it runs on other machines of a cluster",
}
_METHODS = {
    "weights": ("stage", "of_version", "switch", "settle", "renew"),
    "adapter_ranks": ("load_adapter",),
    "nodes": ("base_url", "client_at"),
}
"""Methods that a class must write itself when it declares a capability."""


def engine_problems(config: CommandConfig | EvaluateConfig) -> Iterator[str]:
    """Missing capabilities of the configured engine, a line for each demand of the command."""
    name, engine = config.policy.engine, engine_class(config.policy)
    yield from _unwritten(name, engine)
    try:
        engine_options(config.policy)
    except ConfigError as error:
        yield str(error)
    able = engine.capabilities
    if _learns(config):
        lacking = [one for one in _of_learning(config, able) if not getattr(able, one)]
        command = "train" if isinstance(config, RunConfig) else "serve with learn=true"
        if lacking:
            yield (
                f"got policy.engine={name}, which has no {_listed(lacking)}, expected for {command}"
                f" one that has: take policy.engine=vllm; {engine.label} can be measured "
                "(python -m clawrl_gym.evaluate) and served without learning (python -m "
                "clawrl_gym.serve learn=false)"
            )
    if config.policy.placement == "nodes" and not able.nodes:
        yield (
            f"got policy.placement=nodes with policy.engine={name}, which has no "
            f"{_listed(['nodes'])}: take policy.placement=driver, or policy.engine=vllm"
        )


def _learns(config: CommandConfig | EvaluateConfig) -> bool:
    return isinstance(config, RunConfig) or (isinstance(config, ServeConfig) and config.learn)


def _of_learning(
    config: CommandConfig | EvaluateConfig, able: EngineCapabilities
) -> tuple[str, ...]:
    """Capabilities for learning: log-probs to learn from, and a way to serve the result: as
    weights, unless adapters are asked for."""
    serves_adapters = config.policy.serve == "adapters" and able.adapter_ranks
    return ("token_ids", "logprobs") if serves_adapters else ("token_ids", "logprobs", "weights")


def _unwritten(name: str, engine: type[Engine]) -> Iterator[str]:
    """Capabilities that a class declares without the methods that they stand for."""
    for capability, methods in _METHODS.items():
        missing = [one for one in methods if _is_unwritten(engine, one)]
        if getattr(engine.capabilities, capability) and missing:
            yield (
                f"got policy.engine={name}, whose capabilities have {capability} and whose class "
                f"has no {', '.join(missing)} of its own, expected it to write them, or "
                f"EngineCapabilities without {capability}"
            )


def _is_unwritten(engine: type[Engine], method: str) -> bool:
    own = inspect.getattr_static(engine, method, None)
    return own is None or own is inspect.getattr_static(Engine, method)


def _listed(capabilities: list[str]) -> str:
    words = [f"{name} ({_MEANING[name]})" for name in capabilities]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and no {words[-1]}"
