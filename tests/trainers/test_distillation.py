"""Distillation: what the teacher says moves the learner that way, and what it does not, does not.

Both forms: a policy gradient on the gap of sampled tokens, and a divergence over likely tokens.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from clawrl_gym.trainers.losses.loss import policy_loss
from clawrl_gym.trainers.models.distillation import (
    overlap,
    topk_divergence,
    topk_logprobs,
    with_tail,
)
from tests.trainers.loss_settings import loss_settings

Kind = Literal["reverse", "forward", "js"]
KINDS: tuple[Kind, ...] = ("reverse", "forward", "js")
SETTINGS = loss_settings(0.2, 0.28, 2.0, 0.0)
NAN = math.nan
LP = torch.tensor([-1.0, -2.0, -0.5, -3.0], dtype=torch.float64)


def gradient(
    advantages: list[float], distill: list[float] | None, teacher: list[float], gap_clip: float = 5
) -> list[float]:
    lp = LP.clone().requires_grad_()
    terms = policy_loss(
        lp, LP, LP, torch.tensor(advantages).double(), len(lp), SETTINGS,
        distill_M=None if distill is None else torch.tensor(distill).double(),
        teacher_M=torch.tensor(teacher).double(),
        gap_clip=gap_clip,
    )  # fmt: skip
    terms.loss.backward()
    assert lp.grad is not None
    return [float(value) for value in lp.grad]


def test_a_token_that_the_teacher_would_not_say_becomes_less_likely() -> None:
    """The reference's Tinker mode added +1 to every corrected reply, so that mistakes grew."""
    slopes = gradient([0.0] * 4, [1.0] * 4, [-4.0, -1.0, -0.5, -3.2])
    assert slopes[0] > 0 > slopes[1]  # descending: the first falls, the second rises
    assert slopes[2] == 0
    assert slopes[3] > 0


def test_a_hint_alone_brings_no_reward_of_its_own() -> None:
    """In the reference a reply that needed a hint had advantage +1 before the teacher spoke."""
    assert gradient([0.0] * 4, [1.0] * 4, LP.tolist()) == [0.0] * 4


def test_a_token_without_a_lesson_has_exactly_the_gradient_of_its_reward() -> None:
    """The reference subtracted the engine's log-probs there, which is noise and not 0."""
    mixed = gradient([1.0, 1.0, -1.0, 0.0], [0.0, 1.0, 0.0, 0.0], [NAN, -1.0, NAN, NAN])
    reward = gradient([1.0, 1.0, -1.0, 0.0], None, [NAN] * 4)
    assert [mixed[0], mixed[2], mixed[3]] == [reward[0], reward[2], reward[3]]
    assert mixed[1] == pytest.approx(reward[1] - 1.0 / 4)


def test_a_weight_on_a_token_that_the_teacher_never_read_does_nothing() -> None:
    assert gradient([0.0] * 4, [1.0] * 4, [NAN] * 4) == [0.0] * 4


def test_a_gap_is_cut_so_that_one_token_cannot_drown_the_rest() -> None:
    """In the reference a single unlikely token could weigh more than ten rewards."""
    slopes = gradient([0.0] * 4, [1.0] * 4, [-40.0, -math.inf, 0.0, -3.0], gap_clip=2.0)
    assert slopes == pytest.approx([0.5, 0.5, -0.5 / 4, 0.0])


def test_the_gap_that_is_reported_is_not_cut_and_says_where_there_is_none() -> None:
    terms = policy_loss(
        LP, LP, LP, torch.zeros_like(LP), 4, SETTINGS,
        teacher_M=torch.tensor([-31.0, NAN, -0.5, -3.0]).double(),
    )  # fmt: skip
    assert terms.gap_M is not None
    assert terms.gap_M[0] == -30
    assert terms.gap_M.isnan().tolist() == [False, True, False, False]
    assert not terms.gap_M.requires_grad


