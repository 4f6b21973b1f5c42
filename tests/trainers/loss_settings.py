"""The loss of a configuration in one line, as the tests of its equations want it."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from clawrl_gym.config import LossConfig
from clawrl_gym.trainers.losses.loss import LossSettings
from clawrl_gym.trainers.losses.loss_function import build_loss
from clawrl_gym.trainers.losses.token_loss import LossInputs


def loss_settings(
    clip_low: float,
    clip_high: float,
    tis_cap: float,
    kl_coef: float,
    loss: str = "ppo",
    reduction: Any = "token_mean",
    constant_length: int = 1024,
    **more: Any,
) -> LossSettings:
    """With a loss that clips: ppo, gspo or cispo."""
    clipping: dict[str, object] = {"clip_low": clip_low, "clip_high": clip_high}
    return settings_of(
        loss, clipping, tis_cap=tis_cap, kl_coef=kl_coef, reduction=reduction,
        constant_length=constant_length, **more,
    )  # fmt: skip


def settings_of(loss: str, options: dict[str, object], **more: Any) -> LossSettings:
    """With any loss; without a KL term unless `more` says."""
    chosen = build_loss(LossConfig(type=loss, options=options))
    return LossSettings(chosen, **({"tis_cap": 1e9, "kl_coef": 0.0} | more))


def inputs(
    lp_M: Tensor, old_M: Tensor, mu_M: Tensor, advantages_M: Tensor, rows_M: Tensor | None = None
) -> LossInputs:
    """What a loss is called with, where the importance weights have no cap."""
    return LossInputs(lp_M, old_M, mu_M, advantages_M, (old_M - mu_M).exp(), rows_M)
