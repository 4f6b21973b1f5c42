"""Gradients of every term of the loss equal finite differences of its value."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from clawrl_gym.trainers.losses.gspo import sequence_ratio
from clawrl_gym.trainers.losses.loss import policy_loss
from clawrl_gym.trainers.models.distillation import topk_divergence
from tests.trainers.loss_settings import inputs, loss_settings

M = 12
DRAW = torch.Generator().manual_seed(5)
ROWS = torch.tensor([0] * 5 + [1] * 4 + [2] * 3)
REDUCTIONS = ("token_mean", "sequence_mean", "constant")


def draw(scale: float, shift: float = 0.0) -> Tensor:
    return shift + scale * torch.randn(M, generator=DRAW, dtype=torch.float64)


LP = draw(0.5, -2.0)
OLD = LP + draw(0.2)
MU = OLD + draw(0.3)
REF = LP + draw(0.5)
TEACHER = LP + draw(1.0)
ADVANTAGES = draw(1.0)
WEIGHTS = draw(1.0).abs()
ZEROS = torch.zeros_like(LP)


def check(loss: Callable[..., Tensor], at: Tensor) -> None:
    assert torch.autograd.gradcheck(loss, (at.clone().requires_grad_(),), eps=1e-7, atol=1e-6)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("term", ["reward", "kl", "sampled", "all"])
def test_gradient_of_a_term_is_that_of_finite_differences(reduction: str, term: str) -> None:
    kl_coef = 0.3 if term in ("kl", "all") else 0.0
    settings = loss_settings(0.1, 0.2, 1.5, kl_coef, reduction=reduction)

    def loss(lp: Tensor) -> Tensor:
        taught = term in ("sampled", "all")
        return policy_loss(
            lp,
            OLD,
            MU,
            ADVANTAGES if term in ("reward", "all") else ZEROS,
            M,
            settings,
            REF if kl_coef else None,
            distill_M=WEIGHTS if taught else None,
            teacher_M=TEACHER if taught else None,
            gap_clip=0.8,
            rows_M=ROWS,
            sequences=3,
        ).loss

    assert loss(LP) != 0
    check(loss, LP)


def test_gradient_of_gspo_is_that_of_the_sequence_ratio_where_advantages_are_equal() -> None:
    advantages = torch.tensor([1.0, -0.5, 2.0], dtype=torch.float64)[ROWS]
    settings = loss_settings(0.3, 0.3, 1e9, 0.0, "gspo", "sequence_mean")

    def loss(lp: Tensor) -> Tensor:
        return policy_loss(
            lp, OLD, OLD, advantages, M, settings, rows_M=ROWS, sequences=3
        ).loss  # fmt: skip

    assert float(sequence_ratio(inputs(LP, OLD, OLD, advantages, ROWS)).min()) > 0.7
    check(loss, LP)


def test_turns_of_one_sequence_keep_their_own_advantages_under_gspo() -> None:
    """A step-wise sample holds good and bad turns; their mean would teach neither."""
    lp = LP.clone().requires_grad_()
    advantages = torch.tensor([1.0, -1.0] * 6, dtype=torch.float64)
    settings = loss_settings(9.0, 9.0, 1e9, 0.0, "gspo")
    policy_loss(lp, OLD, OLD, advantages, M, settings, rows_M=ROWS).loss.backward()
    assert lp.grad is not None
    assert (lp.grad.sign() == -advantages).all()


def test_gradient_of_cispo_is_that_of_a_logprob_with_a_fixed_weight() -> None:
    lp = LP.clone().requires_grad_()
    settings = loss_settings(0.1, 0.2, 1.5, 0.0, "cispo")
    terms = policy_loss(lp, OLD, MU, ADVANTAGES, M, settings)
    terms.loss.backward()
    weight = (LP - OLD).exp().clamp(0.9, 1.2) * (OLD - MU).exp().clamp(max=1.5)
    assert terms.clipped.any()
    assert lp.grad is not None
    torch.testing.assert_close(lp.grad, -weight * ADVANTAGES / M)


@pytest.mark.parametrize("kind", ["reverse", "forward", "js"])
def test_gradient_of_a_topk_divergence_is_that_of_finite_differences(kind: str) -> None:
    logits = torch.randn(M, 9, generator=DRAW, dtype=torch.float64)
    teacher = torch.randn(M, 9, generator=DRAW, dtype=torch.float64).log_softmax(-1)
    ids = logits.topk(4).indices
    settings = loss_settings(0.1, 0.2, 1.5, 0.0, reduction="sequence_mean")

    def loss(logits: Tensor) -> Tensor:
        student = logits.log_softmax(-1).gather(-1, ids)
        divergence = topk_divergence(student, teacher.gather(-1, ids), kind)  # type: ignore[arg-type]
        return policy_loss(
            LP, LP, LP, ZEROS, M, settings, distill_M=WEIGHTS, divergence_M=divergence,
            rows_M=ROWS, sequences=3,
        ).loss  # fmt: skip

    assert loss(logits) > 0
    check(loss, logits)


@pytest.mark.parametrize("source", ["old", "mu", "ref", "teacher"])
def test_only_the_learner_gets_gradient(source: str) -> None:
    streams = {"lp": LP, "old": OLD, "mu": MU, "ref": REF, "teacher": TEACHER}
    given = {name: stream.clone().requires_grad_() for name, stream in streams.items()}
    policy_loss(
        given["lp"], given["old"], given["mu"], ADVANTAGES, M,
        loss_settings(0.1, 0.2, 1.5, 0.3), given["ref"],
        distill_M=WEIGHTS, teacher_M=given["teacher"],
    ).loss.backward()  # fmt: skip
    assert given["lp"].grad is not None
    assert given[source].grad is None
