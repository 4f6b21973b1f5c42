"""Supervised training of the tiny policy on fresh conversations; loss on the replies only."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tools.tiny_policy.conversations import Encoded, Source, encode

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

PART_TOKENS = 2048
"""Tokens, padding included, that go through the model at once: what a cache holds."""


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """Length and rates of a training."""

    steps: int = 1400
    batch: int = 32
    """Conversations a step; each is seen once."""
    peak_lr: float = 4e-3
    warmup_steps: int = 100
    seed: int = 0
    bfloat16: bool | None = None
    """Multiply matrices in bfloat16 (weights stay float32): twice as fast where the processor
    has instructions for it. None asks the processor."""


def fit(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    source: Source,
    plan: TrainingPlan,
    on_step: Callable[[int, float], None] = lambda step, loss: None,
) -> list[float]:
    """Train `model` in place; the loss of every step."""
    import torch

    optimizer = torch.optim.AdamW(
        model.parameters(), lr=plan.peak_lr, betas=(0.9, 0.98), weight_decay=0.01
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _lr_share(step, plan))
    stream = source.conversations(plan.seed)
    losses: list[float] = []
    for step in range(plan.steps):
        batch = encode(tokenizer, list(itertools.islice(stream, plan.batch)))
        with _matmuls_in_bfloat16(model, plan.bfloat16):
            loss = _accumulate(model, batch)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()
        losses.append(loss)
        on_step(step, losses[-1])
    return losses


@contextmanager
def _matmuls_in_bfloat16(model: PreTrainedModel, in_bfloat16: bool | None) -> Iterator[None]:
    """Autocast for all but attention, whose backward pass on a CPU is slower in bfloat16."""
    import torch
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if in_bfloat16 is None:
        in_bfloat16 = bool(torch.cpu.get_capabilities().get("avx512_bf16"))

    def attend(
        module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **options: object
    ) -> object:
        with torch.autocast("cpu", enabled=False):
            return sdpa_attention_forward(module, q.float(), k.float(), v.float(), mask, **options)

    AttentionInterface.register("float32_sdpa", attend)
    before = model.config._attn_implementation
    model.set_attn_implementation("float32_sdpa" if in_bfloat16 else before)
    try:
        with torch.autocast("cpu", torch.bfloat16, enabled=in_bfloat16):
            yield
    finally:
        model.set_attn_implementation(before)


def _accumulate(model: PreTrainedModel, batch: list[Encoded]) -> float:
    """Gradients of the batch's mean loss, rows of about the same length together."""
    learned = sum(sum(row.mask_T) for row in batch)
    total = 0.0
    for part in _parts(batch):
        loss = reply_loss(model, part) / learned
        loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    return total


def _parts(batch: list[Encoded]) -> Iterator[list[Encoded]]:
    """The batch from short to long, in parts of about as many tokens with their padding."""
    part: list[Encoded] = []
    for row in sorted(batch, key=lambda row: len(row.ids_T)):
        if part and (len(part) + 1) * len(row.ids_T) > PART_TOKENS:
            yield part
            part = []
        part.append(row)
    yield part


def reply_loss(model: PreTrainedModel, batch: list[Encoded]) -> Tensor:
    """Summed cross-entropy of the reply tokens. Padding stands on the right: causality hides it."""
    import torch

    longest = max(len(row.ids_T) for row in batch)
    pad = model.config.pad_token_id
    ids = torch.tensor([row.ids_T + [pad] * (longest - len(row.ids_T)) for row in batch])  # (B, T)
    mask = torch.tensor([row.mask_T + [False] * (longest - len(row.mask_T)) for row in batch])
    hidden = model.model(input_ids=ids).last_hidden_state  # (B, T, D)
    logits = model.lm_head(hidden[:, :-1][mask[:, 1:]])  # (N, V)
    return torch.nn.functional.cross_entropy(logits, ids[:, 1:][mask[:, 1:]], reduction="sum")


def _lr_share(step: int, plan: TrainingPlan) -> float:
    """Linear warm-up, then a cosine down to a twentieth."""
    if step < plan.warmup_steps:
        return (step + 1) / plan.warmup_steps
    progress = (step - plan.warmup_steps) / max(1, plan.steps - plan.warmup_steps)
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * progress))
