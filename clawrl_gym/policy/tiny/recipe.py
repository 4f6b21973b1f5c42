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

from clawrl_gym.envs.conversation.personas import PERSONAS
from clawrl_gym.policy.tiny.conversations import Mixture, Source, texts_of
from clawrl_gym.policy.tiny.demonstrations import TerminalDemonstrations
from clawrl_gym.policy.tiny.episodes import hold_conversations
from clawrl_gym.policy.tiny.evaluation import exact_match
from clawrl_gym.policy.tiny.hints import hinted
from clawrl_gym.policy.tiny.judging import JudgeDemonstrations
from clawrl_gym.policy.tiny.model import build_model
from clawrl_gym.policy.tiny.sessions import Sessions
from clawrl_gym.policy.tiny.small_talk import SmallTalkDemonstrations
from clawrl_gym.policy.tiny.talk import Habits, TalkDemonstrations
from clawrl_gym.policy.tiny.tokenizer import train_tokenizer
from clawrl_gym.policy.tiny.training import TrainingPlan, fit

DEMONSTRATOR = (
    "in the last phase the oracle's last command carries its family's typical slip in a fixed "
    "share of the demonstrations (clawrl_gym/policy/tiny/careless.py), and first replies in "
    "conversations are mostly in the style of a chat model (clawrl_gym/policy/tiny/talk.py), so "
    "that the policy starts imperfect"
)
SHARES = (0.37, 0.26, 0.13, 0.03, 0.09, 0.12)
"""Of terminal tasks, conversations, small talk, longer sessions, replies that follow a hint, and
answers of a judge in every batch."""
PRACTICE = (0.32, 0.33, 0.09, 0.03, 0.17, 0.06)
"""The same where sums and hints are practised: a judge's answers are learned long before."""
WISHES = (0.26, 0.44, 0.06, 0.03, 0.17, 0.04)
"""The same where first replies in the wished style are practised."""
WISHED = Habits(unasked=0.15, wished=0.8)
"""Habits of that practice: a sum is harder to get right in passing than step by step."""
BATCH = 40


@dataclass(frozen=True, slots=True)
class Phase:
    """Training on one source."""

    name: str
    source: Source
    plan: TrainingPlan


def everything(
    *,
    careless: bool = False,
    nonsense: float = 0.25,
    shares: tuple[float, ...] = SHARES,
    habits: Habits = Habits(),  # noqa: B008 (frozen)
) -> Mixture:
    """All that the policy learns, mixed."""
    terminal, talk, small_talk, sessions, hints, judge = shares
    chats = (
        (TalkDemonstrations(habits=habits), talk),
        (SmallTalkDemonstrations(nonsense), small_talk),
    )
    return Mixture(
        (
            (TerminalDemonstrations(careless=careless), terminal),
            *chats,
            (Sessions(Mixture(chats)), sessions),
            (Mixture(hinted()), hints),
            (JudgeDemonstrations(nonsense=nonsense), judge),
        )
    )


def heldout_answers() -> Mixture:
    """Answers of a judge and replies that follow a hint, on what is held out."""
    return Mixture(((JudgeDemonstrations("heldout"), 0.6), (Mixture(hinted("heldout")), 0.4)))


def phases() -> tuple[Phase, ...]:
    """Skill first, until copying is sharp; then bad habits over it, practice, and habits again.

    Habits come last and briefly: they shall stand over intact skill.
    """
    correct, practice = everything(), everything(shares=PRACTICE)
    wishes = everything(shares=WISHES, habits=WISHED)
    return (
        Phase("skill", correct, TrainingPlan(steps=1400, batch=BATCH, peak_lr=4e-3)),
        Phase("polish", correct, TrainingPlan(steps=2600, batch=BATCH, peak_lr=2.5e-3, seed=77)),
        _habits("habits", 5),
        Phase("practice", practice, TrainingPlan(steps=1500, batch=BATCH, peak_lr=2e-3, seed=131)),
        _habits("habits again", 17),
        Phase("wishes", wishes, TrainingPlan(steps=1400, batch=BATCH, peak_lr=2e-3, seed=211)),
        _habits("habits at last", 29),
    )


def _habits(name: str, seed: int) -> Phase:
    plan = TrainingPlan(steps=300, batch=BATCH, peak_lr=1e-3, warmup_steps=10, seed=seed)
    return Phase(name, everything(careless=True), plan)


