"""CISPO (arXiv 2506.13585, equations 4 and 5): the clipped ratio only weighs the log-prob."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawrl_gym.trainers.losses.ppo import Clipping
from clawrl_gym.trainers.losses.token_loss import LossInputs, TokenLoss

if TYPE_CHECKING:
    from torch import Tensor


def cispo(tokens: LossInputs, options: Clipping) -> TokenLoss:
    """-w clip(r) A lp, no gradient through r = exp(lp - old)."""
    loss_M, cut_M = weighted_logprob(
        tokens.logprobs_M, tokens.ratio_M, tokens.advantages_M, options
    )
    return TokenLoss(loss_M * tokens.importance_M, cut_M)


def weighted_logprob(
    lp_M: Tensor, ratio_M: Tensor, advantages_M: Tensor, bounds: Clipping
) -> tuple[Tensor, Tensor]:
    """-clip(r, 1 - clip_low, 1 + clip_high) A lp, no gradient through r.

    The second tensor says where the weight was cut: such tokens still give gradient.
    """
    free_M = ratio_M.detach()
    weight_M = free_M.clamp(1 - bounds.clip_low, 1 + bounds.clip_high)
    return -weight_M * advantages_M * lp_M, (weight_M != free_M) & (advantages_M != 0)
