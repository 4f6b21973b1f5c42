"""Where engines and learner go on a cluster: by custom resources, else by GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clawrl_gym.core.errors import ConfigError

ENGINE = "engine"
"""The custom resource of nodes that take engines, as many as it says."""
_GPU = "GPU"


@dataclass(frozen=True, slots=True)
class EngineNeeds:
    """What an engine takes of a node."""

    resources: dict[str, float]
    gpus: float


def needs_of_engines(count: int, nodes: Sequence[dict[str, Any]], share: float) -> EngineNeeds:
    """How engines are placed on these nodes (as `ray.nodes()` has them).

    `share`: the part of a GPU that each takes. Raises ConfigError when they do not fit.
    """
    living = [node for node in nodes if node["Alive"]]
    room = {
        name: sum(int(node["Resources"].get(name, 0)) for node in living) for name in (ENGINE, _GPU)
    }
    name = ENGINE if room[ENGINE] else _GPU
    if room[name] < count:
        offers = "; ".join(_offer(node) for node in living)
        raise ConfigError(
            f"got policy.servers={count}, and the cluster's nodes have room for {room[name]} "
            f"({offers}), expected a GPU or the resource `{ENGINE}` for each: join a machine with "
            f"`ray start --address=... --resources='{{\"{ENGINE}\": 1}}'`, or lower policy.servers"
        )
    hosts = [node["Resources"] for node in living if node["Resources"].get(name)]
    have_gpus = all(resources.get(_GPU) for resources in hosts)
    return EngineNeeds({ENGINE: 1.0} if name == ENGINE else {}, share if have_gpus else 0.0)


def _offer(node: dict[str, Any]) -> str:
    resources = {
        name: f"{amount:g}"
        for name, amount in sorted(node["Resources"].items())
        if not name.startswith("node:") and name not in ("memory", "object_store_memory")
    }
    listed = ", ".join(f"{name} {amount}" for name, amount in resources.items())
    return f"{node['NodeManagerAddress']}: {listed or 'nothing'}"
