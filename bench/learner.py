"""Learner speed in tokens a second: packed against padded, by tokens a pack.

`python bench/learner.py [--threads 1] [--samples 64] [--repeat 3]` makes a random Qwen3 of the
tiny policy's size and prints one line per setting; the best of the repeats counts. The figure per
CPU second is what one otherwise idle core would do, whatever else this machine is busy with.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from dataclasses import dataclass

from clawrl_gym.config import LearnerConfig, TrainerConfig
from clawrl_gym.core.types import Sample
from clawrl_gym.trainers.models.model import Layout
from clawrl_gym.trainers.models.packing import make_packs
from clawrl_gym.trainers.updates.learner import Learner

VOCAB = 1024


@dataclass(frozen=True, slots=True)
class Options:
    """One setting of the benchmark."""

    threads: int
    repeat: int
    max_tokens: int


def write_model(folder: str) -> int:
    """Write the model and return its number of parameters."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=32_768,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
    )
    torch.manual_seed(0)
    net = Qwen3ForCausalLM(config)
    net.save_pretrained(folder)
    return sum(parameter.numel() for parameter in net.parameters())


def make_samples(count: int) -> list[Sample]:
    """Sequences of 100 to 1,200 tokens, many short and few long, a fifth of each sampled."""
    draw = random.Random(0)
    samples = []
    for number in range(count):
        length = int(100 * 12 ** (draw.random() ** 2))
        mask = [i >= 20 and i % 100 >= 80 for i in range(length)]
        samples.append(
            Sample(
                session_id=str(number),
                group_id=number // 8,
                ids_T=[draw.randrange(VOCAB) for _ in range(length)],
                mask_T=mask,
                logprobs_T=[-6.9 if m else 0.0 for m in mask],
                versions_T=[0 if m else -1 for m in mask],
                advantages_T=[draw.choice([-1.0, 1.0]) if m else 0.0 for m in mask],
                reward=0.0,
            )
        )
    return samples


def padding_share(samples: list[Sample], max_tokens: int) -> float:
    """Share of cells that right-padding the same packs would waste."""
    packs = make_packs(samples, max_tokens)
    cells = sum(len(pack.lengths) * pack.lengths[0] for pack in packs)
    return 1 - sum(sum(pack.lengths) for pack in packs) / cells


def measure(layout: Layout, model_dir: str, samples: list[Sample], options: Options) -> str:
    """Best tokens per wall second and per CPU second over the repeats, as text."""
    learner = Learner(
        TrainerConfig(max_tokens_per_pack=options.max_tokens),
        LearnerConfig(threads=options.threads),
        model_dir,
        0,
        "cpu",
    )
    if layout == "padded":
        learner.model.layout = "padded"
        learner.model.net.set_attn_implementation("sdpa")  # type: ignore[operator]
    wall, cpu = 0.0, 0.0
    for version in range(options.repeat):
        start_s = time.process_time()
        stats = learner.step(samples, version)
        cpu = max(cpu, stats.tokens / (time.process_time() - start_s))
        wall = max(wall, stats.tokens / stats.duration_s)
    return f"{layout} {wall:,.0f} tokens/s ({cpu:,.0f} per CPU second)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--packs", type=int, nargs="+", default=[1024, 2048, 4096, 8192])
    arguments = parser.parse_args()
    samples = make_samples(arguments.samples)
    with tempfile.TemporaryDirectory() as folder:
        parameters = write_model(folder)
        tokens = sum(len(sample.ids_T) for sample in samples)
        print(f"{parameters:,} parameters, {len(samples)} sequences, {tokens:,} tokens", flush=True)
        for max_tokens in arguments.packs:
            options = Options(arguments.threads, arguments.repeat, max_tokens)
            packed = measure("packed", folder, samples, options)
            padded = measure("padded", folder, samples, options)
            wasted = padding_share(samples, max_tokens)
            print(f"{max_tokens:>6} a pack: {packed}; {padded}, {wasted:.0%} padding", flush=True)


if __name__ == "__main__":
    main()
