"""What a run takes of the machine: memory and disk, estimated from the model's size.

Refused is only what cannot fit whatever happens: weights, the optimizer's state, the key-value
cache and what the processes need by themselves. Activations come on top and are said beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.config import (
    AdapterConfig,
    CommandConfig,
    EvaluateConfig,
    LearnerConfig,
    PolicyConfig,
)
from clawrl_gym.core import provenance
from clawrl_gym.policy.launch import ADAPTER_RANKS
from clawrl_gym.policy.models import Device, checkpoint_dtype
from clawrl_gym.policy.servable import ModelSize
from clawrl_gym.policy.weights import DTYPE_BYTES, layer_shapes, weight_files
from clawrl_gym.run.folder import MIN_FREE_BYTES, free_bytes
from clawrl_gym.trainers.objectives import distils

GIB = 2**30
_TRAINED_BYTES = 16
"""A parameter, its gradient and Adam's two moments, in float32."""
_KEPT_BYTES = 12
"""Of a parameter in a checkpoint: itself and Adam's two moments."""
_WEIGHT_BYTES = 4
"""Of a parameter in a large checkpoint that is not the newest."""
_ACTIVATION_BYTES = 86
"""For each token of a pack, layer and unit of its width; measured on layers of Qwen3."""
_SERVER_GIB = 1.1
"""Of vLLM's processes, without weights and cache; measured with the tiny policy on a CPU."""
_LEARNER_GIB = 0.8
_BASE_GIB = 0.8
"""The command itself, Ray, and a worker with small environments."""
_RECORDS_GIB = 0.5
"""Database, logs, films and report."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Memory and disk of one run, in GiB."""

    host_memory: float
    """On a CPU all of it; beside a GPU, what processes need themselves."""
    gpu_server: float
    """On the device, of each vLLM: weights and nothing else; 0 on a CPU."""
    gpu_learner: float
    activations: float
    """Of one full pack in the learner, beside all the above."""
    disk: float


def needs_of(
    config: CommandConfig | EvaluateConfig, model: Path, size: ModelSize, device: Device
) -> Needs:
    """What this configuration takes with this model."""
    policy = config.policy
    served = _served_bytes(policy, model) * size.parameters / GIB
    trained = _trained_bytes(config, model, size) / GIB
    learns = trained > 0
    host = _BASE_GIB + policy.servers * _SERVER_GIB + (_LEARNER_GIB if learns else 0.0)
    if device == "cpu":
        host += policy.servers * (served + policy.kv_cache_gb) + trained
    disk = _RECORDS_GIB
    activations = 0.0
    if isinstance(config, CommandConfig) and learns:
        disk += _checkpoint_bytes(config.learner, model, size) / GIB + 2 * served
        units = config.trainer.max_tokens_per_pack * size.hidden
        activations = _ACTIVATION_BYTES * units * size.layers / GIB
        if config.learner.checkpoint_layers:  # what goes into each layer, and all of one
            activations = (4 * size.layers + _ACTIVATION_BYTES) * units / GIB
    on_gpu = device == "cuda"
    return Needs(host, served if on_gpu else 0.0, trained if on_gpu else 0.0, activations, disk)


def memory_problems(
    needs: Needs, policy: PolicyConfig, available_gib: float, gpu_gib: float | None
) -> Iterator[str]:
    """What does not fit. `gpu_gib`: memory of the device, None where it is not known."""
    if needs.host_memory > available_gib:
        yield (
            f"got {available_gib:.1f} GiB of free memory, expected at least "
            f"{needs.host_memory:.1f} GiB for policy.model={policy.model!r} (weights, optimizer, "
            "cache and processes): take a smaller model such as policy=tiny, a smaller "
            "policy.kv_cache_gb, or a machine with a GPU"
        )
    if gpu_gib is None:
        return
    share = policy.gpu_memory_utilization
    if needs.gpu_server > share * gpu_gib:
        yield (
            f"got policy.gpu_memory_utilization={share:g} of {gpu_gib:.0f} GiB, expected more than "
            f"the {needs.gpu_server:.0f} GiB of weights of policy.model={policy.model!r}: give "
            "vLLM a larger share, or take a smaller model"
        )
    if needs.gpu_learner > (1 - share) * gpu_gib:
        yield (
            f"got {(1 - share) * gpu_gib:.0f} GiB of the GPU for the learner (what "
            f"policy.gpu_memory_utilization={share:g} leaves of {gpu_gib:.0f}), expected "
            f"{needs.gpu_learner:.0f} GiB for weights, gradients and optimizer of policy.model="
            f"{policy.model!r}: take a smaller model or a larger GPU"
        )