def test_reward_and_gap_are_bounded_each_by_itself() -> None:
    """A reward whose clip is active must not silence what the teacher has to say."""
    lp = (LP + 0.5).requires_grad_()  # ratio 1.65: no more push up, push down is free
    ones = torch.ones_like(LP)
    terms = policy_loss(lp, LP, LP, ones, 4, SETTINGS, distill_M=ones, teacher_M=LP - 0.25)
    terms.loss.backward()
    assert terms.clipped.all()
    assert lp.grad is not None
    torch.testing.assert_close(lp.grad, ones * math.exp(0.5) * 0.25 / 4)


def test_the_sampled_form_is_corrected_for_the_policy_that_sampled() -> None:
    lp, ones = LP.clone().requires_grad_(), torch.ones_like(LP)
    mu = LP - torch.tensor([0.5, -0.5, 0.0, 3.0]).double()
    zeros = torch.zeros_like(LP)
    terms = policy_loss(lp, LP, mu, zeros, 4, SETTINGS, distill_M=ones, teacher_M=LP + 1)
    terms.loss.backward()
    assert lp.grad is not None
    assert lp.grad.tolist() == pytest.approx(
        [-math.exp(0.5) / 4, -math.exp(-0.5) / 4, -1 / 4, -2 / 4]
    )


def test_weights_without_a_teacher_are_refused() -> None:
    """In the reference a backend that knew no teacher trained something else without a word."""
    with pytest.raises(ValueError, match="expected a teacher's log-probs"):
        policy_loss(LP, LP, LP, LP, 4, SETTINGS, distill_M=torch.ones_like(LP))


def test_weights_of_zero_need_no_teacher() -> None:
    terms = policy_loss(LP, LP, LP, LP, 4, SETTINGS, distill_M=torch.zeros_like(LP))
    assert terms.loss == policy_loss(LP, LP, LP, LP, 4, SETTINGS).loss
    assert terms.gap_M is None


def test_a_divergence_takes_the_place_of_the_sampled_form() -> None:
    divergence = torch.tensor([0.5, 1.0, NAN, 2.0], dtype=torch.float64)
    weights = torch.tensor([1.0, 0.5, 0.0, 1.0], dtype=torch.float64)
    terms = policy_loss(
        LP, LP, LP + 1, torch.zeros_like(LP), 4, SETTINGS,
        distill_M=weights, teacher_M=LP - 1, divergence_M=divergence,
    )  # fmt: skip
    assert float(terms.loss) == pytest.approx((0.5 + 0.5 + 2.0) / 4)
    assert terms.gap_M is not None
    assert terms.gap_M.tolist() == [-1.0] * 4


