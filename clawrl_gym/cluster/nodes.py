"""The nodes of a cluster that was joined: which live, what they have, what runs on which."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from clawrl_gym.core.errors import ClawError, ConfigError, EnvError

JOIN = "python -m clawrl_gym.node --address={address}"
"""Command with which a machine joins a cluster."""


@dataclass(frozen=True, slots=True)
class Node:
    """One machine of a cluster, as Ray knows it."""

    id: str
    address: str
    host: str
    resources: Mapping[str, float] = field(compare=False)
    """Resources by Ray's names: `CPU`, `GPU`, and those that its machine was joined with."""

    @property
    def label(self) -> str:
        """Its name for people."""
        return f"{self.host} ({self.address})"

    @property
    def cores(self) -> int:
        return int(self.resources.get("CPU", 0))

    def has(self, *resources: str) -> bool:
        """Whether it holds environments that need all of these; none: a core alone."""
        return all(self.resources.get(resource, 0) >= 1 for resource in resources or ("CPU",))

    def shares(self, resources: Collection[str], workers: int, slots: int) -> list[int]:
        """Environments of each of its workers: at most `workers`, at most one a core, of at most
        `slots`, and together no more than the node has of each resource."""
        workers = max(1, min(workers, self.cores))
        if not resources:
            return [slots] * workers
        room = int(min(self.resources[resource] for resource in resources))
        workers = min(workers, room)
        return [
            min(slots, room // workers + (number < room % workers)) for number in range(workers)
        ]

    def words(self) -> str:
        """Its resources in words, without Ray's internal ones."""
        counts = {
            name: count
            for name, count in sorted(self.resources.items())
            if name.islower() or name in ("CPU", "GPU")
            if name not in ("memory", "object_store_memory") and ":" not in name
        }
        return f"{self.label}: " + ", ".join(f"{name} {count:g}" for name, count in counts.items())


def living_nodes() -> tuple[Node, ...]:
    """Nodes of this process's cluster. Raises what Ray raises when its head is gone."""
    import ray

    return tuple(
        Node(row["NodeID"], row["NodeManagerAddress"], row["NodeManagerHostname"], row["Resources"])
        for row in ray.nodes()
        if row["Alive"]
    )


def own_node_id() -> str:
    """Ray's id of the node that this process runs on."""
    import ray

    return str(ray.get_runtime_context().get_node_id())


def placed_on(node_id: str | None) -> dict[str, Any]:
    """Options of an actor or a task that runs on this node alone; None: wherever there is room."""
    if node_id is None:
        return {}
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False)}


async def answer_of(answer: Awaitable[Any], limit_s: float | None = None) -> Any:
    """Another process's answer; an error of ours there is one here, in its own words."""
    import ray.exceptions

    try:
        async with asyncio.timeout(limit_s):
            return await answer
    except ray.exceptions.RayTaskError as error:
        if not isinstance(error.cause, ClawError):
            raise
        kind = ConfigError if isinstance(error.cause, ConfigError) else EnvError
        raise kind(str(error.cause)) from error
