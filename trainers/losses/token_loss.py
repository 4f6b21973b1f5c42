"""Input and output of a loss function: the policy-gradient term of each sampled token.

    def my_loss(tokens: LossInputs, options: MyOptions) -> TokenLoss: ...

A loss is named by `trainer.loss.type`, whose own options are the pydantic model that `options` is
annotated with; one without options has no such parameter. Masks, means, the KL term and what a
teacher adds are `trainers/losses/loss.py`'s. Torch is not imported here, so that options are known
before it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped to plus and minus this before exp, which would overflow."""


@dataclass(frozen=True, slots=True)
class LossInputs:
    """The sampled tokens of a pack: whole sequences of a minibatch, in no order that matters."""

    logprobs_M: Tensor
    """(M,) the learner's log-probs: the only stream with gradient."""
    old_M: Tensor
    """(M,) the learner's before the update: the proximal policy. With `trainer.minibatches=1` the
    same numbers as `logprobs_M`."""
    behaviour_M: Tensor
    """(M,) log-probs that the engine sampled with, of one weight version or more."""
    advantages_M: Tensor
    """(M,) advantages: above 0 reinforced, below made rarer. The second call for a pack whose hints
    are followed by `trainer.distillation.form=sampled` has the teacher's pull here."""
    importance_M: Tensor
    """(M,) min(exp(old - behaviour), `trainer.tis_cap`): the weight that corrects a loss around
    `old_M` for what another policy sampled. The loss has to apply it."""
    rows_M: Tensor | None = None
    """(M,) index of each token's sequence in the pack; None where sequences are not numbered."""

    @property
    def ratio_M(self) -> Tensor:
        """(M,) exp(logprobs - old), with gradient."""
        return ratio(self.logprobs_M, self.old_M)

    def rows_for(self, asker: str) -> Tensor:
        """`rows_M`. Raises ValueError, naming the asker, where there are none."""
        return rows_for(asker, self.rows_M)


@dataclass(frozen=True, slots=True)
class TokenLoss:
    """The loss of each token, before any mask and mean."""

    loss_M: Tensor
    """(M,) loss of each token, with gradient."""
    clipped_M: Tensor | None = None
    """(M,) bool: tokens whose term a bound has clipped or blocked, for `learner/clip_share`; None:
    no bound."""


def ratio(log_p_M: Tensor, log_q_M: Tensor) -> Tensor:
    """exp(log p - log q), finite whatever comes in."""
    return (log_p_M - log_q_M).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def sequence_means(values_M: Tensor, rows_M: Tensor) -> Tensor:
    """(M,) the mean over each token's own sequence."""
    counts_S = rows_M.bincount()
    sums_S = values_M.new_zeros(len(counts_S)).index_add(0, rows_M, values_M)
    return sums_S[rows_M] / counts_S[rows_M]


def rows_for(asker: str, rows_M: Tensor | None) -> Tensor:
    """The rows, which `asker` cannot do without. Raises ValueError where there are none."""
    if rows_M is None:
        raise ValueError(f"got no rows, expected the sequence of each token for {asker!r}")
    return rows_M