def log_probs(rows: int, size: int, seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return (4 * torch.randn(rows, size, generator=draw, dtype=torch.float64)).log_softmax(-1)


@pytest.mark.parametrize("kind", KINDS)
def test_equal_distributions_have_no_divergence_and_no_gradient(kind: Kind) -> None:
    logits = log_probs(6, 50, 1).float().requires_grad_()
    student = logits.log_softmax(-1).topk(20).values
    divergence = topk_divergence(student, student, kind)
    divergence.sum().backward()
    assert divergence.abs().max() < 1e-6
    assert logits.grad is not None
    assert logits.grad.abs().max() < 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_more_tokens_tell_more_and_all_but_one_tell_all(kind: Kind) -> None:
    student, teacher = log_probs(5, 8, 2), log_probs(5, 8, 3)
    values = [topk_divergence(student[:, :size], teacher[:, :size], kind) for size in range(1, 8)]
    for fewer, more in pairwise(values):
        assert (fewer <= more + 1e-12).all()
    middle = torch.logaddexp(student, teacher) - math.log(2)
    forward, reverse = (
        (a.exp() * (a - b)).sum(-1) for a, b in ((teacher, student), (student, teacher))
    )
    js = sum((a.exp() * (a - middle)).sum(-1) for a in (student, teacher)) / 2
    whole = {"reverse": reverse, "forward": forward, "js": js}[kind]
    torch.testing.assert_close(values[-1], whole)


@settings(deadline=None)
@given(seed=st.integers(0, 10_000), kind=st.sampled_from(KINDS), size=st.integers(1, 12))
def test_a_divergence_is_never_negative_and_js_never_above_log_2(
    seed: int, kind: Kind, size: int
) -> None:
    student, teacher = (log_probs(3, 12, seed + n).float()[:, :size] for n in (0, 1))
    divergence = topk_divergence(student, teacher, kind)
    assert (divergence >= -1e-5).all()
    assert kind != "js" or (divergence <= math.log(2) + 1e-5).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_certain_impossible_and_missing_tokens_stay_finite(kind: Kind, dtype: torch.dtype) -> None:
    student = torch.tensor(
        [[0.0, -math.inf], [-200.0, -300.0], [-0.1, -3.0], [0.0, -1e4]], dtype=dtype
    ).requires_grad_()
    teacher = torch.tensor([[-math.inf, 0.0], [0.0, -1e4], [NAN, -1.0], [0.0, 0.0]], dtype=dtype)
    divergence = topk_divergence(student, teacher, kind)
    divergence.sum().backward()
    assert divergence.isfinite().all()
    assert student.grad is not None
    assert student.grad[1:].isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_that_the_teacher_lacks_teaches_nothing(kind: Kind) -> None:
    """The reference filled such rows with zeros: K tokens of probability 1, 16 nats of nothing."""
    student = log_probs(2, 4, 4)[:, :3].clone().requires_grad_()
    teacher = log_probs(2, 4, 5)[:, :3].clone()
    teacher[0] = NAN
    divergence = topk_divergence(student, teacher, kind)
    divergence.sum().backward()
    assert divergence[0] == 0
    assert divergence[1] > 0
    assert student.grad is not None
    assert (student.grad[0] == 0).all()
    assert student.grad[1].isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
def test_descending_the_divergence_reaches_the_teacher(kind: Kind) -> None:
    logits = torch.zeros(1, 6, dtype=torch.float64, requires_grad=True)
    teacher = log_probs(1, 6, 6) / 4
    teacher = teacher.log_softmax(-1)
    ids = teacher.topk(5).indices
    for _ in range(600):
        log_z = logits.logsumexp(-1)
        student = topk_logprobs(logits, log_z, ids)
        (slope,) = torch.autograd.grad(
            topk_divergence(student, teacher.gather(-1, ids), kind).sum(), logits
        )
        logits = (logits - 2 * slope).detach().requires_grad_()
    torch.testing.assert_close(logits.log_softmax(-1), teacher, atol=1e-3, rtol=0)


def test_a_tail_makes_the_bins_a_distribution() -> None:
    whole = with_tail(log_probs(7, 30, 7)[:, :5])
    assert whole.shape == (7, 6)
    torch.testing.assert_close(whole.exp().sum(-1), torch.ones(7, dtype=torch.float64))


def test_topk_logprobs_are_those_of_the_whole_softmax() -> None:
    logits = log_probs(4, 10, 8) + 3
    ids = logits.topk(3).indices
    torch.testing.assert_close(
        topk_logprobs(logits, logits.logsumexp(-1), ids), logits.log_softmax(-1).topk(3).values
    )


def test_overlap_is_the_share_of_the_students_tokens_in_any_order() -> None:
    student = torch.tensor([[1, 2, 3, 4], [1, 2, 3, 4], [9, 8, 7, 6], [0, 99, 5, 50]])
    teacher = torch.tensor([[4, 3, 2, 1], [1, 7, 8, 4], [1, 2, 3, 4], [99, 1, 2, 3]])
    assert overlap(student, teacher).tolist() == [1.0, 0.5, 0.0, 0.25]


@settings(deadline=None)
@given(st.lists(st.permutations(range(9)), min_size=2, max_size=2), st.integers(1, 8))
def test_overlap_equals_the_intersection_of_sets(orders: list[list[int]], size: int) -> None:
    first, second = (order[:size] for order in orders)
    share = len(set(first) & set(second)) / size
    assert overlap(torch.tensor([first]), torch.tensor([second])).item() == pytest.approx(share)


def test_no_tokens_have_no_divergence_and_no_overlap() -> None:
    empty = torch.zeros(0, 3)
    assert topk_divergence(empty, empty, "js").shape == (0,)
    assert overlap(empty.long(), empty.long()).shape == (0,)
