"""Memory of a learner, part by part, by arithmetic from the model's shape.

Steady state: after the first update, with gradients of earlier packs, at the most that the largest
pack takes. What layers keep for the backward pass is counted byte by byte:
`tests/preflight/test_fit.py` holds it to what PyTorch keeps, `bench/learner_memory.py` the whole to
a process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from clawrl_gym.config import AdapterConfig, LearnerConfig, TrainerConfig
from clawrl_gym.inference.models.shape import ModelShape
from clawrl_gym.inference.weights.files import DTYPE_BYTES
from clawrl_gym.trainers.models.eight_bits import MOMENT_BYTES
from clawrl_gym.trainers.objectives import distils

GIB = 2**30
MAX_LOGITS = 2**25
"""Logits made at a time; a few buffers of this size exist beside each other."""
NF4_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)
"""Bytes of a weight in 4 bits: itself, shares of a scale in 8 bits for 64 and of one for 256."""
_LOGIT_BYTES = 14
"""Bytes of a logit, at most: itself and its probability in float32, both once more on their way."""
_ADAM_BYTES = 8
_EIGHT_BITS_STEP_BYTES = 20
"""Bytes of an element while a CPU steps on it: moments, gradient and places in the code book."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Bytes that one layer keeps of a token for the backward pass, by each unit of its widths."""

    hidden: int
    queries: int
    keys: int
    inner: int

    def of(self, shape: ModelShape) -> int:
        """Bytes of a token in one layer."""
        return (
            self.hidden * shape.hidden
            + self.queries * shape.queries
            + self.keys * shape.keys
            + self.inner * shape.inner
        )


_ALL = {"float32": Kept(24, 28, 8, 16), "autocast": Kept(26, 16, 6, 8), "half": Kept(16, 16, 6, 8)}
_ADAPTED = {
    "float32": Kept(16, 24, 4, 16), "autocast": Kept(18, 14, 4, 8), "half": Kept(28, 16, 4, 10),
}  # fmt: skip
"""Bytes of frozen layers beside adapters; in plain half precision adapters read float32 copies."""
_BACKWARD = 0.5
"""Share of what a layer keeps that is added for gradients on their way through it."""


@dataclass(frozen=True, slots=True)
class LearnerMemory:
    """Memory on the learner's device, in GiB."""

    base: float = 0.0
    """The model's weights, as they are held."""
    adapter: float = 0.0
    gradients: float = 0.0
    optimizer: float = 0.0
    others: float = 0.0
    """Models read beside it: a teacher, the KL term's reference, a moving average."""
    activations: float = 0.0
    """Activations of one pack, kept from the forward to the backward pass."""
    logits: float = 0.0
    """Logits at the end of the forward pass; nothing of them is kept."""
    backward: float = 0.0
    """Tensors that one layer recomputes, and its gradients on their way."""
    step: float = 0.0
    """Buffers of the optimizer step, when activations are gone."""

    @property
    def total(self) -> float:
        return self.resident + max(self.of_pack, self.step)

    @property
    def resident(self) -> float:
        """Memory that is there whatever a batch holds."""
        parts = (self.base, self.adapter, self.gradients, self.optimizer, self.others)
        return float(sum(parts))

    @property
    def of_pack(self) -> float:
        """Most memory of a pack: logits are gone before layers pass back."""
        return self.activations + max(self.logits, self.backward)


def learner_memory(
    trainer: TrainerConfig,
    learner: LearnerConfig,
    shape: ModelShape,
    device: Literal["cpu", "cuda"],
    longest: int = 0,
) -> LearnerMemory:
    """`longest`: tokens of the longest sequence, which has a pack of its own where it is longer
    than one."""
    adapter = learner.adapter
    teacher = trainer.distillation.teacher if distils(trainer) else ""
    foreign = bool(teacher) and trainer.distillation.is_another_model
    first = adapter is None and (trainer.kl_coef > 0 or teacher == "frozen")
    trained = shape.parameters if adapter is None else adapter_parameters(adapter, shape)
    tokens = max(trainer.max_tokens_per_pack, longest)
    kept, backward = _of_layers(learner, shape, device)
    logits = _LOGIT_BYTES * min(tokens * shape.vocab, max(MAX_LOGITS, shape.vocab))
    if adapter is None:  # the head's gradient of a piece, before it is added to the others
        logits += base_bytes(learner, shape) * shape.vocab * shape.hidden
    return LearnerMemory(
        base=_base_bytes(learner, shape, device) / GIB,
        adapter=0.0 if adapter is None else 4 * trained / GIB,
        gradients=0.0 if learner.offload else 4 * trained / GIB,
        optimizer=0.0 if learner.offload else adam_bytes(learner) * trained / GIB,
        others=(4 * shape.parameters * (foreign + first) + 4 * trained * (teacher == "average"))
        / GIB,
        activations=tokens * kept / GIB,
        logits=logits / GIB,
        backward=tokens * backward / GIB,
        step=0.0 if learner.offload or device == "cuda" else _step_bytes(learner, shape) / GIB,
    )


