"""Where engines and learner go on a cluster: by custom resources, else by GPUs.

Nodes are as `ray.nodes()` has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clawrl_gym.core.errors import ConfigError

ENGINE = "engine"
"""The custom resource of nodes that take engines, as many as it says."""
LEARNER = "learner"
"""The custom resource of nodes that take a learner of their own."""
_GPU = "GPU"
_BESIDE_SHARE = 0.1
"""Of a GPU, for Ray's count: what a learner beside an engine takes."""


@dataclass(frozen=True, slots=True)
class EngineNeeds:
    """What an engine takes of a node."""

    resources: dict[str, float]
    gpus: float


def needs_of_engines(
    count: int, nodes: Sequence[dict[str, Any]], *, learner_beside: bool = False
) -> EngineNeeds:
    """How engines are placed on these nodes. Raises ConfigError when they do not fit."""
    share = 1 - _BESIDE_SHARE if learner_beside else 1.0
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


def beside(node_id: str, nodes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Ray's options for a learner on the node of an engine."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    has_gpu = any(node["NodeID"] == node_id and node["Resources"].get(_GPU) for node in nodes)
    return {
        "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False),
        "num_gpus": _BESIDE_SHARE if has_gpu else 0,
    }


def apart(nodes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Ray's options for a learner on a node of its own. Raises ConfigError when there is none."""
    living = [node for node in nodes if node["Alive"]]
    own = [node for node in living if node["Resources"].get(LEARNER)]
    if own:
        have_gpus = all(node["Resources"].get(_GPU) for node in own)
        return {"resources": {LEARNER: 1.0}, "num_gpus": 1 if have_gpus else 0}
    if any(node["Resources"].get(_GPU) for node in living):
        return {"num_gpus": 1}
    offers = "; ".join(_offer(node) for node in living)
    raise ConfigError(
        f"got learner.placement=apart, and no node of the cluster has the resource `{LEARNER}` or "
        f"a GPU ({offers}): join a machine with `ray start --address=... "
        f"--resources='{{\"{LEARNER}\": 1}}'`, or take learner.placement=driver or beside"
    )
