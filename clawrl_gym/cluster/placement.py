"""Where engines and learner go: on a cluster by custom resources, else by GPUs; on one machine with
two GPUs or more, if they shall be apart, the learner has the last one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clawrl_gym.cluster.nodes import Node, placed_on
from clawrl_gym.config import CommandConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.inference.device import Device, visible_gpus

ENGINE = "engine"
"""The custom resource of nodes that take engines, as many as it says."""
LEARNER = "learner"
"""The custom resource of nodes that take a learner of their own."""
_GPU = "GPU"
_BESIDE_SHARE = 0.1
"""Share of a GPU in Ray's count for a learner beside an engine."""


@dataclass(frozen=True, slots=True)
class EngineNeeds:
    """Resources of a node for an engine."""

    resources: dict[str, float]
    gpus: float


@dataclass(frozen=True, slots=True)
class OwnGpus:
    """Division of one machine's GPUs."""

    engines: tuple[str, ...] | None = None
    """GPUs of the engines; None: whatever there is."""
    learner: str | None = None
    """GPU of the learner; None: it is beside an engine."""


def own_gpus(config: CommandConfig, device: Device) -> OwnGpus:
    """Divide this machine's GPUs. Raises ConfigError where there are too few to be apart."""
    if not is_apart_here(config):
        return OwnGpus()
    gpus = visible_gpus() if device == "cuda" else []
    if len(gpus) < 2:
        raise ConfigError(
            f"got learner.placement=apart and {len(gpus) or 'no'} GPU of this machine (policy."
            f"device={config.policy.device}), expected two, one for the engine and one for the "
            "learner: take learner.placement=driver, or ray.address of a cluster that has another "
            "machine"
        )
    return OwnGpus(tuple(gpus[:-1]), gpus[-1])


def is_apart_here(config: CommandConfig) -> bool:
    """Whether engines and learner have GPUs of their own in one machine."""
    return config.learner.placement == "apart" and not config.ray.is_joined


def needs_of_engines(
    count: int, nodes: Sequence[Node], *, learner_beside: bool = False
) -> EngineNeeds:
    """Resources for engines on these nodes. Raises ConfigError when they do not fit."""
    resource = ENGINE if any(node.has(ENGINE) for node in nodes) else _GPU
    hosts = engine_hosts(nodes)
    room = sum(int(node.resources[resource]) for node in hosts)
    if room < count:
        raise ConfigError(
            f"got policy.servers={count}, and the cluster's nodes have room for {room} "
            f"({_words(nodes)}), expected a GPU or the resource `{ENGINE}` for each: join a "
            f"machine with `python -m clawrl_gym.node --address=HOST:PORT --{ENGINE}=1`, or lower "
            "policy.servers"
        )
    share = 1 - _BESIDE_SHARE if learner_beside else 1.0
    have_gpus = all(node.has(_GPU) for node in hosts)
    return EngineNeeds({ENGINE: 1.0} if resource == ENGINE else {}, share if have_gpus else 0.0)


def engine_hosts(nodes: Sequence[Node]) -> list[Node]:
    """Nodes that offer themselves to engines; where none does, those with a GPU."""
    return [node for node in nodes if node.has(ENGINE)] or [n for n in nodes if n.has(_GPU)]


def beside(node_id: str, nodes: Sequence[Node]) -> dict[str, Any]:
    """Ray's options for a learner on the node of an engine."""
    has_gpu = any(node.id == node_id and node.has(_GPU) for node in nodes)
    return {**placed_on(node_id), "num_gpus": _BESIDE_SHARE if has_gpu else 0}


def apart(nodes: Sequence[Node]) -> dict[str, Any]:
    """Ray's options for a learner on a node of its own. Raises ConfigError when there is none."""
    own = [node for node in nodes if node.has(LEARNER)]
    if own:
        have_gpus = all(node.has(_GPU) for node in own)
        return {"resources": {LEARNER: 1.0}, "num_gpus": 1 if have_gpus else 0}
    if any(node.has(_GPU) for node in nodes):
        return {"num_gpus": 1}
    raise ConfigError(
        f"got learner.placement=apart, and no node of the cluster has the resource `{LEARNER}` or "
        f"a GPU ({_words(nodes)}): join a machine with `python -m clawrl_gym.node "
        f"--address=HOST:PORT --{LEARNER}=1`, or take learner.placement=driver or beside"
    )


def _words(nodes: Sequence[Node]) -> str:
    return "; ".join(node.words() for node in nodes)
