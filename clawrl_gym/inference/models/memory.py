"""Memory of vLLM, part by part, by arithmetic from the model's shape."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Literal

from clawrl_gym.config import PolicyConfig
from clawrl_gym.inference.models.shape import ModelShape
from clawrl_gym.inference.weights.files import DTYPE_BYTES

GIB = 2**30
_WORKING_GIB = 1.2
"""CUDA's own, the largest pass and captured graphs: as vLLM tells of models of this size; not
measured here."""


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """Memory of one vLLM, in GiB."""

    weights: float
    adapters: float
    kv_cache: float
    """On a GPU that of one context of the longest length; vLLM takes all that it is given."""
    working: float

    @property
    def total(self) -> float:
        return float(sum(astuple(self)))


def engine_memory(
    policy: PolicyConfig,
    shape: ModelShape,
    device: Literal["cpu", "cuda"],
    adapter_parameters: int = 0,
) -> EngineMemory:
    """`adapter_parameters`: of all adapters that it holds ready."""
    element = served_bytes(policy, shape)
    token = kv_bytes_per_token(policy, shape)
    return EngineMemory(
        weights=element * shape.parameters / GIB,
        adapters=element * adapter_parameters / GIB,
        kv_cache=policy.kv_cache_gb if device == "cpu" else token * policy.max_model_len / GIB,
        working=_WORKING_GIB if device == "cuda" else 0.0,
    )


def served_bytes(policy: PolicyConfig, shape: ModelShape) -> int:
    """Bytes of a parameter in vLLM."""
    return DTYPE_BYTES.get(shape.dtype if policy.dtype == "auto" else policy.dtype, 4)


def kv_bytes_per_token(policy: PolicyConfig, shape: ModelShape) -> int:
    """Keys and values of all layers that keep them."""
    return 2 * shape.keys * shape.caching_layers * served_bytes(policy, shape)
