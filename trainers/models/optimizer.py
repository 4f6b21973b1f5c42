"""AdamW whose steps are as long as the evidence is strong.

Adam divides by the size of the gradient, so a batch of weak evidence alone, whose advantages and
gradient g are s times as large, would move the weights as far as one of clear evidence. Here what
it divides by is kept at the scale of clear evidence, and the momentum is not:

    m <- b1 m + (1 - b1) g        v <- b2 v + (1 - b2) (g / s)^2        step ~ lr m / sqrt(v)

so a step is s times as long, after whatever history, and weak evidence is carried on weakly. With
s = 1 this is AdamW, bit by bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim import AdamW, Optimizer

from clawrl_gym.config import LearnerConfig
from clawrl_gym.core.types import Sample
from clawrl_gym.trainers.models import eight_bits


def make_optimizer(parameters: Sequence[torch.nn.Parameter], config: LearnerConfig) -> Optimizer:
    """AdamW; vectors (norms, biases) are not decayed."""
    groups: list[dict[str, object]] = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    if config.moment_bits == 8:
        return eight_bits.make_adam(groups, config)
    return AdamW(groups, lr=config.lr, betas=config.betas, fused=True)


def strength_of(samples: Sequence[Sample]) -> float:
    """Mean strength of the evidence in some samples, each weighted by what it contributes."""
    if all(sample.strength == 1 for sample in samples):
        return 1.0
    sizes = [sum(map(abs, s.advantages_T)) + sum(map(abs, s.distill_T)) for s in samples]
    whole = sum(sizes)
    strong = sum(size * s.strength for size, s in zip(sizes, samples, strict=True))
    return strong / whole if whole else 1.0


def optimizer_step(
    optimizer: Optimizer, rate: float, strength: float, max_grad_norm: float
) -> Tensor:
    """Clip the gradient and step; returns its norm before clipping. A non-finite one is no step."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    norm = torch.nn.utils.clip_grad_norm_(parameters, max_grad_norm * strength)
    if not bool(norm.isfinite()):
        return norm
    for group in optimizer.param_groups:
        group["lr"] = rate * strength
    if strength == 1:
        optimizer.step()
        return norm
    # As if gradient and momentum were those of clear evidence, at a smaller rate: the same step.
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.div_(strength)
    _scale_momenta(optimizer, 1 / strength)
    optimizer.step()
    _scale_momenta(optimizer, strength)
    return norm


def _scale_momenta(optimizer: Optimizer, factor: float) -> None:
    for scale in eight_bits.scales_of_momenta(optimizer):
        scale.mul_(factor)
