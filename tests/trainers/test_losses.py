"""SAPO and DPPO have the values, masks and gradients of other people's code and of their papers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from clawrl_gym.config import LossConfig
from clawrl_gym.trainers.losses.dppo import binary_kl, total_variation
from clawrl_gym.trainers.losses.loss import policy_loss
from clawrl_gym.trainers.losses.loss_function import build_loss
from tests.reference import formulas
from tests.trainers.loss_settings import inputs, settings_of


def floats(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def tokens(rows: np.ndarray) -> Tensor:
    return torch.from_numpy(rows[formulas.MASK])


LP, OLD, MU, REF, A = (
    tokens(rows)
    for rows in (formulas.LP, formulas.OLD, formulas.MU, formulas.REF, formulas.ADVANTAGES)
)
N = len(LP)

SAMPLED = floats(0.1, 0.4, 0.5, 0.7, 0.9, 0.9, 1e-4, 0.99, 0.5, 0.5, 0.3, 0.2, 0.05, 0.6)
"""Probabilities of the policy that sampled, which the golden numbers of trl are of."""
NOW = floats(0.35, 0.1, 0.9, 0.2, 0.97, 0.99999, 0.02, 0.8, 0.62, 0.38, 0.3, 0.32, 1e-3, 0.72)
PUSHED = floats(1, -1, 1, -1, 1, 1, 1, -1, 0.5, -2, 1, 1, -1, -0.5)


def loss_and_gradient(
    loss: str, options: dict[str, object], lp: Tensor, old: Tensor, mu: Tensor, advantages: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss and gradient of each token, and where a bound has cut it."""
    leaf = lp.clone().requires_grad_()
    loss_M, clipped_M = build_loss(LossConfig(type=loss, options=options))(
        inputs(leaf, old, mu, advantages)
    )
    loss_M.sum().backward()
    assert leaf.grad is not None
    return loss_M.detach(), leaf.grad, clipped_M


def test_sapo_has_its_golden_value() -> None:
    terms = policy_loss(LP, OLD, OLD, A, N, settings_of("sapo", {}))
    assert float(terms.loss) == pytest.approx(-0.042521700447, abs=1e-11)
    assert not terms.clipped.any()


def test_sapo_has_the_value_that_skyrl_tests() -> None:
    """`test_sapo_policy_loss_basic`: the gates of ratios exp(-0.5), exp(0.2) and exp(-0.1)."""
    lp, old, advantages = floats(-1.5, -0.8, -1.1), floats(-1, -1, -1), floats(1.0, -1.0, 0.5)
    loss, _, _ = loss_and_gradient(
        "sapo", {"tau_pos": 1.0, "tau_neg": 2.0}, lp, old, old, advantages
    )
    gates = [
        4 / tau / (1 + math.exp(-tau * (math.exp(gap) - 1)))
        for tau, gap in ((1.0, -0.5), (2.0, 0.2), (1.0, -0.1))
    ]
    assert loss.tolist() == pytest.approx([-gates[0], gates[1], -gates[2] * 0.5])


def test_sapo_pushes_like_reinforce_at_the_old_policy_and_fades_away_from_it() -> None:
    """4 s (1 - s) with s = sigmoid(x) is 1 / cosh(x / 2) squared."""
    old = floats(*[-2.0] * 7)
    moved = old + floats(0.0, 0.1, -0.1, 1.0, -1.0, 2.0, 5.0)
    for sign, tau in ((1.0, 1.0), (-1.0, 1.05)):
        advantages = torch.full_like(old, sign)
        _, gradient, _ = loss_and_gradient("sapo", {}, moved, old, old, advantages)
        ratio = (moved - old).exp()
        gate = 1 / torch.cosh(tau / 2 * (ratio - 1)).square()
        torch.testing.assert_close(gradient, -sign * gate * ratio)
        assert gradient[0] == pytest.approx(-sign)
        assert abs(float(gradient[-1])) < 1e-9


def test_sapo_is_weighed_by_the_truncated_importance() -> None:
    free = policy_loss(OLD, OLD, OLD, A, N, settings_of("sapo", {}))
    weighed = policy_loss(OLD, OLD, OLD + math.log(2), A, N, settings_of("sapo", {}))
    capped = policy_loss(OLD, OLD, OLD - 3, A, N, settings_of("sapo", {}, tis_cap=1.5))
    assert float(weighed.loss) == pytest.approx(float(free.loss) / 2)
    assert float(capped.loss) == pytest.approx(float(free.loss) * 1.5)


