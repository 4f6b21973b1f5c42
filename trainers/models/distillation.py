"""Divergences between the learner and its teacher over a few likely tokens and all others.

Each of M positions names K tokens; what the rest of the vocabulary holds is one more outcome, the
tail, so that both sides are whole distributions over K + 1 outcomes and the divergence is never
more than that of the full ones. Pure functions on tensors; only the student carries gradient.
"""

from __future__ import annotations

import math
from typing import Literal, assert_never

import torch
from torch import Tensor

Divergence = Literal["reverse", "forward", "js"]
MAX_LOG_MASS = -1e-7
"""The K tokens hold at most exp of this, so that the tail's logarithm is finite."""
MIN_LOG_PROB = -80.0
"""Lower log-probs count as this: exp of it is 0 beside 1, and 0 times it is not NaN."""


def topk_logprobs(logits_MV: Tensor, log_z_M: Tensor, ids_MK: Tensor) -> Tensor:
    """(M, K) log-probs of the named tokens: one gather, no copy of the logits.

    `log_z_M` is the logits' logsumexp, with gradient where the log-probs shall have one.
    """
    return logits_MV.gather(-1, ids_MK) - log_z_M[:, None]


def topk_divergence(student_MK: Tensor, teacher_MK: Tensor, kind: Divergence) -> Tensor:
    """(M,) divergences over the same K tokens; 0 where the teacher's log-probs are NaN (no
    distillation target).

    reverse: KL(student || teacher) = sum_k p_k (log p_k - log q_k); forward: KL(teacher ||
    student); js: the mean of both against (p + q) / 2.
    """
    teacher_MK = teacher_MK.detach()
    silent_M1 = teacher_MK.isnan().any(-1, keepdim=True)
    teacher_MK = teacher_MK.where(~silent_M1, student_MK.detach())
    log_p, log_q = with_tail(student_MK), with_tail(teacher_MK)
    if kind == "reverse":
        divergence_M = _kl(log_p, log_q)
    elif kind == "forward":
        divergence_M = _kl(log_q, log_p)
    elif kind == "js":
        log_m = torch.logaddexp(log_p, log_q) - math.log(2)
        divergence_M = (_kl(log_p, log_m) + _kl(log_q, log_m)) / 2
    else:
        assert_never(kind)
    return divergence_M.where(~silent_M1[:, 0], 0.0)


def with_tail(logprobs_MK: Tensor) -> Tensor:
    """(M, K + 1) the last is log(1 - sum exp) of the others."""
    log_mass_M = logprobs_MK.logsumexp(-1, keepdim=True).clamp(max=MAX_LOG_MASS)
    tail_M1 = (-log_mass_M.expm1()).log()
    return torch.cat([logprobs_MK, tail_M1], -1).clamp(min=MIN_LOG_PROB)


def overlap(student_ids_MK: Tensor, teacher_ids_MK: Tensor) -> Tensor:
    """(M,) share of the student's K tokens that are among the teacher's."""
    sorted_ids = teacher_ids_MK.sort(-1).values
    at = torch.searchsorted(sorted_ids, student_ids_MK.contiguous()).clamp(
        max=sorted_ids.shape[-1] - 1
    )
    return (sorted_ids.gather(-1, at) == student_ids_MK).float().mean(-1)


def _kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    return (log_p.exp() * (log_p - log_q)).sum(-1)
