"""One arm through trl's GRPOTrainer, in a process of its own.

    python -m bench.learning.trl_arm SETTINGS_JSON ARM SEED FOLDER

Prompts, their order, rewards, learning rates by update, optimizer, adapter, clipping and sampling
are those of our run; replies come from transformers' `generate`, since trl's way to vLLM needs a
GPU. The adapter goes to FOLDER/adapter, rewards of each update to FOLDER/train.json.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from bench.learning.ground import Ground
from bench.learning.settings import Settings, is_control, read_settings
from clawrl_gym.core.types import TaskRef
from clawrl_gym.trainers.schedule import learning_rate


class Rewards:
    """A reward function of trl's, which remembers what it gave."""

    def __init__(self, ground: Ground, tasks: list[TaskRef], group_size: int) -> None:
        self._ground = ground
        self._tasks = tasks
        self._group_size = group_size
        self.given: list[list[list[float]]] = []
        """Rewards of the environment, by update, group and reply."""
        self.shuffled_by: random.Random | None = None
        """Permutes within groups the rewards that the trainer gets."""

    def __call__(
        self, completions: list[list[dict[str, str]]], task: list[int], **_: Any
    ) -> list[float]:
        rewards = [
            self._ground.reward(self._tasks[number], completion[0]["content"])
            for number, completion in zip(task, completions, strict=True)
        ]
        size = self._group_size
        groups = [rewards[at : at + size] for at in range(0, len(rewards), size)]
        self.given.append([list(group) for group in groups])
        print(f"update {len(self.given)}: reward {sum(rewards) / len(rewards):.3f}", flush=True)
        if self.shuffled_by is not None:
            for group in groups:
                self.shuffled_by.shuffle(group)
        return [reward for group in groups for reward in group]


def train(settings: Settings, arm: str, seed: int, folder: Path) -> None:
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from torch.optim.lr_scheduler import LambdaLR
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(settings.threads)
    config = settings.config(arm, seed)
    learner, sampling = config.learner, config.policy.sampling
    clipping = config.trainer.loss.options
    ground = Ground(config)
    tasks = ground.train(settings.steps * settings.groups)
    rewards = Rewards(ground, tasks, settings.group_size)
    if is_control(arm):
        rewards.shuffled_by = random.Random(seed)

    class Scheduled(GRPOTrainer):  # type: ignore[misc]
        """Trainer with the rates of our own schedule, warm-up included."""

        def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
            self.lr_scheduler = LambdaLR(
                self.optimizer if optimizer is None else optimizer,
                lambda update: learning_rate(update, settings.steps, learner) / learner.lr,
            )
            return self.lr_scheduler

    made = Scheduled(
        model=settings.model_folder(),
        reward_funcs=rewards,
        args=GRPOConfig(
            output_dir=str(folder / "trainer"), seed=seed, use_cpu=True, bf16=False,
            model_init_kwargs={"dtype": "float32"}, gradient_checkpointing=False,
            max_steps=settings.steps, per_device_train_batch_size=settings.group_size,
            gradient_accumulation_steps=settings.groups, num_generations=settings.group_size,
            shuffle_dataset=False, max_completion_length=settings.max_tokens,
            temperature=sampling.temperature, top_p=1.0, top_k=0,
            loss_type="dapo", scale_rewards="group", beta=0.0,
            epsilon=clipping["clip_low"], epsilon_high=clipping["clip_high"],
            learning_rate=learner.lr, adam_beta1=learner.betas[0], adam_beta2=learner.betas[1],
            weight_decay=learner.weight_decay, max_grad_norm=learner.max_grad_norm,
            report_to=[], save_strategy="no", logging_steps=1, disable_tqdm=True,
        ),
        train_dataset=Dataset.from_list(
            [{"prompt": ground.messages(task), "task": at} for at, task in enumerate(tasks)]
        ),
        peft_config=LoraConfig(
            r=settings.rank, lora_alpha=settings.alpha, target_modules="all-linear",
            task_type="CAUSAL_LM",
        ),
    )  # fmt: skip
    started_s = time.monotonic()
    made.train()
    updates_s = time.monotonic() - started_s
    made.model.save_pretrained(str(folder / "adapter"))
    log = [row for row in made.state.log_history if "loss" in row]
    values = {
        "updates_s": updates_s,
        "rewards": rewards.given,
        "policy_lag": [0.0] * settings.steps,
        "tokens": [row["completions/mean_length"] for row in log],
        "grad_norm": [row["grad_norm"] for row in log],
        "lr": [row["learning_rate"] for row in log],
    }
    (folder / "train.json").write_text(json.dumps(values))


if __name__ == "__main__":
    train(read_settings(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
