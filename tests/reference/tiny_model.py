"""A random Qwen3 small enough for tests, and samples for it."""

from __future__ import annotations

import random
from pathlib import Path

from clawrl_gym.core.types import Sample

VOCAB = 64


def write_tiny_qwen3(
    folder: Path, seed: int = 0, tied: bool = True, spread: float = 0.2, vocab: int = VOCAB
) -> str:
    """Write a two-layer model with random weights of standard deviation `spread`."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=vocab,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=512,
        initializer_range=spread,
        tie_word_embeddings=tied,
        bos_token_id=None,
        eos_token_id=None,
    )
    torch.manual_seed(seed)
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return str(folder)


def make_samples(lengths: list[int], seed: int = 0, version: int = 0) -> list[Sample]:
    """Random sequences: the first third is prompt, some of the rest is sampled."""
    draw = random.Random(seed)
    samples = []
    for number, length in enumerate(lengths):
        mask = [i > length // 3 and draw.random() < 0.6 for i in range(length)]
        mask[-1] = True
        advantage = draw.choice([-1.0, 0.5, 1.0])
        samples.append(
            Sample(
                session_id=f"s{number}",
                group_id=number // 2,
                ids_T=[draw.randrange(VOCAB) for _ in range(length)],
                mask_T=mask,
                logprobs_T=[draw.uniform(-6, -3) if m else 0.0 for m in mask],
                versions_T=[version if m else -1 for m in mask],
                advantages_T=[advantage if m else 0.0 for m in mask],
                reward=advantage,
            )
        )
    return samples
