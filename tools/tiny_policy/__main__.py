"""`python -m tools.tiny_policy`: make the tiny policy again, with a progress bar."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from clawrl_gym.inference.models.shipped import shipped_dir
from tools.tiny_policy.recipe import Measured, Recipe, make, save, skills_recipe

RECIPES = {"tiny": Recipe, "tiny_skills": skills_recipe}


def main() -> None:
    """Train, write the folder, show how it does on held-out tasks."""
    recipe, folder = _arguments()
    console = Console()
    with Progress(
        TextColumn("tiny policy"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.3f}"),
        TimeRemainingColumn(),
        console=console,
    ) as progress:
        total = sum(phase.plan.steps for phase in recipe.phases)
        bar = progress.add_task("", total=total, loss=float("nan"))
        policy = make(
            recipe, lambda step, loss: progress.update(bar, completed=step + 1, loss=loss)
        )
    save(policy, recipe, folder)
    if policy.greedy is not None and policy.sampled is not None:
        _show(console, policy.greedy, policy.sampled)
    console.print(f"written to {folder}")


def _show(console: Console, greedy: Measured, sampled: Measured) -> None:
    console.print(
        _matches("tasks: the oracle's very commands", greedy.exact_match, sampled.exact_match),
        _matches("tools: the oracle's very calls", greedy.tools, sampled.tools),
        _matches("repositories: commands that mend", greedy.repositories, sampled.repositories),
        _matches("pages: the oracle's very actions", greedy.pages, sampled.pages),
        _matches("small talk: the very replies", greedy.chats, sampled.chats),
        _conversations(greedy, sampled),
    )


def _arguments() -> tuple[Recipe, Path]:
    default = Recipe()
    parser = argparse.ArgumentParser(prog="python -m tools.tiny_policy", description=__doc__)
    parser.add_argument("--seed", type=int, default=default.seed)
    parser.add_argument("--threads", type=int, default=default.threads, help="torch threads")
    parser.add_argument("--policy", choices=RECIPES, default="tiny")
    parser.add_argument("--out", type=Path, help="folder to write; the shipped one unless given")
    arguments = parser.parse_args()
    recipe = RECIPES[arguments.policy]()
    out = arguments.out or shipped_dir(arguments.policy)
    return replace(recipe, seed=arguments.seed, threads=arguments.threads), out


def _matches(title: str, greedy: dict[str, float], sampled: dict[str, float]) -> Table:
    table = Table(title=f"held-out {title}")
    for column in ("family", "greedy", "temperature 1"):
        table.add_column(column)
    for family, share in greedy.items():
        table.add_row(family, f"{share:.2f}", f"{sampled[family]:.2f}")
    return table


def _conversations(greedy: Measured, sampled: Measured) -> Table:
    table = Table(title="held-out conversations: greedy, temperature 1")
    for column in ("persona", "satisfied", "correct", "personalization", "calls"):
        table.add_column(column)
    for persona, means in greedy.conversations.items():
        others = sampled.conversations[persona]
        table.add_row(
            persona, *(f"{share:.2f}, {others[name]:.2f}" for name, share in means.items())
        )
    return table


if __name__ == "__main__":
    main()
