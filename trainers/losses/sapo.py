"""SAPO, soft adaptive policy optimization (arXiv 2511.20347v2, equations 5 and 6).

Where PPO cuts a ratio, a sigmoid lets its gradient fade: by 4 s (1 - s) with s = sigmoid(tau (r -
1)), which is 1 at r = 1 and nears 0 far from it. `trl`'s `loss_type="sapo"` and verl's `sapo` are
the same; the paper's mean is over sequences (`trainer.reduction=sequence_mean`).
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from clawrl_gym.trainers.losses.token_loss import LossInputs, TokenLoss


class Gates(BaseModel):
    """Speed at which the gradient fades as a ratio leaves 1: the larger, the faster."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tau_pos: float = Field(1.0, gt=0)
    """Temperature of tokens with an advantage above 0."""
    tau_neg: float = Field(1.05, gt=0)
    """Temperature of all others. Making a token rarer raises every other one, so the paper lets
    it fade faster."""


def sapo(tokens: LossInputs, options: Gates) -> TokenLoss:
    """-w f(r) A with f(r) = sigmoid(tau (r - 1)) 4 / tau and r = exp(lp - old); no bound."""
    advantages_M = tokens.advantages_M
    tau_M = advantages_M.new_full(advantages_M.shape, options.tau_neg)
    tau_M = tau_M.masked_fill(advantages_M > 0, options.tau_pos)
    gate_M = (tau_M * (tokens.ratio_M - 1)).sigmoid() * 4 / tau_M
    return TokenLoss(-gate_M * advantages_M * tokens.importance_M)
