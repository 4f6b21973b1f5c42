"""Common settings of the comparison's arms, and the arguments that give them to our run."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from clawrl_gym.config import RunConfig
from clawrl_gym.inference.models.resolve import resolve_model
from clawrl_gym.recipe.configure import load_config

FORMS = {
    "ours": ["rollout=async"],
    "ours-lag1": ["rollout=async", "rollout.max_staleness=1"],
    "ours-sync": ["rollout=sync"],
    "trl": [],
}
"""Keys for the way in which each arm collects. `sync`: collecting and learning take turns, so that
no token is older than the weights that it updates; `lag1`: at most one update older."""
CONTROL = "-control"
ARMS = (*FORMS, *(f"{arm}{CONTROL}" for arm in FORMS))
"""Names of the arms. In a control rewards are permuted within each group."""


def is_control(arm: str) -> bool:
    return arm.endswith(CONTROL)


def without_control(arm: str) -> str:
    """The arm that a control is compared with."""
    return arm.removesuffix(CONTROL)


@dataclass(frozen=True, slots=True)
class Settings:
    """The same for each arm and seed."""

    ground: tuple[str, ...]
    """Overrides that choose the environment, such as env=length."""
    policy: str
    """A name of conf/policy/, or a model's folder."""
    steps: int
    groups: int
    group_size: int
    lr: float
    warmup_steps: int
    rank: int
    alpha: int
    max_tokens: int
    held_out: int
    """Prompts that are measured before and after."""
    samples: int
    """Sampled replies to each of them, beside the greedy one."""
    threads: int

    def overrides(self, arm: str, seed: int) -> list[str]:
        """The command line of `python -m clawrl_gym.train` for this arm."""
        named = "policy.model" if Path(self.policy).is_dir() else "policy"
        chosen = {
            named: self.policy,
            "policy.dtype": "float32",
            "policy.threads": self.threads,
            "policy.sampling.max_tokens": self.max_tokens,
            "policy.sampling.temperature": 1.0,
            "trainer": "grpo",
            "trainer.steps": self.steps,
            "learner": "lora",
            "learner.adapter.rank": self.rank,
            "learner.adapter.alpha": self.alpha,
            "learner.lr": self.lr,
            "learner.warmup_steps": self.warmup_steps,
            "learner.schedule": "linear",
            "learner.threads": self.threads,
            "rollout.groups": self.groups,
            "rollout.group_size": self.group_size,
            "eval.tasks": 0,
            "control": "shuffled_rewards" if is_control(arm) else "none",
            "seed": seed,
        }
        form = FORMS[without_control(arm)]
        return [*self.ground, *form, *(f"{key}={value}" for key, value in chosen.items())]

    def config(self, arm: str = "ours", seed: int = 0) -> RunConfig:
        """The configuration whole: the other trainer is given the same numbers."""
        return load_config(self.overrides(arm, seed))

    def model_folder(self) -> str:
        """Folder of the model's files on this machine."""
        return str(resolve_model(self.config().policy.model))

    def as_json(self) -> dict[str, object]:
        """Settings as a result's file holds them."""
        values: dict[str, object] = json.loads(json.dumps(asdict(self)))
        return values


def read_settings(text: str) -> Settings:
    """The inverse of `as_json`, from text."""
    values = json.loads(text)
    return Settings(**{**values, "ground": tuple(values["ground"])})
