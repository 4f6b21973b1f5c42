"""A loss of one's own: what each sampled token adds to the loss.

python -m clawrl_gym.train env=terminal loss=examples.own_loss:tapered \\
    trainer.loss.options.cap=0.5 trainer.steps=3

It gets the log-probs of a pack's sampled tokens and gives one number for each; masks, means, the KL
term and what a teacher adds are not its concern. Try it on numbers first:

    cg.LossInputs(logprobs_M, old_M, behaviour_M, advantages_M, importance_M, rows_M)
"""

from pydantic import BaseModel, ConfigDict, Field

import clawrl_gym as cg


class Options(BaseModel):
    """Checked before anything starts, like every key of the configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cap: float = Field(1.0, gt=0)
    """Largest weight of a token that is made rarer."""


def tapered(tokens: cg.LossInputs, options: Options) -> cg.TokenLoss:
    """REINFORCE that pushes down only what the policy still says.

    -A log p               where A > 0
    -min(p / mu, cap) A log p   elsewhere, with no gradient through the weight

    After TOPR (arXiv 2503.14286), which has one ratio for a whole reply.
    """
    ratio_M = (tokens.logprobs_M - tokens.behaviour_M).detach().exp()
    good_M = tokens.advantages_M > 0
    weight_M = ratio_M.clamp(max=options.cap).masked_fill(good_M, 1.0)
    return cg.TokenLoss(
        loss_M=-weight_M * tokens.advantages_M * tokens.logprobs_M,
        clipped_M=(ratio_M > options.cap) & (tokens.advantages_M < 0),
    )
