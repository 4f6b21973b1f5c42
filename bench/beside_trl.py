"""The learner beside trl's GRPOTrainer: turns a second and peak memory of the same update.

    PYTHONPATH=. python bench/beside_trl.py [--hidden 256] [--layers 4] [--groups 2] [--turns 8]
        [--tokens 4096] [--steps 3] [--forms ours,trl,trl-layers]

Both train the same PEFT adapter (rank 16, every linear layer) beside the same random Qwen3 with
float32 weights and a vocabulary of 151,936, on the same episodes of 8 turns, each one sequence in
which only the sampled half is learned from, as many tokens a pass. trl gets them through its
`rollout_func` with `env_mask` and runs `trainer.train()`; `trl-layers` checkpoints layers, which is
its default. Neither side samples: what is measured is an update. Each form runs in a process of its
own: the best of the steps after the first, and the peak of the process less what it took after its
imports. Prints a Markdown table with ratios, of CPU seconds too, which other work disturbs less.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bench.learner_memory import VOCAB, peak_gib
from clawrl_gym.config import AdapterConfig, LearnerConfig, TrainerConfig
from clawrl_gym.core.types import Sample

FORMS = ("ours", "trl", "trl-layers")
GROUP = 8
PROMPT_TOKENS = 200
THREADS = 2


@dataclass(frozen=True, slots=True)
class Talk:
    """An episode: a prompt, and then what was sampled and observed in turns."""

    prompt: list[int]
    rest: list[int]
    sampled: list[bool]
    reward: float


class Clock:
    """Seconds from one step's end to the next one's."""

    def __init__(self) -> None:
        self._ends: list[tuple[float, float]] = []

    def tick(self) -> None:
        self._ends.append((time.perf_counter(), time.process_time()))

    def best(self) -> dict[str, float]:
        """Least seconds by the wall and of the CPU, all threads together."""
        walls, cpus = zip(*self._ends, strict=True)
        return {
            "seconds": min(later - earlier for earlier, later in pairwise(walls)),
            "cpu_seconds": min(later - earlier for earlier, later in pairwise(cpus)),
        }


def talks(groups: int, turns: int) -> list[Talk]:
    """Turns of 24 to 72 sampled tokens, each but the last with as many observed after it."""
    draw = random.Random(0)
    episodes = []
    for _ in range(groups):
        prompt = [draw.randrange(3, VOCAB) for _ in range(PROMPT_TOKENS)]
        for number in range(GROUP):
            sampled: list[bool] = []
            for turn in range(turns):
                sampled += [True] * draw.randint(24, 72)
                sampled += [False] * (draw.randint(24, 72) if turn < turns - 1 else 0)
            rest = [draw.randrange(3, VOCAB) for _ in sampled]
            episodes.append(Talk(prompt, rest, sampled, float(number % 2)))
    return episodes


def write_model(folder: str, hidden: int, layers: int) -> None:
    """A random model, and a tokenizer of words that are numbers."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        num_key_value_heads=hidden // 128,
        head_dim=64,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        eos_token_id=1,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    Qwen3ForCausalLM(config).save_pretrained(folder)
    words = {"<pad>": 0, "<eos>": 1, "<unk>": 2} | {f"w{i}": i for i in range(3, VOCAB)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    ).save_pretrained(folder)


