"""Memory and disk of a run, estimated from the model's shape.

A run is refused only when it cannot fit whatever a batch holds: weights, gradients, the optimizer's
state, one context's keys and values, and the processes themselves. Activations come on top: where
those of a full pack do not fit, a note says so, with what to set.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.config import CommandConfig, EvaluateConfig, LearnerConfig, PolicyConfig
from clawrl_gym.core import provenance
from clawrl_gym.inference.device import Device
from clawrl_gym.inference.engine_classes import engine_class
from clawrl_gym.inference.models.memory import EngineMemory, engine_memory
from clawrl_gym.inference.models.shape import ModelShape
from clawrl_gym.inference.weights.adapters import adapter_slots
from clawrl_gym.preflight.adapters import served_adapter
from clawrl_gym.run_folder.folder import MIN_FREE_BYTES, free_bytes
from clawrl_gym.trainers.capabilities import capabilities_of
from clawrl_gym.trainers.models.memory import (
    LearnerMemory,
    adam_bytes,
    adapter_parameters,
    learner_memory,
    offloaded_gib,
)

GIB = 2**30
_WEIGHT_BYTES = 4
"""Bytes of a parameter in a checkpoint; in the newest Adam's two moments are beside it."""
_SERVER_GIB = 1.1
"""GiB of an engine's processes, without weights and cache; measured with the tiny policy on CPU."""
_LEARNER_GIB = 0.8
LEARNER_ON_GPU_GIB = 0.6
"""CUDA's own of the learner's process, and what its allocator cannot use; not measured here."""
_BASE_GIB = 0.8
"""The command itself, Ray, and a worker with small environments."""
_RECORDS_GIB = 0.5
"""Database, logs, films and report."""


@dataclass(frozen=True, slots=True)
class Requirements:
    """Memory and disk of one run, in GiB."""

    host_memory: float
    """Main memory in GiB: on a CPU all but activations, beside a GPU what stays there."""
    engine: EngineMemory
    """Memory of each engine."""
    learner: LearnerMemory
    """All zero where nothing is learned."""
    disk: float


def requirements_of(
    config: CommandConfig | EvaluateConfig, shape: ModelShape, device: Device, users: int = 0
) -> Requirements:
    """Needs of this configuration with a model of this shape, for so many users beside the
    owner."""
    policy = config.policy
    adapters = _served_adapter_parameters(config, shape, device, users)
    engine = engine_memory(policy, shape, device, adapters)
    learner, offloaded, disk = LearnerMemory(), 0.0, _RECORDS_GIB
    if isinstance(config, CommandConfig) and learns(config):
        learner = learner_memory(
            config.trainer, config.learner, shape, device, policy.max_model_len
        )
        offloaded = offloaded_gib(config.learner, shape)
        disk += _checkpoint_bytes(config.learner, shape) / GIB + 2 * engine.weights
    host = _BASE_GIB + policy.servers * _SERVER_GIB + offloaded
    host += _LEARNER_GIB if learner.total else 0.0
    if device == "cpu":
        host += policy.servers * engine.total + learner.resident
    return Requirements(host, engine, learner, disk)


def learns(config: CommandConfig) -> bool:
    """Whether a learner has a model on this run's machines."""
    able = capabilities_of(config.learner)
    return not (able.rehearses or able.remote) and bool(getattr(config, "learn", True))


