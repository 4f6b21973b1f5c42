"""Rewards of held-out replies, greedy and sampled, the same way for every arm.

    python -m bench.learning.held_out SETTINGS_JSON SEED OUT.json [ADAPTER]

Both trainers leave an adapter in PEFT's form; transformers generates with it, whoever made it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.learning.ground import Ground, task_name
from bench.learning.settings import Settings, read_settings

_AT_ONCE = 40
"""Replies that are generated together."""


def measure(settings: Settings, seed: int, out: Path, adapter: str | None) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(settings.threads)
    torch.manual_seed(seed)
    folder = settings.model_folder()
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    if adapter is not None:
        model = PeftModel.from_pretrained(model, adapter).merge_and_unload()
    model.eval()
    ground = Ground(settings.config())
    tasks = ground.held_out(settings.held_out)
    prompts = [
        tokenizer.apply_chat_template(
            ground.messages(task), tokenize=False, add_generation_prompt=True
        )
        for task in tasks
    ]
    rounds = []
    for number in range(settings.samples + 1):
        replies = [
            reply
            for at in range(0, len(prompts), _AT_ONCE)
            for reply in _replies(
                model, tokenizer, prompts[at : at + _AT_ONCE], settings.max_tokens, number > 0
            )
        ]
        rounds.append(replies)
        print(f"{number + 1} of {settings.samples + 1} replies to each prompt", flush=True)
    rewards = [
        [ground.reward(task, reply) for task, reply in zip(tasks, replies, strict=True)]
        for replies in rounds
    ]
    values = {
        "tasks": [task_name(task) for task in tasks],
        "greedy": rewards[0],
        "sampled": [list(own) for own in zip(*rewards[1:], strict=True)],
        "replies": rounds[0],
    }
    out.write_text(json.dumps(values))


def _replies(
    model: Any, tokenizer: Any, prompts: list[str], max_tokens: int, sampled: bool
) -> Iterator[str]:
    import torch

    inputs = tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False)
    choice = {"do_sample": True, "temperature": 1.0, "top_p": 1.0, "top_k": 0}
    with torch.no_grad():
        ids = model.generate(
            **inputs, max_new_tokens=max_tokens, **(choice if sampled else {"do_sample": False})
        )
    width = inputs["input_ids"].shape[1]
    yield from tokenizer.batch_decode(ids[:, width:], skip_special_tokens=True)


if __name__ == "__main__":
    measure(
        read_settings(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]),
        sys.argv[4] if len(sys.argv) > 4 else None,
    )  # fmt: skip