@pytest.mark.parametrize(
    ("divergence", "cap", "blocked", "mean"),
    [
        ("tv", 20.0, [0, 1, 2, 3, 7], -1.662062698413),
        ("tv", None, [0, 1, 2, 3, 7], -14.519205555556),
        ("kl", 20.0, [0, 1, 2, 3, 4, 5, 7, 12], -1.507142857143),
        ("kl", None, [0, 1, 2, 3, 4, 5, 7, 12], -14.364285714286),
    ],
)
def test_dppo_blocks_what_trl_blocks_and_has_its_gradient(
    divergence: str, cap: float | None, blocked: list[int], mean: float
) -> None:
    """Masks of trl 1.4.0's DPPOTrainer._compute_divergence_mask with its thresholds, and the mean
    of -advantages * ratio * mask, its loss by the log-prob: numbers that its own code gave."""
    options: dict[str, object] = {"divergence": divergence, "ratio_cap": cap}
    lp, mu = NOW.log(), SAMPLED.log()
    _, gradient, clipped = loss_and_gradient("dppo", options, lp, lp, mu, PUSHED)
    assert clipped.nonzero().flatten().tolist() == blocked
    assert float(gradient.mean()) == pytest.approx(mean, abs=1e-11)
    ratio = (NOW / SAMPLED).clamp(max=cap or 1e9)
    torch.testing.assert_close(gradient, (-PUSHED * ratio).masked_fill(clipped, 0.0))


@pytest.mark.parametrize(
    ("divergence", "threshold", "lp", "advantages", "kept"),
    [
        ("tv", 0.2, (-0.3, -2.0, -0.9), (1.0, -1.0, 1.0), (0, 0, 1)),
        ("tv", 0.2, (-2.0, -0.3), (1.0, -1.0), (1, 1)),
        ("kl", 0.05, (-0.1, -0.95), (1.0, 1.0), (0, 1)),
        ("kl", 0.5, (-1.01, -0.99), (1.0, -1.0), (1, 1)),
    ],
    ids=["masked", "the other way", "kl", "kl within"],
)
def test_dppo_has_the_loss_that_skyrl_tests(
    divergence: str,
    threshold: float,
    lp: tuple[float, ...],
    advantages: tuple[float, ...],
    kept: tuple[int, ...],
) -> None:
    """Cases of SkyRL's `test_dppo_policy_loss`: all log-probs were -1 when they were sampled."""
    mu = torch.full((len(lp),), -1.0, dtype=torch.float64)
    options: dict[str, object] = {
        "divergence": divergence, "threshold": threshold, "ratio_cap": None,
    }  # fmt: skip
    loss, _, _ = loss_and_gradient("dppo", options, floats(*lp), mu, mu, floats(*advantages))
    expected = -(floats(*lp) - mu).exp() * floats(*advantages) * floats(*kept)
    torch.testing.assert_close(loss, expected)


def test_dppo_has_the_golden_value_of_prime_rl() -> None:
    """Its default loss is this one with a threshold of 0.2, and 0.001 (lp - mu)^2 a token."""
    terms = policy_loss(LP, OLD, MU, A, N, settings_of("dppo", {"threshold": 0.2}))
    drift = 1e-3 * float((LP - MU).square().mean())
    assert float(terms.loss) + drift == pytest.approx(0.098655480546, abs=1e-11)


def test_divergences_are_those_of_two_bins() -> None:
    bins = [torch.stack([p, 1 - p]) for p in (SAMPLED, NOW)]
    kl = (bins[0] * (bins[0] / bins[1]).log()).sum(0)
    torch.testing.assert_close(total_variation(NOW.log(), SAMPLED.log()), (NOW - SAMPLED).abs())
    torch.testing.assert_close(binary_kl(NOW.log(), SAMPLED.log()), kl)


def test_dppo_reads_the_policy_that_sampled_and_not_the_one_before_the_update() -> None:
    """Section 5.2: a trust region around a recomputed policy lets the gap to the engine grow."""
    options: dict[str, object] = {"ratio_cap": None}
    one, other = (
        policy_loss(LP, old, MU, A, N, settings_of("dppo", options, tis_cap=cap)).loss
        for old, cap in ((OLD, 1e9), (LP, 0.1))
    )
    assert one == other
    moved = policy_loss(LP, OLD, MU - 0.5, A, N, settings_of("dppo", options)).loss
    assert float(moved) != pytest.approx(float(one))


@pytest.mark.parametrize("divergence", ["tv", "kl"])
def test_certain_and_impossible_tokens_stay_finite(divergence: str) -> None:
    lp = torch.tensor([0.0, -1e4, 0.0, -1e-9, 1e-7, -30.0])
    mu = torch.tensor([-1e4, 0.0, 0.0, -30.0, -1e-8, -1e4])
    for sign in (1.0, -1.0):
        loss, gradient, _ = loss_and_gradient(
            "dppo", {"divergence": divergence}, lp, lp, mu, torch.full_like(lp, sign)
        )
        assert loss.isfinite().all()
        assert gradient.isfinite().all()
        assert loss.abs().max() <= 20.0 + 1e-5


@pytest.mark.parametrize("loss", ["sapo", "dppo"])
def test_what_a_teacher_says_is_bounded_like_a_reward(loss: str) -> None:
    """The sampled form of distillation is a policy gradient by the pull: the same loss of it."""
    zeros, ones = torch.zeros_like(LP), torch.ones_like(LP)
    pull = (REF - OLD).clamp(-5, 5)
    taught = policy_loss(
        LP, OLD, MU, zeros, N, settings_of(loss, {}), distill_M=ones, teacher_M=REF
    )
    rewarded = policy_loss(LP, OLD, MU, pull, N, settings_of(loss, {}))
    torch.testing.assert_close(taught.loss, rewarded.loss)
    assert torch.equal(taught.clipped, rewarded.clipped)
