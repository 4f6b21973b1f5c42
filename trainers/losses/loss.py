"""The loss as equations over the sampled tokens of a batch: pure functions on (M,) tensors.

lp is the learner's log-prob with gradient, old the learner's before the update (the proximal
policy), mu the engine's (the behaviour policy), ref the reference model's, teacher that of a policy
that has read a hint. M runs over sampled tokens only: other tokens, with whatever log-prob they
carry, are gone before this file is reached. Only lp and a divergence ever carry gradient. The
policy-gradient term itself is the function that `trainer.loss` names: `trainers/losses/`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, assert_never

import torch
from torch import Tensor

from clawrl_gym.trainers.losses.loss_function import LossFunction
from clawrl_gym.trainers.losses.token_loss import (
    MAX_LOG_RATIO,
    LossInputs,
    ratio,
    rows_for,
    sequence_means,
)


@dataclass(frozen=True, slots=True)
class LossSettings:
    """The policy-gradient term, and the numbers of everything around it."""

    loss: LossFunction
    tis_cap: float
    kl_coef: float
    reduction: Literal["token_mean", "sequence_mean", "constant"] = "token_mean"
    constant_length: int = 1024
    """reduction=constant: tokens that a sequence counts as."""
    kl_correction: bool = False
    """The KL term is weighed by the ratio of the learner to the behaviour policy."""
    token_ratio_min: float = 0.0
    token_ratio_max: float | None = None
    """A token whose ratio old / mu lies outside is masked; None: no bound."""
    sequence_ratio_min: float = 0.0
    sequence_ratio_max: float | None = None
    """All tokens of a sequence are masked whose geometric mean of these ratios lies outside."""


@dataclass(frozen=True, slots=True)
class LossTerms:
    """The loss of some tokens, and metrics about them."""

    loss: Tensor
    """Scalar with gradient: these tokens' part of the mean over the whole batch."""
    clipped: Tensor
    """(M,) bool: the bound is active for a term of this token. That term gives no gradient there,
    or, with cispo, one with a smaller weight."""
    masked_M: Tensor
    """(M,) bool: left out for its importance ratio or its sequence's; still in the denominator."""
    in_masked_sequence_M: Tensor
    """(M,) bool: left out for its sequence's importance ratio."""
    kl_M: Tensor | None
    """(M,) estimate of KL(learner || reference), detached; None without a reference."""
    gap_M: Tensor | None = None
    """(M,) teacher - old, detached and not clipped; NaN where the teacher said nothing; None
    without a teacher."""


def policy_loss(
    lp_M: Tensor,
    old_M: Tensor,
    mu_M: Tensor,
    advantages_M: Tensor,
    count: int,
    settings: LossSettings,
    ref_M: Tensor | None = None,
    *,
    distill_M: Tensor | None = None,
    teacher_M: Tensor | None = None,
    gap_clip: float = 5.0,
    divergence_M: Tensor | None = None,
    rows_M: Tensor | None = None,
    sequences: int | None = None,
) -> LossTerms:
    """L = mean_t m_t [ S_t(A_t) + d_t D_t + kl_coef * c_t k3(lp_t, ref_t) ].

    S_t is `settings.loss`, which applies w_t = min(exp(old - mu), tis_cap), the truncated
    importance weight, or corrects for mu in its own way; m_t in {0, 1} says whether
    b_t = exp(old - mu) and its geometric mean over the sequence lie within their bounds,
    c_t = w_t exp(lp - old) with `kl_correction`, else 1, d_t = `distill_M`. D_t is
    S_t(clip(teacher_t - old_t, +-gap_clip)), a policy gradient with a bound of its own, or, where
    given, `divergence_M`, whose gradient is its own. The mean is over the whole batch, masked
    tokens too, of which these tokens may be a part: `count` tokens in `sequences`. `rows_M` numbers
    the sequences that are here, each of them whole.
    """
    _check(distill_M, teacher_M, divergence_M, rows_M, lp_M)
    old_M, mu_M = old_M.detach(), mu_M.detach()
    importance_M = truncated_importance(old_M, mu_M, settings.tis_cap)
    tokens = LossInputs(lp_M, old_M, mu_M, advantages_M, importance_M, rows_M)
    loss_M, clipped = settings.loss(tokens)
    gap_M = None if teacher_M is None else teacher_M.detach() - old_M
    if distill_M is not None and divergence_M is not None:
        # a zero weight would not stop a divergence that is not a number
        loss_M = loss_M + distill_M * divergence_M.where(distill_M != 0, 0.0)
    elif distill_M is not None and gap_M is not None:
        pull_M = distill_M * cut_gap(gap_M, gap_clip)
        taught_M, bound = settings.loss(replace(tokens, advantages_M=pull_M))
        loss_M, clipped = loss_M + taught_M, clipped | bound
    kl_M = None
    if ref_M is not None:
        kl_M = k3(lp_M, ref_M.detach())
        if settings.kl_correction:
            kl_M = importance_M * ratio(lp_M, old_M) * kl_M
        loss_M = loss_M + settings.kl_coef * kl_M
        kl_M = kl_M.detach()
    of_tokens_M, of_sequences_M = outside(old_M, mu_M, settings, rows_M)
    masked_M = of_tokens_M | of_sequences_M
    loss = reduce(loss_M.masked_fill(masked_M, 0.0), count, settings, rows_M, sequences)
    return LossTerms(loss, clipped, masked_M, of_sequences_M, kl_M, gap_M)


