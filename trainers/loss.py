"""The loss as equations over the sampled tokens of a batch: pure functions on (M,) tensors.

lp is the learner's log-prob with gradient, old the learner's before the update (the proximal
policy), mu vLLM's (the behaviour policy), ref the reference model's. M runs over sampled tokens
only: other tokens, with whatever log-prob they carry, are gone before this file is reached.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped to plus and minus this before exp, which would overflow."""


@dataclass(frozen=True, slots=True)
class LossSettings:
    """The numbers of the loss."""

    clip_low: float
    clip_high: float
    tis_cap: float
    kl_coef: float


@dataclass(frozen=True, slots=True)
class LossTerms:
    """The loss of some tokens, and what is worth watching about them."""

    loss: Tensor
    """Scalar with gradient: the sum over these tokens divided by the batch's token count."""
    clipped: Tensor
    """(M,) bool: tokens whose clip is active, so that they give no gradient."""
    kl_M: Tensor | None
    """(M,) estimate of KL(learner || reference), detached; None without a reference."""


def policy_loss(
    lp_M: Tensor,
    old_M: Tensor,
    mu_M: Tensor,
    advantages_M: Tensor,
    count: int,
    settings: LossSettings,
    ref_M: Tensor | None = None,
) -> LossTerms:
    """L = 1/N * sum_t [ w_t * clip_t + kl_coef * k3(lp_t, ref_t) ].

    clip_t is the clipped surrogate on r = exp(lp - old), w_t = min(exp(old - mu), tis_cap) the
    truncated importance weight, N = `count` the sampled tokens of the whole batch, of which these
    may be a part.
    """
    old_M, mu_M = old_M.detach(), mu_M.detach()
    surrogate_M, clipped = clipped_surrogate(
        lp_M, old_M, advantages_M, settings.clip_low, settings.clip_high
    )
    loss_M = surrogate_M * truncated_importance(old_M, mu_M, settings.tis_cap)
    kl_M = None
    if ref_M is not None:
        kl_M = k3(lp_M, ref_M.detach())
        loss_M = loss_M + settings.kl_coef * kl_M
        kl_M = kl_M.detach()
    return LossTerms(token_mean(loss_M, count), clipped, kl_M)


def clipped_surrogate(
    lp_M: Tensor, old_M: Tensor, advantages_M: Tensor, clip_low: float, clip_high: float
) -> tuple[Tensor, Tensor]:
    """max(-r A, -clip(r, 1 - clip_low, 1 + clip_high) A) with r = exp(lp - old).

    The second tensor says where the bound is active: such tokens give no gradient.
    """
    ratio_M = ratio(lp_M, old_M)
    free_M = -ratio_M * advantages_M
    bound_M = -ratio_M.clamp(1 - clip_low, 1 + clip_high) * advantages_M
    return free_M.maximum(bound_M), (bound_M > free_M).detach()


def truncated_importance(old_M: Tensor, mu_M: Tensor, cap: float) -> Tensor:
    """min(exp(old - mu), cap): corrects for tokens that another policy sampled; no gradient."""
    return ratio(old_M, mu_M).clamp(max=cap).detach()


def ratio(log_p_M: Tensor, log_q_M: Tensor) -> Tensor:
    """exp(log p - log q), finite whatever comes in."""
    return (log_p_M - log_q_M).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def k1(lp_M: Tensor, ref_M: Tensor) -> Tensor:
    """lp - ref: unbiased for KL(p || ref) under p. A measure only: its own gradient is useless."""
    return lp_M - ref_M


def k2(lp_M: Tensor, ref_M: Tensor) -> Tensor:
    """(lp - ref)^2 / 2: biased, small variance, never negative."""
    return (lp_M - ref_M).square() / 2


def k3(lp_M: Tensor, ref_M: Tensor) -> Tensor:
    """exp(ref - lp) - 1 - (ref - lp): unbiased for KL(p || ref) under p, never negative."""
    log_ratio_M = (ref_M - lp_M).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return log_ratio_M.exp() - 1 - log_ratio_M


def token_mean(values_M: Tensor, count: int) -> Tensor:
    """sum / N with N the token count before anything was clipped or split; 0 for no tokens."""
    return values_M.sum() / max(count, 1)
