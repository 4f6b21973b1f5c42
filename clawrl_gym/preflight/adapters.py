"""The way of trained weights to the engines: as weights, or as adapters beside frozen ones."""

from __future__ import annotations

from collections.abc import Iterator

from clawrl_gym.config import AdapterConfig, CommandConfig, ServeConfig
from clawrl_gym.inference.device import Device
from clawrl_gym.inference.engine_classes import engine_class
from clawrl_gym.trainers.capabilities import capabilities_of


def served_adapter(
    config: CommandConfig, device: Device, *, sees: bool = False, has_users: bool = False
) -> AdapterConfig | None:
    """The form of the adapters that engines serve; None: merged or full weights are served.

    `sees`: the model reads pictures. `has_users`: some have adapters of their own.
    """
    adapter, serve = config.learner.adapter, config.policy.serve
    if adapter is None or serve == "weights" or any(_hindrances(config, sees=sees)):
        return None
    is_better = device == "cuda" or has_users
    return adapter if serve == "adapters" or is_better else None


def serving_problems(config: CommandConfig, *, sees: bool = False) -> Iterator[str]:
    """Why adapters, where they are asked for, cannot be served."""
    if config.policy.serve != "adapters":
        return
    if config.learner.adapter is None:
        yield (
            "got policy.serve=adapters with a learner that trains all weights, expected one with "
            "an adapter: learner=lora, or policy.serve=auto"
        )
    for hindrance in _hindrances(config, sees=sees):
        yield f"got policy.serve=adapters with {hindrance}; or take policy.serve=weights"


def _hindrances(config: CommandConfig, *, sees: bool) -> Iterator[str]:
    adapter, able = config.learner.adapter, capabilities_of(config.learner)
    named = f"learner.backend={config.learner.backend}"
    engine = engine_class(config.policy)
    ranks = engine.capabilities.adapter_ranks
    if not ranks:
        yield (
            f"policy.engine={config.policy.engine}, which has no adapter_ranks: expected one that "
            "serves adapters, such as policy.engine=vllm"
        )
    if not able.adapters:
        yield f"{named}, expected a learner that has an adapter: learner=lora"
    elif isinstance(config, ServeConfig) and not able.users:
        yield (
            f"{named}, expected a learner with the capability `users`: where adapters are served, "
            "each user has one of their own"
        )
    if config.policy.placement == "nodes":
        yield (
            "policy.placement=nodes, expected policy.placement=driver: engines on other nodes are "
            "sent weights alone"
        )
    if ranks and adapter is not None and adapter.rank > ranks[-1]:
        yield (
            f"learner.adapter.rank={adapter.rank}, expected at most {ranks[-1]}, the largest of "
            f"{engine.label}"
        )
    if sees:
        yield (
            f"policy.model={config.policy.model!r}, which sees, expected a model of text: no "
            "adapter of a vision part is served"
        )
