"""`bench compare A B`: what was measured of two benches, or of two recipes, task by task.

    python -m clawrl_gym.bench compare runs/before runs/after
    python -m clawrl_gym.bench compare runs/bench/personal_binary runs/bench/personal_hybrid

B less A after training, on the tasks and seeds that both have. Reads the evaluations alone, so it
does not matter when or where they were made.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from clawrl_gym.comparison.matrix import OPEN, paired, words
from clawrl_gym.comparison.scores import Scores, read_evaluations
from clawrl_gym.comparison.tables import ResultTable
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.evaluation.settings import EVALUATION_FILE

_MEASURED = re.compile(r"seed(\d+)-measured")
ByMeasure = dict[str, dict[int, Scores]]
"""Scores of a recipe, by measure and by seed."""


@dataclass(frozen=True, slots=True)
class RecipePair:
    """Two recipes that are compared."""

    name: str
    first: ByMeasure
    second: ByMeasure


def compare(first: Path, second: Path) -> ResultTable:
    """B less A on every measure that both have. Raises ConfigError for what is not a bench."""
    pairs = _pairs(first, second)
    measures = list(
        dict.fromkeys(name for pair in pairs for name in pair.first if name in pair.second)
    )
    if not measures:
        raise ConfigError(
            f"got {str(first)!r} and {str(second)!r}, which have no environment in common that "
            "was measured after training"
        )
    rows = []
    for pair in pairs:
        changes = [paired(pair.second.get(name, {}), pair.first.get(name, {})) for name in measures]
        counts = sorted({(change.tasks, change.seeds) for change in changes if change})
        n = ", ".join(f"{tasks} by {seeds}" for tasks, seeds in counts) or "-"
        rows.append([pair.name, *map(words, changes), n])
    return ResultTable(
        f"{second}, less {first}",
        "after training; 95 % intervals over seeds and tasks, paired by both; n: tasks by seeds; "
        f"≈: {OPEN}",
        ["recipe", *measures, "n"],
        rows,
    )


def _pairs(first: Path, second: Path) -> list[RecipePair]:
    """Two recipes' folders, or the recipes that two benches have in common."""
    one, two = _recipe(first), _recipe(second)
    if one and two:
        return [RecipePair(second.resolve().name, one, two)]
    if one or two:
        raise ConfigError(
            f"got {str(first)!r} and {str(second)!r}, of which one is a recipe's folder and the "
            "other is not, expected two benches (dir=PATH), or two recipes in them (PATH/RECIPE)"
        )
    recipes = [
        {folder.name: scores for folder in sorted(bench.glob("*")) if (scores := _recipe(folder))}
        for bench in (first, second)
    ]
    for bench, own in zip((first, second), recipes, strict=True):
        if not own:
            missing = "" if bench.exists() else ", where there is no folder"
            raise ConfigError(
                f"got {str(bench)!r}{missing}, expected the folder of a bench (dir=PATH) or of a "
                "recipe in it, with evaluations of runs that have ended"
            )
    common = [name for name in recipes[0] if name in recipes[1]]
    if not common:
        raise ConfigError(
            f"got {str(first)!r} with {', '.join(recipes[0])} and {str(second)!r} with "
            f"{', '.join(recipes[1])}, expected a recipe that both have; two recipes are compared "
            "by their own folders, PATH/RECIPE"
        )
    return [RecipePair(name, recipes[0][name], recipes[1][name]) for name in common]


def _recipe(folder: Path) -> ByMeasure:
    """Results in a recipe's folder; empty when it is not one."""
    scores: ByMeasure = {}
    for place in sorted(folder.glob("seed*-measured")):
        seed = _MEASURED.fullmatch(place.name)
        if seed is None:
            continue
        columns = {path.parent.name: path.parent for path in place.glob(f"*/{EVALUATION_FILE}")}
        for name, by_task in read_evaluations(columns).by_task.items():
            scores.setdefault(name, {})[int(seed[1])] = by_task
    return scores