def memory_problems(
    needs: Requirements,
    policy: PolicyConfig,
    available_gib: float,
    gpu_gib: float | None,
    *,
    is_apart: bool = False,
) -> Iterator[str]:
    """Needs that do not fit. `gpu_gib`: memory of the device, None where it is not known.
    `is_apart`: the learner has another one for itself."""
    if needs.host_memory > available_gib:
        yield (
            f"got {available_gib:.1f} GiB of free memory, expected at least "
            f"{needs.host_memory:.1f} GiB for policy.model={policy.model!r} (weights, optimizer, "
            "cache and processes): take a smaller model such as policy=tiny, a smaller "
            "policy.kv_cache_gb, or a machine with a GPU"
        )
    if gpu_gib is None:
        return
    share, engine, learner = policy.gpu_memory_utilization, needs.engine, needs.learner
    if engine.total > share * gpu_gib:
        yield (
            f"got policy.gpu_memory_utilization={share:g} of {gpu_gib:.0f} GiB, expected at least "
            f"{engine.total:.1f} GiB for vLLM with policy.model={policy.model!r}: weights "
            f"{engine.weights:.1f}, one context of policy.max_model_len={policy.max_model_len} "
            f"tokens {engine.kv_cache:.1f}, its own {engine.working:.1f}: give vLLM a larger "
            "share, a shorter context, or take a smaller model"
        )
    room = gpu_gib if is_apart else (1 - share) * gpu_gib
    if learner.resident > room:
        of = f" (what policy.gpu_memory_utilization={share:g} leaves of {gpu_gib:.0f})"
        yield (
            f"got {room:.0f} GiB of the GPU for the learner{'' if is_apart else of}, expected "
            f"{learner.resident:.0f} GiB for weights, gradients and optimizer of policy.model="
            f"{policy.model!r}: `python -m clawrl_gym.doctor` with the same arguments says what "
            "fits which card"
        )


def disk_problems(needs: Requirements, folder: Path) -> Iterator[str]:
    """Whether what a run writes finds room."""
    free_gib = free_bytes(folder) / GIB
    if MIN_FREE_BYTES / GIB <= free_gib < needs.disk:  # less was said of the folder itself
        yield (
            f"got {free_gib:.1f} GiB free at {folder}, expected at least {needs.disk:.1f} GiB for "
            "checkpoints and records: make room, choose run.dir=PATH elsewhere, or keep fewer "
            "(learner.keep_checkpoints)"
        )


def gpu_memory_gib() -> float | None:
    """Memory of the first device that nvidia-smi shows; None where it cannot be asked."""
    rows = provenance.run_quietly(
        ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"], timeout_s=2.0
    ).splitlines()
    return float(rows[0]) / 1024 if rows and rows[0].strip().isdigit() else None


def _checkpoint_bytes(learner: LearnerConfig, shape: ModelShape) -> float:
    """Bytes of all checkpoints: the newest ones, the best one, and the one being written."""
    older = learner.keep_checkpoints if isinstance(learner.keep_checkpoints, int) else 2
    kept = _WEIGHT_BYTES + adam_bytes(learner)
    if learner.adapter is not None:
        return (older + 2) * kept * adapter_parameters(learner.adapter, shape)
    return (2 * kept + older * _WEIGHT_BYTES) * shape.parameters


def _served_adapter_parameters(
    config: CommandConfig | EvaluateConfig, shape: ModelShape, device: Device, users: int
) -> int:
    """Parameters of all adapters that one engine holds on its device, where it serves adapters."""
    if not isinstance(config, CommandConfig):
        return 0
    adapter = served_adapter(config, device, has_users=users > 0)
    if adapter is None:
        return 0
    ranks = engine_class(config.policy).capabilities.adapter_ranks
    rank = next(rank for rank in ranks if rank >= adapter.rank)
    largest = adapter.model_copy(update={"rank": rank})
    return adapter_slots(config.policy, users) * adapter_parameters(largest, shape)


def adapter_problems(config: CommandConfig, shape: ModelShape) -> Iterator[str]:
    """Layers that the model has not."""
    adapter = config.learner.adapter
    if adapter is None or adapter.modules == "all-linear":
        return
    layers = sorted(shape.linear)
    unknown = sorted(set(adapter.modules) - set(layers))
    if unknown:
        yield (
            f"got learner.adapter.modules with {', '.join(unknown)}, expected linear layers of "
            f"{config.policy.model!r}: {', '.join(layers)}"
        )
