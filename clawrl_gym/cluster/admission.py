"""Whether a node of a cluster can hold a run's environments, found out on the node itself.

The versions of what runs there are compared first; then the files of tasks are brought, once for
each node and by their content; then one episode is started, as the preflight does on one machine.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from clawrl_gym.cluster import machine
from clawrl_gym.cluster.envs import check_env
from clawrl_gym.cluster.nodes import Node, answer_of, placed_on
from clawrl_gym.config import EnvConfig
from clawrl_gym.core.errors import ConfigError, EnvError
from clawrl_gym.core.files.archive import Archive, cache_folder, pack, unpack
from clawrl_gym.rollout.episodes.stage import Stages

_DESCRIBE_S = 90.0
"""A node's first process has to start for it, and to fetch modules."""
_PREPARE_S = 1800.0
"""Images may have to be made."""
_CLOCK_S = 5.0
"""Seconds that a clock may differ before people are told."""


class Admission:
    """Admits nodes for all environments of a run."""

    def __init__(self, stages: Stages, say: Callable[[str], None]) -> None:
        self._stages = stages
        self._tasks = {name: _SentTasks(stage.env) for name, stage in stages.items()}
        self._say = say

    async def admit(self, node: Node) -> Stages:
        """The environments as the node has them. Raises ClawError when it cannot be used."""
        await compare_machine(node, self._say)
        return {
            name: replace(stage, env=await self._prepared(node, self._tasks[name]))
            for name, stage in self._stages.items()
        }

    async def _prepared(self, node: Node, sent: _SentTasks) -> EnvConfig:
        archives = await sent.archives()
        task = _task(prepare, node, max_retries=0)
        prepared: tuple[EnvConfig, list[str]] = await answer_of(
            task.remote(sent.env, [*archives], *archives.values()), _PREPARE_S
        )
        for note in prepared[1]:
            self._say(f"node {node.label}: {note}")
        return prepared[0]


class _SentTasks:
    """The files of an environment's tasks, packed once for all nodes."""

    def __init__(self, env: EnvConfig) -> None:
        self.env = env
        self._archives: dict[str, Any] | None = None
        """References by the key that each is the value of."""
        self._packing = asyncio.Lock()

    async def archives(self) -> dict[str, Any]:
        import ray

        async with self._packing:
            if self._archives is None:
                packed = await asyncio.to_thread(archives_of, self.env)
                self._archives = {key: ray.put(archive) for key, archive in packed.items()}
        return self._archives


async def compare_machine(node: Node, say: Callable[[str], None]) -> None:
    """Versions, which must be the same (ConfigError), and clocks, which are only reported."""
    import ray

    ray.cloudpickle.register_pickle_by_value(machine)  # it may be that nothing of ours is there
    try:
        began_s = time.time()
        answer = _task(machine.describe, node).remote()
    finally:
        ray.cloudpickle.unregister_pickle_by_value(machine)
    there = await answer_of(answer, _DESCRIBE_S)
    took_s = time.time() - began_s
    check_versions(there["versions"], await asyncio.to_thread(_versions_here))
    if (line := clock_line(there["time_s"], began_s, took_s)) is not None:
        say(f"node {node.label}: {line}")


@functools.cache
def _versions_here() -> dict[str, str]:
    return machine.describe()["versions"]


def check_versions(there: dict[str, str], here: dict[str, str]) -> None:
    """Raise ConfigError when something is another version there."""
    others = [name for name, version in here.items() if there.get(name) != version]
    if others:
        got = ", ".join(f"{name} {there.get(name)}" for name in others)
        expected = ", ".join(f"{name} {here[name]}" for name in others)
        raise ConfigError(
            f"it has {got}, expected {expected}, as on this machine: install the same"
        )


def clock_line(there_s: float, began_s: float, took_s: float) -> str | None:
    """A message about a clock that was read at some moment in between; None: it is right."""
    ahead_s = there_s - began_s
    if -_CLOCK_S < ahead_s < took_s + _CLOCK_S:
        return None
    off_s = ahead_s if ahead_s < 0 else ahead_s - took_s
    direction = "behind" if off_s < 0 else "ahead of"
    return (
        f"its clock is {abs(off_s):,.0f} s {direction} this machine's: times in its logs are "
        "wrong, deadlines are not; set it (timedatectl set-ntp true)"
    )


def archives_of(env: EnvConfig) -> dict[str, Archive]:
    """The files of its tasks on this machine, by the key that names them. Raises ConfigError."""
    named = {key: getattr(env, key) for key in env.task_keys}
    return {
        key: pack(path)
        for key, value in named.items()
        if isinstance(value, str) and value not in env.shipped_tasks
        if (path := Path(value).expanduser()).exists()
    }


def prepare(env: EnvConfig, keys: list[str], *archives: Archive) -> tuple[EnvConfig, list[str]]:
    """Prepare a node: the environment with its files here, proved by an episode's start; notes.

    Raises ConfigError or EnvError.
    """
    notes: list[str] = []
    try:
        cache = cache_folder("tasks")
        places = {key: str(unpack(p, cache)) for key, p in zip(keys, archives, strict=True)}
    except OSError as error:
        raise EnvError(f"the files of its tasks cannot be written here: {error}") from error
    env = env.model_copy(update=places)
    check_env(env, notes.append)
    return env, notes


def _task(function: Callable[..., object], node: Node, **options: object) -> Any:
    import ray

    return ray.remote(function).options(num_cpus=0, **placed_on(node.id), **options)
