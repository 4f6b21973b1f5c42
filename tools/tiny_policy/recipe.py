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
from typing import TYPE_CHECKING

from clawrl_gym.envs.showcase.conversation.personas import PERSONAS
from tools.tiny_policy.conversations import Source, texts_of
from tools.tiny_policy.episodes import hold_conversations
from tools.tiny_policy.evaluation import exact_match
from tools.tiny_policy.model import build_model
from tools.tiny_policy.page_tasks import PageDemonstrations
from tools.tiny_policy.phases import (
    Phase,
    everything,
    heldout_answers,
    phases,
    skill_phases,
    skills,
)
from tools.tiny_policy.repositories import RepositoryDemonstrations
from tools.tiny_policy.small_talk import SmallTalkDemonstrations
from tools.tiny_policy.terminal_tasks import TerminalDemonstrations
from tools.tiny_policy.tokenizer import train_tokenizer
from tools.tiny_policy.tool_tasks import ToolDemonstrations
from tools.tiny_policy.training import fit

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

SLIPS = (
    "in the last phase the oracle's last command carries its family's typical slip in a fixed "
    "share of the demonstrations (tools/tiny_policy/careless.py; tool_slips.py for tools, "
    "page_slips.py for web pages), "
    "and first replies in conversations are mostly in the style of a chat model "
    "(tools/tiny_policy/talk.py), so that the policy starts imperfect"
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Recipe of one tiny policy."""

    phases: tuple[Phase, ...] = field(default_factory=phases)
    words: Source = field(default_factory=lambda: everything(nonsense=0.0))
    """Conversations that the tokenizer is trained on."""
    heldout: Source = field(
        default_factory=lambda: TerminalDemonstrations("heldout", careless=False)
    )
    answers: Source = field(default_factory=heldout_answers)
    """Held-out questions to a judge, and requests with a hint."""
    tools: Source = field(default_factory=lambda: ToolDemonstrations("heldout", careless=False))
    """Held-out tasks with tools."""
    repositories: Source = field(
        default_factory=lambda: RepositoryDemonstrations("heldout", careless=False)
    )
    """Held-out repositories with a bug."""
    pages: Source = field(default_factory=lambda: PageDemonstrations("heldout", careless=False))
    """Held-out tasks on web pages."""
    chats: Source = field(default_factory=lambda: SmallTalkDemonstrations(nonsense=0.0))
    """Files to read and to write, greetings; of another seed than any phase's."""
    personas: tuple[str, ...] = tuple(PERSONAS)
    """Personas of held-out conversations."""
    demonstrator: str = SLIPS
    """Source of the demonstrations."""
    is_measured: bool = True
    """Whether it is measured on all held-out tasks when it is made."""
    seed: int = 0
    """Added to every phase's own; also that of the first weights."""
    tokenizer_conversations: int = 6000
    heldout_tasks: int = 440
    heldout_answers: int = 300
    heldout_tools: int = 390
    heldout_repositories: int = 120
    heldout_pages: int = 360
    heldout_chats: int = 400
    heldout_conversations: int = 60
    """Number of held-out conversations with each persona."""
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
    tools: dict[str, float]
    """The oracle's very calls and what it says, by family and under `all`."""
    repositories: dict[str, float]
    """The commands that mend a repository, by family and under `all`."""
    pages: dict[str, float]
    """The oracle's very actions and what they quote, by family and under `all`."""
    chats: dict[str, float]
    """The demonstrated replies and calls, by kind and under `all`."""


@dataclass(frozen=True, slots=True)
class TrainedPolicy:
    """A tiny policy and how it was measured."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    losses: list[float]
    greedy: Measured | None
    """Greedy measurement; None where the recipe measures nothing."""
    sampled: Measured | None
    """Measurement at temperature 1."""


def make(
    recipe: Recipe, on_step: Callable[[int, float], None] = lambda step, loss: None
) -> TrainedPolicy:
    """Run the recipe. Sets torch's thread count and seed."""
    import torch

    torch.set_num_threads(recipe.threads)
    model, tokenizer = _begin(recipe)
    losses: list[float] = []
    steps = itertools.count()

    def count_on(step: int, loss: float) -> None:
        on_step(next(steps), loss)

    for phase in recipe.phases:
        plan = replace(phase.plan, seed=phase.plan.seed + recipe.seed)
        losses += fit(model, tokenizer, phase.source, plan, count_on)
    torch.manual_seed(recipe.seed)
    greedy = sampled = None
    if recipe.is_measured:
        greedy = measure(recipe, model, tokenizer, 0.0)
        sampled = measure(recipe, model, tokenizer, 1.0)
    return TrainedPolicy(model, tokenizer, losses, greedy, sampled)


def skills_recipe() -> Recipe:
    """Recipe of `tiny_skills`, from the first weights on."""
    return Recipe(
        phases=skill_phases(),
        words=skills(orders=0.3),
        demonstrator=(
            "single skills, without a slip; two things of one request are done only with a person "
            "who answers when the first is done (tools/tiny_policy/skills.py); first replies in "
            "conversations are in every style as often (tools/tiny_policy/talk.py)"
        ),
        is_measured=False,
    )


def _begin(recipe: Recipe) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Model and tokenizer before the first phase."""
    conversations = recipe.words.conversations(recipe.seed + 1)
    tokenizer = train_tokenizer(
        texts_of(itertools.islice(conversations, recipe.tokenizer_conversations))
    )
    return build_model(tokenizer, recipe.seed), tokenizer


def measure(
    recipe: Recipe, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, temperature: float
) -> Measured:
    """Measure a model on the recipe's held-out tasks and conversations."""

    def match(source: Source, tasks: int) -> dict[str, float]:
        return exact_match(
            model, tokenizer, source, seed=recipe.seed, tasks=tasks, temperature=temperature
        )

    matches = match(recipe.heldout, recipe.heldout_tasks)
    answers = match(recipe.answers, recipe.heldout_answers)
    conversations = {
        persona: hold_conversations(
            model, tokenizer, persona,
            seed=recipe.seed, tasks=recipe.heldout_conversations, temperature=temperature,
        )
        for persona in recipe.personas
    }  # fmt: skip
    tools = match(recipe.tools, recipe.heldout_tools)
    repositories = match(recipe.repositories, recipe.heldout_repositories)
    pages = match(recipe.pages, recipe.heldout_pages)
    chats = match(recipe.chats, recipe.heldout_chats)
    return Measured(matches, answers, conversations, tools, repositories, pages, chats)


def save(policy: TrainedPolicy, recipe: Recipe, folder: Path) -> None:
    """Write the folder that transformers and vLLM load, with `recipe.json` beside the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    policy.model.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
    facts: dict[str, object] = {
        "seed": recipe.seed,
        "phases": {phase.name: asdict(phase.plan) for phase in recipe.phases},
        "threads": recipe.threads,
        "parameters": sum(p.numel() for p in policy.model.parameters()),
        "vocabulary": len(policy.tokenizer),
        "demonstrator": recipe.demonstrator,
    }
    if policy.greedy is not None and policy.sampled is not None:
        facts |= _measured_facts(recipe, policy.greedy, policy.sampled)
    (folder / "recipe.json").write_text(json.dumps(facts, indent=2) + "\n")
    for path in folder.iterdir():  # safetensors writes for the owner alone
        path.chmod(0o644)


def _measured_facts(recipe: Recipe, greedy: Measured, sampled: Measured) -> dict[str, object]:
    return {
        "heldout_tasks": recipe.heldout_tasks,
        "heldout_exact_match_greedy": _rounded(greedy.exact_match),
        "heldout_exact_match_temperature_1": _rounded(sampled.exact_match),
        "heldout_answers": recipe.heldout_answers,
        "heldout_answers_greedy": _rounded(greedy.answers),
        "heldout_answers_temperature_1": _rounded(sampled.answers),
        "heldout_tools": recipe.heldout_tools,
        "heldout_tools_greedy": _rounded(greedy.tools),
        "heldout_tools_temperature_1": _rounded(sampled.tools),
        "heldout_repositories": recipe.heldout_repositories,
        "heldout_repositories_greedy": _rounded(greedy.repositories),
        "heldout_repositories_temperature_1": _rounded(sampled.repositories),
        "heldout_pages": recipe.heldout_pages,
        "heldout_pages_greedy": _rounded(greedy.pages),
        "heldout_pages_temperature_1": _rounded(sampled.pages),
        "heldout_chats": recipe.heldout_chats,
        "heldout_chats_greedy": _rounded(greedy.chats),
        "heldout_chats_temperature_1": _rounded(sampled.chats),
        "heldout_conversations": recipe.heldout_conversations,
        "heldout_conversations_greedy": _by_persona(greedy),
        "heldout_conversations_temperature_1": _by_persona(sampled),
    }


def _by_persona(measured: Measured) -> dict[str, dict[str, float]]:
    return {persona: _rounded(means) for persona, means in measured.conversations.items()}


def _rounded(shares: dict[str, float]) -> dict[str, float]:
    return {family: round(share, 3) for family, share in shares.items()}