def cut_gap(gap_M: Tensor, gap_clip: float) -> Tensor:
    """clip(gap, +-gap_clip), and 0 where it is not a number: the teacher said nothing there."""
    return gap_M.clamp(-gap_clip, gap_clip).nan_to_num(0.0)


def truncated_importance(old_M: Tensor, mu_M: Tensor, cap: float) -> Tensor:
    """min(exp(old - mu), cap): corrects for tokens that another policy sampled; no gradient."""
    return ratio(old_M, mu_M).clamp(max=cap).detach()


def outside(
    old_M: Tensor, mu_M: Tensor, settings: LossSettings, rows_M: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Tokens whose ratio exp(old - mu) is out of bounds, and those whose sequence's ratio is.

    What another policy would hardly have sampled, or hardly
    knows, says nothing about this one: an importance weight of it is noise, large or small.
    """
    log_M = old_M - mu_M
    of_tokens_M = _is_outside(log_M, settings.token_ratio_min, settings.token_ratio_max)
    if settings.sequence_ratio_min <= 0 and settings.sequence_ratio_max is None:
        return of_tokens_M, torch.zeros_like(of_tokens_M)
    means_M = sequence_means(log_M, rows_for("sequence_ratio", rows_M))
    bounds = settings.sequence_ratio_min, settings.sequence_ratio_max
    return of_tokens_M, _is_outside(means_M, *bounds)


def _is_outside(log_ratio_M: Tensor, low: float, high: float | None) -> Tensor:
    if low <= 0 and high is None:
        return torch.zeros_like(log_ratio_M, dtype=torch.bool)
    ratio_M = log_ratio_M.exp()  # infinite at worst, which is outside
    inside_M = ratio_M >= low
    if high is not None:
        inside_M &= ratio_M <= high
    return ~inside_M


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


def reduce(
    values_M: Tensor,
    count: int,
    settings: LossSettings,
    rows_M: Tensor | None = None,
    sequences: int | None = None,
) -> Tensor:
    """These tokens' part of the batch's mean; clipped tokens stay in the denominator.

    token_mean: sum / count. sequence_mean: each sequence's mean, summed, / sequences. constant:
    sum / (sequences * constant_length).
    """
    if settings.reduction == "token_mean":
        return token_mean(values_M, count)
    if sequences is None:
        raise ValueError(f"got no number of sequences, expected one for {settings.reduction!r}")
    if settings.reduction == "constant":
        return values_M.sum() / (max(sequences, 1) * settings.constant_length)
    if settings.reduction == "sequence_mean":
        rows_M = rows_for("sequence_mean", rows_M)
        return (values_M / torch.bincount(rows_M)[rows_M]).sum() / max(sequences, 1)
    assert_never(settings.reduction)


def token_mean(values_M: Tensor, count: int) -> Tensor:
    """sum / N with N the token count before anything was clipped or split; 0 for no tokens."""
    return values_M.sum() / max(count, 1)


def _check(
    distill_M: Tensor | None,
    teacher_M: Tensor | None,
    divergence_M: Tensor | None,
    rows_M: Tensor | None,
    lp_M: Tensor,
) -> None:
    """Refuse a requested term that cannot be computed; none is left out in silence."""
    if distill_M is not None and teacher_M is None and divergence_M is None and distill_M.any():
        raise ValueError("got weights of distillation, expected a teacher's log-probs with them")
    if rows_M is not None and rows_M.shape != lp_M.shape:
        raise ValueError(f"got rows of shape {tuple(rows_M.shape)}, expected {tuple(lp_M.shape)}")
