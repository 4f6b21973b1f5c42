"""Peak memory of a learner on a random model of a real one's size, and the arithmetic of it.

`python bench/learner_memory.py [--layers 28] [--tokens 4096] [--packs 2] [--steps 2]
[--forms all,layers]`
makes a model of Qwen3-0.6B's widths in bfloat16 and takes so many steps of so many full packs with
each form, in a process of its own: `all` weights in float32, the same with Adam's moments in
`eight` bits, all weights in bfloat16 with the optimizer `offload`ed, an `adapter` of rank 16 beside
bfloat16 weights, the same with `layers` whose activations are made again, and beside weights in 4
bits (`nf4`, `nf4layers`). Prints the peak of the process less what it takes without a model, the
arithmetic of `dry_run=true`, how much too high it is, its parts and seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from clawrl_gym.config import LearnerConfig, TrainerConfig
from clawrl_gym.core.processes.jemalloc import jemalloc_variables
from clawrl_gym.core.types import Sample
from clawrl_gym.inference.models.shape import shape_of_folder
from clawrl_gym.trainers.models.memory import learner_memory, offloaded_gib

FORMS: dict[str, dict[str, Any]] = {
    "all": {},
    "adapter": {"adapter": {"rank": 16}},
    "layers": {"adapter": {"rank": 16}, "checkpoint_layers": True},
    "nf4": {"adapter": {"rank": 16}, "base": "nf4"},
    "nf4layers": {"adapter": {"rank": 16}, "base": "nf4", "checkpoint_layers": True},
    "eight": {"moment_bits": 8},
    "offload": {"offload": True, "checkpoint_layers": True},
}
VOCAB = 151_936
GIB = 2**30


def write_model(folder: str, layers: int) -> None:
    """Qwen3-0.6B but for its weights and, if wanted, the number of its layers."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=layers,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=40_960,
        tie_word_embeddings=True,
        dtype="bfloat16",
    )
    Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


def samples(tokens: int, length: int = 512) -> list[Sample]:
    """Sequences that fill one pack, a fifth of each sampled."""
    draw = random.Random(0)
    mask = [i % 5 == 4 for i in range(length)]
    return [
        Sample(
            session_id=f"s{number}", group_id=number // 2,
            ids_T=[draw.randrange(VOCAB) for _ in range(length)],
            mask_T=mask, logprobs_T=[-12.0 if m else 0.0 for m in mask],
            versions_T=[0 if m else -1 for m in mask],
            advantages_T=[draw.choice([-1.0, 1.0]) if m else 0.0 for m in mask], reward=1.0,
        )
        for number in range(tokens // length)
    ]  # fmt: skip


def peak_gib() -> float:
    """Peak memory of this process. getrusage's figure begins with what its parent had."""
    status = Path("/proc/self/status").read_text()
    kib = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(kib) / 2**20


def take_steps(folder: str, form: str, tokens: int, packs: int, steps: int) -> None:
    """Run steps in a process of their own; returns what they took as JSON."""
    from clawrl_gym.trainers.updates.learner import Learner

    trainer = TrainerConfig(max_tokens_per_pack=tokens)
    config = LearnerConfig.model_validate({"threads": 2, **FORMS[form]})
    batch = samples(tokens * packs)
    import peft  # noqa: F401

    bare = peak_gib()
    learner = Learner(trainer, config, folder, 0, "cpu")
    loaded = peak_gib()
    start_s = time.perf_counter()
    for version in range(steps):
        learner.step(batch, version)
    shape = shape_of_folder(Path(folder))
    parts = learner_memory(trainer, config, shape, "cpu")
    expected = parts.total + offloaded_gib(config, shape)
    peak = peak_gib() - bare
    figures = {
        "peak": peak, "loaded": loaded - bare, "expected": expected,
        "ratio": expected / peak, **asdict(parts), "seconds": time.perf_counter() - start_s,
    }  # fmt: skip
    sys.stdout.write(json.dumps(figures) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--packs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--child", nargs=2, metavar=("FOLDER", "FORM"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        folder, form = options.child
        take_steps(folder, form, options.tokens, options.packs, options.steps)
        return
    environment = os.environ | jemalloc_variables()  # as a run's learner
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder, options.layers)
        print(f"{options.layers} layers, {options.packs} packs of {options.tokens} tokens; GiB")
        for form in options.forms.split(","):
            command = [sys.executable, __file__, "--child", folder, form]
            command += ["--tokens", str(options.tokens), "--packs", str(options.packs)]
            command += ["--steps", str(options.steps)]
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, env=environment
            )
            if done.returncode:
                print(f"{form:8} ended with exit code {done.returncode}: {done.stderr[-200:]}")
                continue
            figures = json.loads(done.stdout.splitlines()[-1])
            print(f"{form:8} " + "  ".join(f"{name} {v:.2f}" for name, v in figures.items()))


if __name__ == "__main__":
    main()
