"""Shared parts of all actors of a cluster: messages about their ends, and plug-ins like ours."""

from __future__ import annotations

from collections.abc import Mapping

from clawrl_gym.cluster.nodes import answer_of
from clawrl_gym.core.plugins import check_fingerprints


async def compare_plugins(plugins: Mapping[str, str]) -> None:
    """Compare plug-ins in a process of the cluster. Raises ConfigError."""
    import ray

    await answer_of(ray.remote(num_cpus=0)(check_fingerprints).remote(plugins))


def why_ended(error: Exception) -> str:
    """Reason of an actor's end, as far as Ray knows."""
    if "running low on memory" in str(error):
        return ": Ray killed it, for the machine was low on memory"
    return ": it was killed, its memory was full, or its code crashed or called os._exit"


def last_line(error: Exception) -> str:
    """The error raised in the other process; the traceback before it is in its log."""
    return next((line for line in reversed(str(error).splitlines()) if line.strip()), repr(error))