def disk_problems(needs: Needs, folder: Path) -> Iterator[str]:
    """Whether what a run writes finds room."""
    free_gib = free_bytes(folder) / GIB
    if MIN_FREE_BYTES / GIB <= free_gib < needs.disk:  # less was said of the folder itself
        yield (
            f"got {free_gib:.1f} GiB free at {folder}, expected at least {needs.disk:.1f} GiB for "
            "checkpoints and records: make room, choose run.dir=PATH elsewhere, or keep fewer "
            "(learner.keep_checkpoints)"
        )


def gpu_memory_gib() -> float | None:
    """Of the first device that nvidia-smi shows; None where it cannot be asked."""
    rows = provenance.run_quietly(
        ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"], timeout_s=2.0
    ).splitlines()
    return float(rows[0]) / 1024 if rows and rows[0].strip().isdigit() else None


def _served_bytes(policy: PolicyConfig, model: Path) -> int:
    """Of a parameter in vLLM."""
    dtype = checkpoint_dtype(model) if policy.dtype == "auto" else policy.dtype
    return DTYPE_BYTES.get(dtype, 4)


def _checkpoint_bytes(learner: LearnerConfig, model: Path, size: ModelSize) -> int:
    """Of all checkpoints: the newest ones, the best one, and the one being written."""
    older = 2 if learner.keep_checkpoints == "auto" else learner.keep_checkpoints
    if learner.adapter is not None:
        return (older + 2) * _KEPT_BYTES * _adapter_parameters(learner.adapter, model)
    return (2 * _KEPT_BYTES + older * _WEIGHT_BYTES) * size.parameters


def adapter_problems(config: CommandConfig, model: Path) -> Iterator[str]:
    """Layers that the model has not."""
    adapter = config.learner.adapter
    if adapter is None or adapter.modules == "all-linear":
        return
    layers = sorted(layer_shapes(weight_files(model)))
    unknown = sorted(set(adapter.modules) - set(layers))
    if unknown:
        yield (
            f"got learner.adapter.modules with {', '.join(unknown)}, expected linear layers of "
            f"{config.policy.model!r}: {', '.join(layers)}"
        )


def _trained_bytes(config: CommandConfig | EvaluateConfig, model: Path, size: ModelSize) -> float:
    """In the learner; 0 where nothing is learned."""
    if not isinstance(config, CommandConfig) or config.learner.backend == "simulated":
        return 0
    if not getattr(config, "learn", True):
        return 0
    trainer, adapter = config.trainer, config.learner.adapter
    teaches = distils(trainer) and trainer.distillation.teacher
    if adapter is not None:
        base = checkpoint_dtype(model) if adapter.base == "served" else adapter.base
        other = 4 if teaches and trainer.distillation.is_another_model else 0
        frozen_bytes = (DTYPE_BYTES.get(base, 4) + other) * size.parameters
        trained = _TRAINED_BYTES + (4 if teaches == "average" else 0)
        return frozen_bytes + trained * _adapter_parameters(adapter, model)
    frozen = trainer.kl_coef > 0 or teaches not in (False, "policy")
    return (_TRAINED_BYTES + (4 if frozen else 0)) * size.parameters


def served_adapter_bytes(policy: PolicyConfig, adapter: AdapterConfig, model: Path) -> int:
    """Of all adapters that one vLLM holds ready on its device, where adapters are served."""
    rank = next((rank for rank in ADAPTER_RANKS if rank >= adapter.rank), adapter.rank)
    largest = adapter.model_copy(update={"rank": rank})
    per_adapter = _served_bytes(policy, model) * _adapter_parameters(largest, model)
    return policy.max_adapters * per_adapter


def _adapter_parameters(adapter: AdapterConfig, model: Path) -> int:
    layers = layer_shapes(weight_files(model))
    chosen = layers if adapter.modules == "all-linear" else adapter.modules
    return adapter.rank * sum(sum(shape) for name in chosen for shape in layers.get(name, []))
