"""Batched decoding of the tiny policy in plain torch: what the recipe measures itself with."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Generator
    from transformers import PreTrainedModel


def sample(
    model: PreTrainedModel,
    prompts: list[list[int]],
    *,
    temperature: float,
    max_tokens: int,
    generator: Generator | None = None,
) -> list[list[int]]:
    """One reply per prompt, up to and including the end token; temperature 0 is greedy."""
    import torch
    from transformers import DynamicCache

    end, pad = model.config.eos_token_id, model.config.pad_token_id
    longest = max(len(ids) for ids in prompts)
    ids = torch.tensor([[pad] * (longest - len(p)) + list(p) for p in prompts])  # (B, T)
    attended = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    positions = (attended.cumsum(1) - 1).clamp(min=0)
    cache, finished, tokens = DynamicCache(), torch.zeros(len(prompts), dtype=torch.bool), []
    with torch.inference_mode():
        for _ in range(max_tokens):
            logits = model(
                input_ids=ids, attention_mask=attended, position_ids=positions,
                past_key_values=cache, logits_to_keep=1,
            ).logits[:, -1]  # (B, V)  # fmt: skip
            if temperature == 0:
                token = logits.argmax(-1)
            else:
                chances = (logits / temperature).softmax(-1)
                token = torch.multinomial(chances, 1, generator=generator)[:, 0]
            token = token.masked_fill(finished, pad)
            tokens.append(token)
            finished |= token == end
            if bool(finished.all()):
                break
            ids, positions = token[:, None], positions[:, -1:] + 1
            attended = torch.cat([attended, attended.new_ones(len(prompts), 1)], 1)
    return [_until(row, end) for row in torch.stack(tokens, 1).tolist()]


def _until(ids_T: list[int], end: int) -> list[int]:
    return ids_T[: ids_T.index(end) + 1] if end in ids_T else ids_T
