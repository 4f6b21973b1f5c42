"""Log-probs of a few tokens under a whole vocabulary; few logits exist at a time.

    log p(k) = z_k - log sum_v exp z_v        z = (W h + b) / temperature

With P = sum_v p(v) W_v, the gradient of sum_k g_k log p(k) for h is (sum_k g_k W_k - sum_k g_k P)
/ temperature, linear in g. So P is made in the forward pass and kept, H numbers a position instead
of V, and the backward pass makes no logits; but where W is trained itself, it makes them again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, linear

from clawrl_gym.trainers.models.distillation import topk_logprobs
from clawrl_gym.trainers.models.memory import MAX_LOGITS as MAX_LOGITS


@dataclass(frozen=True, slots=True)
class Head:
    """The output layer: hidden states in, logits out."""

    weight_VH: Tensor
    bias_V: Tensor | None
    temperature: float | Tensor
    """Sampling temperature: the same at all positions, or (M, 1)."""
    max_logits: int = MAX_LOGITS

    def at(self, piece: slice) -> Head:
        """The head restricted to some of the positions."""
        if isinstance(self.temperature, float):
            return self
        return replace(self, temperature=self.temperature[piece])

    @torch.no_grad()
    def logits(self, hidden_MH: Tensor) -> Tensor:
        """Logits in float32, whatever type the weights have."""
        logits_MV = linear(hidden_MH, self.weight_VH).float()
        if self.bias_V is not None:
            logits_MV += self.bias_V
        logits_MV /= self.temperature
        return logits_MV

    def pieces(self, positions: int) -> Iterator[slice]:
        """Slices of about equal size, with at most `max_logits` logits each."""
        most = max(1, self.max_logits // self.weight_VH.shape[0])
        size = -(-positions // max(1, -(-positions // most)))
        for start in range(0, positions, max(1, size)):
            yield slice(start, start + size)


def logprobs_of(head: Head, hidden_MH: Tensor, ids_MK: Tensor) -> tuple[Tensor, Tensor]:
    """(M, K) log-probs with gradient, where enabled, and (M,) entropies without."""
    result: tuple[Tensor, Tensor] = _Logprobs.apply(  # type: ignore[no-untyped-call]
        hidden_MH, head.weight_VH, head.bias_V, ids_MK, head, torch.is_grad_enabled()
    )
    return result


_forward_types = torch.amp.custom_fwd(device_type="cuda")
"""The backward pass runs in the element types of the forward pass."""
_backward_types = torch.amp.custom_bwd(device_type="cuda")


class _Logprobs(torch.autograd.Function):
    """Implements `logprobs_of`; autograd needs the head's tensors as separate arguments."""

    @staticmethod
    @_forward_types  # type: ignore[untyped-decorator]
    def forward(
        ctx: Any,
        hidden_MH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        ids_MK: Tensor,
        head: Head,
        learns: bool,
    ) -> tuple[Tensor, Tensor]:
        logprobs_MK = hidden_MH.new_empty(ids_MK.shape, dtype=torch.float32)
        entropies_M = hidden_MH.new_empty(len(ids_MK), dtype=torch.float32)
        expected_MH = hidden_MH.new_empty(hidden_MH.shape) if learns else None
        for piece in head.pieces(len(ids_MK)):
            logits_mV, log_z_m, probs_mV = _distribution(head.at(piece), hidden_MH[piece])
            logprobs_MK[piece] = topk_logprobs(logits_mV, log_z_m, ids_MK[piece])
            entropies_M[piece] = log_z_m - torch.linalg.vecdot(probs_mV, logits_mV)
            if expected_MH is not None:
                expected_MH[piece] = probs_mV.to(weight_VH.dtype) @ weight_VH
        if expected_MH is not None:
            ctx.save_for_backward(hidden_MH, weight_VH, bias_V, ids_MK, expected_MH)
            ctx.head = head
        ctx.mark_non_differentiable(entropies_M)
        return logprobs_MK, entropies_M

    @staticmethod
    @_backward_types  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient_MK: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        hidden_MH, weight_VH, _, ids_MK, expected_MH = ctx.saved_tensors
        gradient_MK = gradient_MK / ctx.head.temperature
        whole_M1 = gradient_MK.sum(-1, keepdim=True)
        of_hidden_MH = of_weight_VH = of_bias_V = None
        if ctx.needs_input_grad[0]:
            weights_MK = gradient_MK.to(weight_VH.dtype)
            named_MH = embedding_bag(ids_MK, weight_VH, per_sample_weights=weights_MK, mode="sum")
            of_hidden_MH = (named_MH - whole_M1 * expected_MH).to(hidden_MH.dtype)
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            of_weight_VH, of_bias_V = _of_head(ctx, hidden_MH, ids_MK, gradient_MK)
        return of_hidden_MH, of_weight_VH, of_bias_V, None, None, None


def _of_head(
    ctx: Any, hidden_MH: Tensor, ids_MK: Tensor, gradient_MK: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Gradients of weight and bias; the logits are computed again."""
    head: Head = ctx.head
    of_weight_VH = torch.zeros_like(head.weight_VH)
    of_bias_V = None if head.bias_V is None else torch.zeros_like(head.bias_V)
    for piece in head.pieces(len(ids_MK)):
        _, _, of_logits_mV = _distribution(head.at(piece), hidden_MH[piece])
        of_logits_mV *= -gradient_MK[piece].sum(-1, keepdim=True)
        of_logits_mV.scatter_add_(-1, ids_MK[piece], gradient_MK[piece])
        dtype = of_weight_VH.dtype
        of_weight_VH.addmm_(of_logits_mV.T.to(dtype), hidden_MH[piece].to(dtype))
        if of_bias_V is not None:
            of_bias_V += of_logits_mV.sum(0)
    return of_weight_VH, of_bias_V


def _distribution(head: Head, hidden_mH: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, the logarithm of their normalizer, and probabilities."""
    logits_mV = head.logits(hidden_mH)
    probs_mV = logits_mV.softmax(-1)
    highest_m, at_m = logits_mV.max(-1)
    log_z_m = highest_m - probs_mV.gather(-1, at_m[:, None])[:, 0].log()
    return logits_mV, log_z_m, probs_mV
