"""The recipe of the tiny policy: tokenizer, supervised warm start, measurement, folder.

Everything follows from the seed and the number of torch threads. Demonstrations come from training
tasks only; held-out tasks are only measured.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from clawrl_gym.policy.tiny.conversations import Source
from clawrl_gym.policy.tiny.demonstrations import TerminalDemonstrations
from clawrl_gym.policy.tiny.evaluation import exact_match
from clawrl_gym.policy.tiny.model import build_model
from clawrl_gym.policy.tiny.tokenizer import train_tokenizer
from clawrl_gym.policy.tiny.training import TrainingPlan, fit

DEMONSTRATOR = (
    "in the last phase the oracle's last command carries its family's typical slip in a fixed "
    "share of the demonstrations (clawrl_gym/policy/tiny/careless.py), so that the policy starts "
    "imperfect"
)


@dataclass(frozen=True, slots=True)
class Phase:
    """Training on one source."""

    name: str
    source: Source
    plan: TrainingPlan


def terminal_phases() -> tuple[Phase, ...]:
    """Skill first, until copying is sharp; then, briefly, bad habits over intact skill."""
    correct, careless = TerminalDemonstrations(careless=False), TerminalDemonstrations()
    return (
        Phase("skill", correct, TrainingPlan(steps=1400, peak_lr=4e-3)),
        Phase("polish", correct, TrainingPlan(steps=3400, peak_lr=2.5e-3, seed=77)),
        Phase("habits", careless, TrainingPlan(steps=300, peak_lr=1e-3, warmup_steps=10, seed=5)),
    )


@dataclass(frozen=True, slots=True)
class Recipe:
    """What makes one tiny policy."""

    phases: tuple[Phase, ...] = field(default_factory=terminal_phases)
    heldout: Source = field(
        default_factory=lambda: TerminalDemonstrations("heldout", careless=False)
    )
    seed: int = 0
    """Added to every phase's own; also that of the first weights."""
    tokenizer_conversations: int = 6000
    heldout_tasks: int = 440
    threads: int = 2
    """Torch threads; sums differ in the last bit between numbers of threads."""


@dataclass(frozen=True, slots=True)
class Made:
    """A tiny policy and how it was measured."""

    model: Any
    tokenizer: Any
    losses: list[float]
    greedy: dict[str, float]
    """Held-out exact match at temperature 0, by family and under `all`."""
    sampled: dict[str, float]
    """The same at temperature 1."""


def make(recipe: Recipe, on_step: Callable[[int, float], None] = lambda step, loss: None) -> Made:
    """Run the recipe. Sets torch's thread count and seed."""
    import torch

    torch.set_num_threads(recipe.threads)
    tokenizer = train_tokenizer(_texts(recipe))
    model = build_model(tokenizer, recipe.seed)
    losses: list[float] = []
    steps = itertools.count()

    def count_on(step: int, loss: float) -> None:
        on_step(next(steps), loss)

    for phase in recipe.phases:
        plan = replace(phase.plan, seed=phase.plan.seed + recipe.seed)
        losses += fit(model, tokenizer, phase.source, plan, count_on)
    torch.manual_seed(recipe.seed)
    greedy, sampled = (
        exact_match(
            model, tokenizer, recipe.heldout,
            seed=recipe.seed, tasks=recipe.heldout_tasks, temperature=temperature,
        )
        for temperature in (0.0, 1.0)
    )  # fmt: skip
    return Made(model, tokenizer, losses, greedy, sampled)


def save(made: Made, recipe: Recipe, folder: Path) -> None:
    """Write the folder that transformers and vLLM load, with `recipe.json` beside the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    made.model.save_pretrained(folder)
    made.tokenizer.save_pretrained(folder)
    facts = {
        "seed": recipe.seed,
        "phases": {phase.name: asdict(phase.plan) for phase in recipe.phases},
        "threads": recipe.threads,
        "parameters": sum(p.numel() for p in made.model.parameters()),
        "vocabulary": len(made.tokenizer),
        "demonstrator": DEMONSTRATOR,
        "last_loss": round(made.losses[-1], 4),
        "heldout_tasks": recipe.heldout_tasks,
        "heldout_exact_match_greedy": _rounded(made.greedy),
        "heldout_exact_match_temperature_1": _rounded(made.sampled),
    }
    (folder / "recipe.json").write_text(json.dumps(facts, indent=2) + "\n")
    for path in folder.iterdir():  # safetensors writes for the owner alone
        path.chmod(0o644)


def _texts(recipe: Recipe) -> list[str]:
    shown = recipe.phases[0].source.conversations(recipe.seed + 1)
    return [
        f"{message['role']}\n{message['content']}"
        for conversation in itertools.islice(shown, recipe.tokenizer_conversations)
        for message in conversation.messages
    ]


def _rounded(shares: dict[str, float]) -> dict[str, float]:
    return {family: round(share, 3) for family, share in shares.items()}