def ours(folder: str, episodes: list[Talk], tokens: int, steps: int) -> dict[str, float]:
    from clawrl_gym.trainers.updates.learner import Learner

    bare = peak_gib()
    trainer = TrainerConfig(max_tokens_per_pack=tokens, sequence_ratio_min=0, token_ratio_min=0)
    config = LearnerConfig(threads=THREADS, adapter=AdapterConfig(rank=16, alpha=32), lr=1e-5)
    learner = Learner(trainer, config, folder, 0, "cpu")
    samples = [
        Sample(
            session_id=str(number), group_id=number // GROUP, ids_T=[*talk.prompt, *talk.rest],
            mask_T=[False] * len(talk.prompt) + talk.sampled,
            logprobs_T=[-11.9] * (len(talk.prompt) + len(talk.rest)),
            versions_T=[0] * (len(talk.prompt) + len(talk.rest)),
            advantages_T=[2 * talk.reward - 1] * (len(talk.prompt) + len(talk.rest)),
            reward=talk.reward,
        )
        for number, talk in enumerate(episodes)
    ]  # fmt: skip
    clock = Clock()
    for version in range(steps + 1):
        learner.step(samples, version)
        clock.tick()
    return {"peak": peak_gib() - bare, **clock.best()}


def trl(
    folder: str, episodes: list[Talk], tokens: int, steps: int, layers: bool
) -> dict[str, float]:
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(THREADS)
    bare = peak_gib()
    longest = max(len(talk.prompt) + len(talk.rest) for talk in episodes)
    at_once = max(n for n in (1, 2, 4, 8) if n == 1 or n * longest <= tokens * 1.25)

    def rollout(prompts: list[str], _: Any) -> dict[str, Any]:
        return {
            "prompt_ids": [talk.prompt for talk in episodes],
            "completion_ids": [talk.rest for talk in episodes],
            "logprobs": [[0.0] * len(talk.rest) for talk in episodes],
            "env_mask": [[int(here) for here in talk.sampled] for talk in episodes],
        }

    clock = Clock()

    class Ticks(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock.tick()

    config = GRPOConfig(
        output_dir=folder + "-out", loss_type="dapo", beta=0.0, num_generations=GROUP,
        per_device_train_batch_size=at_once,
        gradient_accumulation_steps=len(episodes) // at_once,
        max_completion_length=8192, max_steps=steps + 1, use_cpu=True, bf16=False,
        gradient_checkpointing=layers, report_to=[], save_strategy="no", logging_steps=1000,
        learning_rate=1e-5, model_init_kwargs={"dtype": "float32"}, disable_tqdm=True,
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=folder,
        reward_funcs=lambda completions, **_: [talk.reward for talk in episodes],
        args=config,
        train_dataset=Dataset.from_list([{"prompt": "w5 w6"}] * len(episodes)),
        peft_config=LoraConfig(
            r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"
        ),
        rollout_func=rollout,
        callbacks=[Ticks()],
    )
    trainer.train()
    return {"peak": peak_gib() - bare, **clock.best()}


def measure(form: str, folder: str, options: argparse.Namespace) -> dict[str, float]:
    """Measure in a process of its own."""
    command = [sys.executable, __file__, "--form", form, "--folder", folder]
    for name in ("groups", "turns", "tokens", "steps"):
        command += [f"--{name}", str(getattr(options, name))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{form} ended with exit code {done.returncode}:\n{done.stderr[-2000:]}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--groups", type=int, default=2)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--form", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    episodes = talks(options.groups, options.turns)
    size = options.tokens, options.steps
    if options.form == "ours":
        print(json.dumps(ours(options.folder, episodes, *size)))
        return
    if options.form:
        print(json.dumps(trl(options.folder, episodes, *size, options.form == "trl-layers")))
        return
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder, options.hidden, options.layers)
        figures = {form: measure(form, folder, options) for form in options.forms.split(",")}
    turns = len(episodes) * options.turns
    first = next(iter(figures.values()))
    print("| | turns a second | a CPU second | peak, GiB | times its speed | of its memory |")
    print("|---|---|---|---|---|---|")
    for form, own in figures.items():
        faster, leaner = (own[name] / first[name] for name in ("seconds", "cpu_seconds"))
        rates = [f"{turns / own[name]:.1f}" for name in ("seconds", "cpu_seconds")]
        cells = [form, *rates, f"{own['peak']:.2f}", f"{faster:.2f}, {leaner:.2f}"]
        cells.append(f"{first['peak'] / own['peak']:.2f}")
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
