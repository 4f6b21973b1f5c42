"""Every form of the loss has the values of an independent statement of its equation, in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from clawrl_gym.trainers.losses.cispo import weighted_logprob
from clawrl_gym.trainers.losses.gspo import sequence_ratio
from clawrl_gym.trainers.losses.loss import LossSettings, cut_gap, policy_loss, reduce
from clawrl_gym.trainers.losses.ppo import Clipping
from clawrl_gym.trainers.losses.token_loss import ratio, sequence_means
from clawrl_gym.trainers.models.distillation import topk_divergence
from tests.reference import formulas
from tests.trainers.loss_settings import inputs, loss_settings

FREE = 1e9
"""A bound, cap or clip that is never reached."""


def tokens(rows: np.ndarray) -> Tensor:
    return torch.from_numpy(rows[formulas.MASK])


LP, OLD, MU, REF, A = (
    tokens(rows)
    for rows in (formulas.LP, formulas.OLD, formulas.MU, formulas.REF, formulas.ADVANTAGES)
)
ROWS = torch.from_numpy(np.nonzero(formulas.MASK)[0])
N = len(LP)


def settings(low: float, high: float, **forms: Any) -> LossSettings:
    return loss_settings(low, high, FREE, 0.0, **forms)


def whole_loss(advantages: Tensor, chosen: LossSettings) -> float:
    """With the proximal policy as behaviour policy, so that no importance weight matters."""
    return float(policy_loss(LP, OLD, OLD, advantages, N, chosen, rows_M=ROWS, sequences=2).loss)


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (settings(0.2, 0.2), 0.196850141956),
        (settings(0.2, 0.2, reduction="sequence_mean"), 0.373221071983),
        (settings(0.2, 0.2, reduction="constant", constant_length=8), 0.086121937106),
        (settings(0.2, 0.28), 0.193792605076),
        (settings(3e-4, 4e-4, loss="gspo", reduction="sequence_mean"), 0.320199034346),
        (settings(1.0, 4.0, loss="cispo"), -0.447938145078),
    ],
    ids=["ppo", "sequence mean", "dr grpo", "dapo", "gspo", "cispo"],
)
def test_a_form_of_the_loss_has_its_golden_value(chosen: LossSettings, expected: float) -> None:
    assert whole_loss(A, chosen) == pytest.approx(expected, abs=1e-11)


def test_cispo_has_the_published_value_of_three_tokens() -> None:
    lp = torch.tensor([-1.69315, -1.0, -0.69741], dtype=torch.float64)
    old = torch.tensor([-1.0, -1.0, -3.0], dtype=torch.float64)
    advantages = torch.tensor([1.0, -1.0, -4.0], dtype=torch.float64)
    loss, cut = weighted_logprob(
        lp, ratio(lp, old), advantages, Clipping(clip_low=0.2, clip_high=0.2)
    )
    assert float(loss.sum()) == pytest.approx(-2.993048, abs=1e-9)
    assert cut.tolist() == [True, False, True]


def test_sequence_ratios_of_gspo_have_their_golden_values() -> None:
    ratios = sequence_ratio(inputs(LP, OLD, OLD, A, ROWS))
    first, second = 0.802518797962, 1.442916866655
    assert ratios.tolist() == pytest.approx([first] * 4 + [second] * 3, abs=1e-11)


def test_geometric_mean_ratios_of_sequences_have_their_golden_values() -> None:
    means = sequence_means(OLD - MU, ROWS).exp()
    assert means.tolist() == pytest.approx([1.2305977168] * 4 + [0.9933555063] * 3, abs=1e-9)


def test_untruncated_importance_sampling_has_its_golden_sum() -> None:
    terms = policy_loss(LP, MU, MU, A, 1, settings(FREE, FREE))
    assert float(terms.loss) == pytest.approx(0.689695463824, abs=1e-11)


def test_rejected_tokens_stay_in_the_denominator() -> None:
    """0.2307 of all tokens, not the 0.2691 of a mean over those that were kept."""
    kept = ratio(OLD, MU) <= 1.2
    terms = policy_loss(LP, OLD, MU, A, N, settings(0.2, 0.2, token_ratio_max=1.2))
    assert terms.masked_M.tolist() == (~kept).tolist()
    assert float(terms.loss) == pytest.approx(0.230698830741, abs=1e-11)
    assert float(terms.loss) * N / int(kept.sum()) == pytest.approx(0.269148635865, abs=1e-11)


def test_a_band_of_importance_weights_keeps_the_denominator_too() -> None:
    band = settings(0.2, 0.2, token_ratio_min=0.95, token_ratio_max=1.2)
    terms = policy_loss(LP, OLD, MU, A, N, band)
    assert float(terms.loss) == pytest.approx(-0.120673042281, abs=1e-11)


@pytest.mark.parametrize(
    ("low", "high", "rows"),
    [(0.99, 1.2, [1]), (0.995, None, [0]), (1.0, 1.2, []), (0.9, 2, [0, 1])],
)
def test_sequences_are_masked_by_their_geometric_mean(
    low: float, high: float | None, rows: list[int]
) -> None:
    """1.2306 of the first, 0.9934 of the second."""
    chosen = settings(0.2, 0.2, sequence_ratio_min=low, sequence_ratio_max=high)
    terms = policy_loss(LP, OLD, MU, A, N, chosen, rows_M=ROWS)
    expected = formulas.mean_loss(0.2, 0.2, FREE, rows=rows)
    assert float(terms.loss) == pytest.approx(expected, abs=1e-12)
    assert sorted(set(ROWS[~terms.in_masked_sequence_M].tolist())) == rows


def test_what_is_masked_gives_no_gradient_whatever_its_term() -> None:
    lp = LP.clone().requires_grad_()
    ones = torch.ones_like(LP)
    chosen = loss_settings(0.2, 0.2, FREE, 0.1, token_ratio_max=1.2)
    terms = policy_loss(lp, OLD, MU, A, N, chosen, REF, distill_M=ones, teacher_M=REF)
    terms.loss.backward()
    assert lp.grad is not None
    assert ((lp.grad == 0) == terms.masked_M).all()


@pytest.mark.parametrize("gap", [math.inf, -math.inf, 1e4, -1e4])
def test_a_ratio_without_bounds_is_masked_and_spoils_nothing(gap: float) -> None:
    lp = LP.clone().requires_grad_()
    mu = MU.clone()
    mu[2] += gap
    bounds = {"token_ratio_min": 0.1, "sequence_ratio_max": 3.0}
    terms = policy_loss(lp, OLD, mu, A, N, settings(0.2, 0.2, **bounds), rows_M=ROWS)
    assert terms.masked_M[2]
    terms.loss.backward()
    assert terms.loss.isfinite()
    assert lp.grad is not None
    assert lp.grad.isfinite().all()


def test_the_corrected_kl_has_the_value_of_its_statement() -> None:
    zeros = torch.zeros_like(LP)
    values = {}
    for cap in (FREE, 1.05):
        chosen = loss_settings(FREE, FREE, cap, 1.0, kl_correction=True)
        values[cap] = float(policy_loss(LP, OLD, MU, zeros, N, chosen, REF).loss)
        assert values[cap] == pytest.approx(formulas.corrected_kl(cap), abs=1e-12)
    assert values[FREE] == pytest.approx(0.031873324761, abs=1e-11)


def test_the_corrected_kl_of_stale_samples_has_the_exact_value_and_gradient() -> None:
    """Each token weighted with how often an older policy samples it; uncorrected, both are off."""
    logits, reference = softmax_case()
    lp = logits.log_softmax(-1)
    mu = torch.tensor([0.3, 0.1, 0.2, 0.35, 0.05], dtype=torch.float64).log()
    exact = (lp.exp() * (lp - reference)).sum()
    (exact_gradient,) = torch.autograd.grad(exact, logits, retain_graph=True)
    for corrected in (True, False):
        chosen = loss_settings(FREE, FREE, FREE, 1.0, kl_correction=corrected)
        often, zero = mu.exp(), torch.zeros(1, dtype=torch.float64)
        losses = [
            policy_loss(lp[at], lp[at], mu[at], zero, 1, chosen, reference[at]).loss
            for at in torch.arange(5).split(1)
        ]
        loss = (often * torch.stack(losses)).sum()
        (gradient,) = torch.autograd.grad(loss, logits, retain_graph=True)
        assert torch.allclose(loss, exact, atol=1e-12) == corrected
        assert torch.allclose(gradient, exact_gradient, atol=1e-12) == corrected


def test_sampled_distillation_has_its_golden_advantages_and_sum() -> None:
    zeros, ones = torch.zeros_like(LP), torch.ones_like(LP)
    terms = policy_loss(LP, MU, MU, zeros, 1, settings(FREE, FREE), distill_M=ones, teacher_M=REF)
    expected = [0.05, -0.2, -0.05, 0.4, 0.3, -0.22, 1.1]
    assert terms.gap_M is not None
    assert cut_gap(terms.gap_M, FREE).tolist() == pytest.approx(expected, abs=1e-12)
    assert float(terms.loss) == pytest.approx(-3.045399737337, abs=1e-11)


def test_reward_and_gap_added_into_one_advantage_have_the_reference_value() -> None:
    """Here each of the two has its own bound instead; they agree where neither is active."""
    chosen = settings(0.2, 0.28, reduction="sequence_mean")
    assert whole_loss(A + REF - OLD, chosen) == pytest.approx(-0.089084501357, abs=1e-11)
    free = settings(FREE, FREE, reduction="sequence_mean")
    apart = policy_loss(
        LP, OLD, OLD, A, N, free, distill_M=torch.ones_like(A), teacher_M=REF,
        rows_M=ROWS, sequences=2,
    ).loss  # fmt: skip
    assert float(apart) == pytest.approx(whole_loss(A + REF - OLD, free), abs=1e-12)


def test_topk_with_a_tail_has_its_golden_value() -> None:
    student, teacher = torch.tensor(
        [[[0.5, 0.2, 0.1]], [[0.4, 0.3, 0.05]]], dtype=torch.float64
    ).log()
    assert topk_divergence(student, teacher, "reverse").tolist() == pytest.approx(
        [0.055164761829], abs=1e-11
    )
    p, q = np.array([0.5, 0.2, 0.1, 0.2]), np.array([0.4, 0.3, 0.05, 0.25])
    middle = (p + q) / 2
    forward = float((q * np.log(q / p)).sum())
    js = float((p * np.log(p / middle)).sum() + (q * np.log(q / middle)).sum()) / 2
    assert topk_divergence(student, teacher, "forward").item() == pytest.approx(forward, abs=1e-12)
    assert topk_divergence(student, teacher, "js").item() == pytest.approx(js, abs=1e-12)


def softmax_case() -> tuple[Tensor, Tensor]:
    """Logits with gradient of a policy, and log-probs of a teacher, over five tokens."""
    draw = np.random.default_rng(0)
    logits = torch.from_numpy(draw.normal(size=5)).requires_grad_()
    teacher = torch.from_numpy(draw.normal(size=5)).log_softmax(-1)
    return logits, teacher


EXACT = [-0.019472, -0.202738, -0.05655, 0.187951, 0.090809]
"""Gradient of KL(policy || teacher) with respect to the logits of `softmax_case`."""


def expected_gradient(teacher: Tensor, logits: Tensor) -> list[float]:
    """Gradient of sampled distillation: each token weighted by how often the policy samples it."""
    lp = logits.log_softmax(-1)
    often = lp.detach().exp()
    terms = policy_loss(
        lp, lp, lp, torch.zeros_like(lp), 1, settings(0.2, 0.28),
        distill_M=often, teacher_M=teacher,
    )  # fmt: skip
    (gradient,) = torch.autograd.grad(terms.loss, logits)
    return [float(value) for value in gradient]


def test_sampled_distillation_has_the_exact_gradient_of_the_reverse_kl() -> None:
    logits, teacher = softmax_case()
    assert expected_gradient(teacher, logits) == pytest.approx(EXACT, abs=1e-6)


def test_the_difference_of_logprobs_as_a_loss_would_not_learn_anything() -> None:
    """Why the gap is an advantage: as a loss its expected gradient knows no teacher."""
    logits, teacher = softmax_case()
    lp = logits.log_softmax(-1)
    (gradient,) = torch.autograd.grad((lp.detach().exp() * (lp - teacher)).sum(), logits)
    assert gradient.abs().max() < 1e-12
    assert max(map(abs, expected_gradient(teacher, logits))) > 0.1


def test_all_tokens_but_one_and_a_tail_have_the_exact_gradient_too() -> None:
    logits, teacher = softmax_case()
    lp = logits.log_softmax(-1)
    ids = lp.topk(4).indices
    loss = topk_divergence(lp[ids][None], teacher[ids][None], "reverse").sum()
    (gradient,) = torch.autograd.grad(loss, logits)
    assert gradient.tolist() == pytest.approx(EXACT, abs=1e-6)


def test_reduce_of_a_part_is_its_share_of_the_whole() -> None:
    values = LP * A
    for chosen in (settings(0, 0, reduction=name) for name in ("sequence_mean", "constant")):
        whole = reduce(values, N, chosen, ROWS, 2)
        parts = [
            reduce(values[here], N, chosen, torch.zeros_like(ROWS[here]), 2)
            for here in (ROWS.eq(0), ROWS.eq(1))
        ]
        assert math.isclose(float(sum(parts)), float(whole), abs_tol=1e-12)
