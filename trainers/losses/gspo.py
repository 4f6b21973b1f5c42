"""GSPO (arXiv 2507.18071): PPO's clipped surrogate with one ratio for a whole sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clawrl_gym.trainers.losses.ppo import Clipping, clipped_surrogate
from clawrl_gym.trainers.losses.token_loss import LossInputs, TokenLoss, ratio, sequence_means

if TYPE_CHECKING:
    from torch import Tensor


def gspo(tokens: LossInputs, options: Clipping) -> TokenLoss:
    """w max(-s A, -clip(s) A), with s the sequence's ratio (the paper's GSPO-token)."""
    loss_M, clipped_M = clipped_surrogate(sequence_ratio(tokens), tokens.advantages_M, options)
    return TokenLoss(loss_M * tokens.importance_M, clipped_M)


def sequence_ratio(tokens: LossInputs) -> Tensor:
    """(M,) the geometric mean of exp(lp - old) over each token's sequence.

    Its gradient is each token's own, so that turns of one sequence keep their own advantages; where
    these are equal, it is that of the sequence's ratio.
    """
    lp_M = tokens.logprobs_M
    mean_M = sequence_means((lp_M - tokens.old_M).detach(), tokens.rows_for("gspo"))
    return ratio(lp_M - lp_M.detach() + mean_M, mean_M.new_zeros(mean_M.shape))
