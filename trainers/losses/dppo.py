"""DPPO, divergence proximal policy optimization (arXiv 2602.04879v3, equations 12 to 14).

PPO blocks a token by its ratio, which says little of how far the policy moved: of a rare token it
is large for nothing, of a likely one small for much. Here a token is blocked where the sampled
token's own share of the divergence from the policy that sampled (section 5.2: not from a recomputed
one) is above a threshold, and its term would push further away. SkyRL's `dppo` is the same; verl's
`dppo_tv` and `dppo_kl` and trl 1.4's `DPPOTrainer` have the same gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from clawrl_gym.trainers.losses.token_loss import MAX_LOG_RATIO, LossInputs, TokenLoss, ratio

if TYPE_CHECKING:
    from torch import Tensor

_SMALLEST_REST = 1e-8
"""Lower bound of the probability of all other tokens, whose log is taken."""


class TrustRegion(BaseModel):
    """Bound on the change of a token's probability, and the policy that it is measured from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    divergence: Literal["tv", "kl"] = "tv"
    """Distance of the sampled token's probability, against that of all others: total variation, or
    KL(sampling || learner)."""
    threshold: float | None = Field(None, gt=0)
    """Divergence above which a token is blocked. None: 0.15 for `tv` and 0.05 for `kl`, as in the
    paper's appendix C."""
    ratio_cap: float | None = Field(20.0, ge=1)
    """Largest weight of a token, as in verl and trl. None: no bound, as in the paper's equation;
    section 5.4 warns of small ones."""


_THRESHOLDS = {"tv": 0.15, "kl": 0.05}


def dppo(tokens: LossInputs, options: TrustRegion) -> TokenLoss:
    """-M r A, with r = exp(lp - behaviour) and M in {0, 1}.

    M is 0 where D > threshold and the token has moved the way its advantage pushes: r > 1 and A > 0
    or r < 1 and A < 0. r corrects for the policy that sampled by itself: `importance_M` is not
    used.
    """
    lp_M, mu_M, advantages_M = tokens.logprobs_M, tokens.behaviour_M, tokens.advantages_M
    ratio_M = ratio(lp_M, mu_M)
    apart_M = _DIVERGENCES[options.divergence](lp_M.detach(), mu_M)
    threshold = options.threshold or _THRESHOLDS[options.divergence]
    leads_away_M = (lp_M.detach() - mu_M) * advantages_M > 0
    blocked_M = leads_away_M & (apart_M > threshold)
    loss_M = -_capped(ratio_M, options.ratio_cap) * advantages_M
    return TokenLoss(loss_M.masked_fill(blocked_M, 0.0), blocked_M)


def total_variation(lp_M: Tensor, mu_M: Tensor) -> Tensor:
    """|mu(a) - pi(a)|: equation 13."""
    return (mu_M.exp() - lp_M.exp()).abs()


def binary_kl(lp_M: Tensor, mu_M: Tensor) -> Tensor:
    """mu log(mu / pi) + (1 - mu) log((1 - mu) / (1 - pi)): equation 14."""
    gap_M = (mu_M - lp_M).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return mu_M.exp() * gap_M - mu_M.expm1() * (_log_rest(mu_M) - _log_rest(lp_M))


_DIVERGENCES = {"tv": total_variation, "kl": binary_kl}


def _log_rest(lp_M: Tensor) -> Tensor:
    """log(1 - exp(lp))."""
    return (-lp_M.expm1()).clamp(min=_SMALLEST_REST).log()


def _capped(ratio_M: Tensor, cap: float | None) -> Tensor:
    """min(r, cap), whose gradient is min(r, cap) times the log-prob's (equation 23): a token above
    the cap is weighed less, and not silenced."""
    if cap is None:
        return ratio_M
    free_M = ratio_M.detach()
    return ratio_M * (free_M.clamp(max=cap) / free_M)
