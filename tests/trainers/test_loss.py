"""The loss agrees with an independent statement of its equations, to the last digits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from clawrl_gym.core.errors import TrainerError
from clawrl_gym.core.plugins import LOSSES
from clawrl_gym.trainers.losses.loss import (
    k1,
    k2,
    k3,
    policy_loss,
    token_mean,
    truncated_importance,
)
from clawrl_gym.trainers.losses.ppo import Clipping, clipped_surrogate
from clawrl_gym.trainers.losses.token_loss import ratio
from tests.reference import formulas
from tests.trainers.loss_settings import loss_settings, settings_of

NO_CAP = 1e9


def tokens(rows: np.ndarray) -> Tensor:
    return torch.from_numpy(rows[formulas.MASK])


LP, OLD, MU, REF, A = (
    tokens(rows)
    for rows in (formulas.LP, formulas.OLD, formulas.MU, formulas.REF, formulas.ADVANTAGES)
)
N = len(LP)


def loss_of(low: float, high: float, cap: float, kl_coef: float = 0.0) -> float:
    settings = loss_settings(low, high, cap, kl_coef)
    return float(policy_loss(LP, OLD, MU, A, N, settings, REF if kl_coef else None).loss)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.2, 0.2, 0.196850141956), (0.2, 0.28, 0.193792605076)],
)
def test_the_clipped_surrogate_has_its_golden_values(
    low: float, high: float, expected: float
) -> None:
    surrogate, _ = clipped_surrogate(ratio(LP, OLD), A, Clipping(clip_low=low, clip_high=high))
    assert float(token_mean(surrogate, N)) == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize(("cap", "expected"), [(2.0, 0.114536070815), (1.05, 0.167455786512)])
def test_truncated_importance_sampling_has_its_golden_values(cap: float, expected: float) -> None:
    assert loss_of(0.2, 0.2, cap) == pytest.approx(expected, abs=1e-11)


def test_kl_estimates_have_their_golden_values() -> None:
    means = [float(token_mean(estimate(LP, REF), N)) for estimate in (k1, k2, k3)]
    assert means == pytest.approx([-0.05, 0.025892857143, 0.029275708655], abs=1e-11)


@pytest.mark.parametrize("settings", [(0.2, 0.28, 2.0, 0.0), (0.1, 0.3, 1.05, 0.05)])
def test_the_whole_loss_equals_the_statement_in_numpy(
    settings: tuple[float, float, float, float],
) -> None:
    assert loss_of(*settings) == pytest.approx(formulas.mean_loss(*settings), abs=1e-12)


def test_the_denominator_is_the_whole_batch_however_it_is_split() -> None:
    settings = loss_settings(0.2, 0.28, 2.0, 0.1)
    parts = [
        policy_loss(LP[part], OLD[part], MU[part], A[part], N, settings, REF[part]).loss
        for part in (slice(0, 3), slice(3, 4), slice(4, 4), slice(4, N))
    ]
    whole = policy_loss(LP, OLD, MU, A, N, settings, REF).loss
    assert float(torch.stack(parts).sum()) == pytest.approx(float(whole), abs=1e-12)


@pytest.mark.parametrize("loss", LOSSES.builtin)
@pytest.mark.parametrize("reduction", ["token_mean", "sequence_mean", "constant"])
def test_a_batch_may_be_split_between_sequences(loss: str, reduction: str) -> None:
    settings = settings_of(
        loss, {}, tis_cap=2.0, kl_coef=0.1, reduction=reduction, constant_length=8
    )

    def part(here: Tensor, rows: Tensor) -> Tensor:
        return policy_loss(
            LP[here], OLD[here], MU[here], A[here], N, settings, REF[here],
            distill_M=A[here].abs(), teacher_M=REF[here], rows_M=rows[here], sequences=2,
        ).loss  # fmt: skip

    rows = torch.tensor([0] * 4 + [1] * 3)
    whole = part(torch.ones(N, dtype=torch.bool), rows)
    first, second, none = (part(rows == n, torch.zeros_like(rows)) for n in range(3))
    assert float(whole) != 0
    assert none == 0
    torch.testing.assert_close(first + second, whole)


def test_a_sequence_mean_gives_each_sequence_the_same_weight() -> None:
    lp = OLD.clone().requires_grad_()
    settings = loss_settings(0.2, 0.28, 2.0, 0.0, reduction="sequence_mean")
    rows = torch.tensor([0] * 6 + [1])
    ones = torch.ones_like(OLD)
    policy_loss(lp, OLD, OLD, ones, N, settings, rows_M=rows, sequences=2).loss.backward()
    assert lp.grad is not None
    assert lp.grad.tolist() == pytest.approx([-1 / 12] * 6 + [-1 / 2])


@pytest.mark.parametrize(
    ("forms", "given", "message"),
    [
        ({"reduction": "sequence_mean"}, {"sequences": 2}, "expected the sequence of each token"),
        ({"reduction": "constant"}, {}, "got no number of sequences"),
        ({"reduction": "sequence_mean"}, {"rows_M": torch.zeros(N).long()}, "no number of sequ"),
        ({}, {"rows_M": torch.zeros(2).long()}, r"got rows of shape \(2,\), expected \(7,\)"),
    ],
)
def test_a_form_without_what_it_needs_is_refused(
    forms: dict[str, Any], given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        policy_loss(LP, OLD, MU, A, N, loss_settings(0.2, 0.28, 2.0, 0.0, **forms), **given)


def test_gspo_without_rows_is_refused() -> None:
    with pytest.raises(TrainerError, match="expected the sequence of each token for 'gspo'"):
        policy_loss(LP, OLD, MU, A, N, loss_settings(0.2, 0.28, 2.0, 0.0, "gspo"))


def test_clipped_tokens_stay_in_the_denominator() -> None:
    lp = torch.tensor([1.0, 0.0], dtype=torch.float64)
    zero, ones = torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    terms = policy_loss(lp, zero, zero, ones, 2, loss_settings(0.2, 0.28, NO_CAP, 0.0))
    assert terms.clipped.tolist() == [True, False]
    assert float(terms.loss) == pytest.approx(-(1.28 + 1.0) / 2)


def test_at_the_old_policy_the_gradient_is_that_of_reinforce() -> None:
    lp = OLD.clone().requires_grad_()
    policy_loss(lp, OLD, OLD, A, N, loss_settings(0.2, 0.28, 2.0, 0.0)).loss.backward()
    assert lp.grad is not None
    torch.testing.assert_close(lp.grad, -A / N)


def test_importance_weights_scale_the_gradient_and_carry_none() -> None:
    lp = OLD.clone().requires_grad_()
    policy_loss(lp, lp, MU, A, N, loss_settings(0.2, 0.28, 2.0, 0.0)).loss.backward()
    assert lp.grad is not None
    torch.testing.assert_close(lp.grad, -A / N * (OLD - MU).exp().clamp(max=2.0))


def test_a_clipped_token_gives_no_gradient() -> None:
    lp = LP.clone().requires_grad_()
    terms = policy_loss(lp, OLD, OLD, A, N, loss_settings(0.2, 0.2, NO_CAP, 0.0))
    terms.loss.backward()
    assert lp.grad is not None
    assert terms.clipped.any()
    assert ((lp.grad == 0) == terms.clipped).all()


def test_the_kl_term_pulls_towards_the_reference() -> None:
    lp = torch.tensor([-1.0, -3.0], dtype=torch.float64, requires_grad=True)
    ref = torch.tensor([-2.0, -2.0], dtype=torch.float64)
    none = torch.zeros(2, dtype=torch.float64)
    settings = loss_settings(0.2, 0.28, 2.0, 1.0)
    policy_loss(lp, lp.detach(), lp.detach(), none, 2, settings, ref).loss.backward()
    assert lp.grad is not None
    assert lp.grad[0] > 0 > lp.grad[1]


@pytest.mark.parametrize("estimate", [k2, k3])
def test_kl_estimates_are_never_negative_and_zero_only_at_the_reference(estimate: object) -> None:
    assert callable(estimate)
    grid = torch.linspace(-5, 0, 101, dtype=torch.float64)
    values = estimate(grid, torch.full_like(grid, -2.5))
    assert (values >= 0).all()
    assert int((values == 0).sum()) == 1


def test_a_permutation_of_tokens_changes_nothing() -> None:
    order = torch.tensor([6, 2, 0, 5, 1, 4, 3])
    settings = loss_settings(0.2, 0.28, 2.0, 0.1)
    whole = policy_loss(LP, OLD, MU, A, N, settings, REF).loss
    mixed = policy_loss(LP[order], OLD[order], MU[order], A[order], N, settings, REF[order]).loss
    torch.testing.assert_close(mixed, whole)


def test_extreme_log_ratios_stay_finite() -> None:
    lp = torch.tensor([-0.0, -1e4], requires_grad=True)
    far = torch.tensor([-1e4, -0.0])
    terms = policy_loss(lp, far, -far, torch.ones(2), 2, loss_settings(0.2, 0.28, 2.0, 0.1), far)
    terms.loss.backward()
    assert terms.loss.isfinite()
    assert lp.grad is not None
    assert lp.grad.isfinite().all()
    assert ratio(lp, far).isfinite().all()


def test_no_tokens_give_a_loss_of_zero() -> None:
    empty = torch.zeros(0, requires_grad=True)
    terms = policy_loss(empty, empty, empty, empty, 0, loss_settings(0.2, 0.28, 2.0, 0.0))
    assert terms.loss.item() == 0.0
    assert truncated_importance(empty, empty, 2.0).shape == (0,)
