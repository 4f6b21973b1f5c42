"""Adam's moments in 8 bits (arXiv 2110.02861), by bitsandbytes: 2 bytes a parameter instead of 8.

256 moments share a scale; tensors of fewer than 4,096 elements stay in float32. What follows holds
both forms: the moments of PyTorch's AdamW, and these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from clawrl_gym.config import LearnerConfig
from clawrl_gym.core.errors import TrainerError
from clawrl_gym.trainers.models import nf4

if TYPE_CHECKING:  # a dry run reckons with these bytes, and imports no torch
    from torch import Tensor
    from torch.optim import Optimizer

MOMENT_BYTES = 2 + 2 * 4 / 256
"""Bytes of a parameter: both moments, and its share of their scales."""


def check_installed() -> None:
    """Raises ConfigError where the package is not installed."""
    nf4.check_installed("learner.moment_bits=8", "learner.moment_bits=32")


def make_adam(groups: list[dict[str, object]], config: LearnerConfig) -> Optimizer:
    """AdamW with moments in 8 bits. Raises ConfigError."""
    check_installed()
    from bitsandbytes.optim import AdamW8bit

    optimizer: Optimizer = AdamW8bit(groups, lr=config.lr, betas=config.betas)
    return optimizer


def scales_of_momenta(optimizer: Optimizer) -> Iterator[Tensor]:
    """Tensors proportional to the first moments: themselves, or the scales of those in 8 bits."""
    for state in optimizer.state.values():
        yield next(state[key] for key in ("exp_avg", "absmax1", "state1") if key in state)


def check_form(state: Mapping[str, Any], config: LearnerConfig) -> None:
    """Raises TrainerError for an optimizer state of the other form."""
    moments = list(state["state"].values())
    bits = 32 if moments and "exp_avg" in moments[0] else 8
    if moments and bits != config.moment_bits:
        raise TrainerError(
            f"got a checkpoint whose moments of Adam have {bits} bits, expected "
            f"{config.moment_bits}: resume with learner.moment_bits={bits}, or start from "
            "policy.model=CHECKPOINT"
        )