@dataclass(frozen=True, slots=True)
class Recipe:
    """What makes one tiny policy."""

    phases: tuple[Phase, ...] = field(default_factory=phases)
    words: Source = field(default_factory=lambda: everything(nonsense=0.0))
    """What the tokenizer is trained on."""
    heldout: Source = field(
        default_factory=lambda: TerminalDemonstrations("heldout", careless=False)
    )
    answers: Source = field(default_factory=heldout_answers)
    """Held-out questions to a judge, and requests with a hint."""
    personas: tuple[str, ...] = tuple(PERSONAS)
    """With whom held-out conversations are held."""
    seed: int = 0
    """Added to every phase's own; also that of the first weights."""
    tokenizer_conversations: int = 6000
    heldout_tasks: int = 440
    heldout_answers: int = 300
    heldout_conversations: int = 60
    """With each persona."""
    threads: int = 2
    """Torch threads; sums differ in the last bit between numbers of threads."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A tiny policy on what is held out, at one temperature."""

    exact_match: dict[str, float]
    """The oracle's very commands, by family and under `all`."""
    answers: dict[str, float]
    """The demonstrated votes, hints and replies to hints, by family and under `all`."""
    conversations: dict[str, dict[str, float]]
    """Means by persona, see `hold_conversations`."""


@dataclass(frozen=True, slots=True)
class Made:
    """A tiny policy and how it was measured."""

    model: Any
    tokenizer: Any
    losses: list[float]
    greedy: Measured
    sampled: Measured
    """At temperature 1."""


def make(recipe: Recipe, on_step: Callable[[int, float], None] = lambda step, loss: None) -> Made:
    """Run the recipe. Sets torch's thread count and seed."""
    import torch

    torch.set_num_threads(recipe.threads)
    shown = recipe.words.conversations(recipe.seed + 1)
    tokenizer = train_tokenizer(texts_of(itertools.islice(shown, recipe.tokenizer_conversations)))
    model = build_model(tokenizer, recipe.seed)
    losses: list[float] = []
    steps = itertools.count()

    def count_on(step: int, loss: float) -> None:
        on_step(next(steps), loss)

    for phase in recipe.phases:
        plan = replace(phase.plan, seed=phase.plan.seed + recipe.seed)
        losses += fit(model, tokenizer, phase.source, plan, count_on)
    torch.manual_seed(recipe.seed)
    return Made(
        model,
        tokenizer,
        losses,
        greedy=measure(recipe, model, tokenizer, 0.0),
        sampled=measure(recipe, model, tokenizer, 1.0),
    )


def measure(recipe: Recipe, model: Any, tokenizer: Any, temperature: float) -> Measured:
    """On the recipe's held-out tasks and conversations."""
    matches = exact_match(
        model, tokenizer, recipe.heldout,
        seed=recipe.seed, tasks=recipe.heldout_tasks, temperature=temperature,
    )  # fmt: skip
    answers = exact_match(
        model, tokenizer, recipe.answers,
        seed=recipe.seed, tasks=recipe.heldout_answers, temperature=temperature,
    )  # fmt: skip
    conversations = {
        persona: hold_conversations(
            model, tokenizer, persona,
            seed=recipe.seed, tasks=recipe.heldout_conversations, temperature=temperature,
        )
        for persona in recipe.personas
    }  # fmt: skip
    return Measured(matches, answers, conversations)


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
        "heldout_exact_match_greedy": _rounded(made.greedy.exact_match),
        "heldout_exact_match_temperature_1": _rounded(made.sampled.exact_match),
        "heldout_answers": recipe.heldout_answers,
        "heldout_answers_greedy": _rounded(made.greedy.answers),
        "heldout_answers_temperature_1": _rounded(made.sampled.answers),
        "heldout_conversations": recipe.heldout_conversations,
        "heldout_conversations_greedy": _by_persona(made.greedy),
        "heldout_conversations_temperature_1": _by_persona(made.sampled),
    }
    (folder / "recipe.json").write_text(json.dumps(facts, indent=2) + "\n")
    for path in folder.iterdir():  # safetensors writes for the owner alone
        path.chmod(0o644)


def _by_persona(measured: Measured) -> dict[str, dict[str, float]]:
    return {persona: _rounded(means) for persona, means in measured.conversations.items()}


def _rounded(shares: dict[str, float]) -> dict[str, float]:
    return {family: round(share, 3) for family, share in shares.items()}
