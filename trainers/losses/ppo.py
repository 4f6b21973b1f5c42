"""PPO's clipped surrogate (arXiv 1707.06347, equation 7), a ratio for each token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from clawrl_gym.trainers.losses.token_loss import LossInputs, TokenLoss

if TYPE_CHECKING:
    from torch import Tensor


class Clipping(BaseModel):
    """Bounds of a ratio: 1 - clip_low and 1 + clip_high."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    clip_low: float = Field(0.2, ge=0)
    clip_high: float = Field(0.28, ge=0)
    """Above clip_low is DAPO's choice (arXiv 2503.14476)."""


def ppo(tokens: LossInputs, options: Clipping) -> TokenLoss:
    """w max(-r A, -clip(r) A), with r = exp(lp - old) and w the truncated importance weight."""
    loss_M, clipped_M = clipped_surrogate(tokens.ratio_M, tokens.advantages_M, options)
    return TokenLoss(loss_M * tokens.importance_M, clipped_M)


def clipped_surrogate(
    ratio_M: Tensor, advantages_M: Tensor, bounds: Clipping
) -> tuple[Tensor, Tensor]:
    """max(-r A, -clip(r, 1 - clip_low, 1 + clip_high) A).

    The second tensor says where the bound is active: such tokens give no gradient.
    """
    free_M = -ratio_M * advantages_M
    bound_M = -ratio_M.clamp(1 - bounds.clip_low, 1 + bounds.clip_high) * advantages_M
    return free_M.maximum(bound_M), (bound_M > free_M).detach()