def offloaded_gib(learner: LearnerConfig, shape: ModelShape) -> float:
    """GiB of main memory beside the device: float32 weights, their gradients and Adam's moments."""
    if not learner.offload:
        return 0.0
    resident = (8 + adam_bytes(learner)) * shape.parameters
    return (resident + _step_bytes(learner, shape)) / GIB


def adam_bytes(learner: LearnerConfig) -> float:
    """Bytes of a parameter for both moments."""
    return MOMENT_BYTES if learner.moment_bits == 8 else _ADAM_BYTES


def _step_bytes(learner: LearnerConfig, shape: ModelShape) -> int:
    is_large = learner.moment_bits == 8 and learner.adapter is None
    return _EIGHT_BITS_STEP_BYTES * shape.vocab * shape.hidden if is_large else 0


def adapter_parameters(adapter: AdapterConfig, shape: ModelShape) -> int:
    """Number of parameters of both factors, beside all the chosen layers."""
    chosen = shape.linear if adapter.modules == "all-linear" else adapter.modules
    return adapter.rank * sum(sum(s) for name in chosen for s in shape.linear.get(name, []))


def autocasts(learner: LearnerConfig | None, own: str, device: str) -> bool:
    """Whether matrices are multiplied in bfloat16 whatever they are held in; `own` is the element
    type of the model's files, `learner` None a model that is only read."""
    if device != "cuda":
        return False
    if learner is None:
        return own != "float32"
    is_float32 = learner.precision == "float32" or (
        learner.precision == "auto" and _is_float32(learner, own)
    )
    return not is_float32


def _is_float32(learner: LearnerConfig, own: str) -> bool:
    """Whether the model's files, and the frozen weights beside an adapter, are float32."""
    base = own if learner.adapter is None or learner.base == "served" else learner.base
    return own == base == "float32" and not learner.offload


def _base_bytes(learner: LearnerConfig, shape: ModelShape, device: str) -> float:
    if learner.adapter is None:
        # under autocast a second copy, of half the size, from the forward to the backward pass
        copies = 6 if autocasts(learner, shape.dtype, device) else 4
        return (2 if learner.offload else copies) * shape.parameters
    if learner.base == "nf4":
        return NF4_BYTES * shape.linear_parameters + 2 * (
            shape.parameters - shape.linear_parameters + shape.widest_layer
        )
    return base_bytes(learner, shape) * shape.parameters


def base_bytes(learner: LearnerConfig, shape: ModelShape) -> int:
    """Bytes of an element of the weights that are not in 4 bits."""
    if learner.adapter is None:
        return 2 if learner.offload else 4
    dtype = {"served": shape.dtype, "nf4": "bfloat16"}.get(learner.base, learner.base)
    return DTYPE_BYTES.get(dtype, 4)


def _of_layers(learner: LearnerConfig, shape: ModelShape, device: str) -> tuple[float, float]:
    """Bytes of a token: kept by all layers, and taken by one in the backward pass."""
    element = base_bytes(learner, shape)
    is_cast = autocasts(learner, shape.dtype, device)
    mode = "autocast" if is_cast else "float32" if element == 4 else "half"
    kept = (_ALL if learner.adapter is None else _ADAPTED)[mode].of(shape)
    if learner.adapter is not None:
        outputs = sum(len(several) for several in shape.linear.values()) / max(1, shape.layers)
        kept += int(4 * learner.adapter.rank * outputs)
    if learner.checkpoint_layers:  # what goes into each, and then all of one
        return element * shape.hidden * shape.layers, (1 + _BACKWARD) * kept
    return shape.layers * kept, _BACKWARD * kept
