"""The matrix, recipe by environment: what training changed, task by task, with 95 % intervals.

After is compared with before on the same tasks, over all seeds, and a recipe with the first one on
the same tasks and seeds (see `intervals.py`). A task that was lost anywhere is in no difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from clawrl_gym.comparison.plan import CONTROL_MARK
from clawrl_gym.comparison.results import RecipeResult
from clawrl_gym.comparison.scores import Scores
from clawrl_gym.comparison.tables import ResultTable
from clawrl_gym.comparison.teacher_probe import probe_words
from clawrl_gym.core.intervals import Difference, mean_difference
from clawrl_gym.ui.text import duration, number

_BEFORE_SUCCESS = ("liked", "correct")
"""Scores that say more than success, of environments that have them; success stands beside them,
so that no figure of one hides what it cost the others."""
_FALLEN = -0.05
"""A change of right answers from which on it is said first."""
_EVEN = 0.05
"""Largest distance between budgets that are called equal."""
OPEN = "not distinguishable"
"""Word for a difference whose interval contains 0."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One recipe on one measure."""

    recipe: RecipeResult
    measure: str
    before: float | None
    after: float | None
    """Mean over the seeds."""
    change: Difference | None
    """Change; None: before or after is not measured."""
    against_first: Difference | None
    """After, less after of the first recipe; None for itself."""

    @property
    def is_own(self) -> bool:
        """Whether the recipe trains on that environment."""
        return self.measure.partition(" ")[0] in self.recipe.env.split("+")


def matrix_of(results: Sequence[RecipeResult]) -> list[list[Cell]]:
    """A row a recipe, a column a measure."""
    return [
        [_cell(recipe, measure, results[0]) for measure in columns_of(results)]
        for recipe in results
    ]


def columns_of(results: Sequence[RecipeResult]) -> list[str]:
    """The measures of the matrix: success, and before it what an environment has that says more."""
    measures: dict[str, None] = {}
    for recipe in results:
        for source in (recipe.before, *(run.after for run in recipe.runs)):
            measures |= dict.fromkeys(source.by_task)
    columns = []
    for env in dict.fromkeys(name.partition(" ")[0] for name in measures):
        more = [f"{env} {score}" for score in _BEFORE_SUCCESS]
        columns += [*(name for name in more if name in measures), f"{env} success"]
    return columns


def _cell(recipe: RecipeResult, measure: str, first: RecipeResult) -> Cell:
    afters = {run.seed: run.after.by_task.get(measure, {}) for run in recipe.runs}
    afters = {seed: scores for seed, scores in afters.items() if scores}
    means = [run.after.values[measure] for run in recipe.runs if measure in run.after.values]
    before = recipe.before.by_task.get(measure, {})
    firsts = {run.seed: run.after.by_task.get(measure, {}) for run in first.runs}
    return Cell(
        recipe,
        measure,
        recipe.before.values.get(measure),
        sum(means) / len(means) if means else None,
        paired(afters, dict.fromkeys(afters, before)),
        None if recipe is first else paired(afters, firsts),
    )


def paired(ours: Mapping[int, Scores], theirs: Mapping[int, Scores]) -> Difference | None:
    """Ours less theirs, by seed, on the tasks that all of them have; None of no such task."""
    seeds = sorted(seed for seed in ours.keys() & theirs.keys() if ours[seed] and theirs[seed])
    if not seeds:
        return None
    tasks = sorted(set.intersection(*(ours[seed].keys() & theirs[seed].keys() for seed in seeds)))
    return mean_difference([[ours[seed][t] - theirs[seed][t] for t in tasks] for seed in seeds])


def matrix_table(results: Sequence[RecipeResult]) -> ResultTable:
    """Every recipe on every environment, and what it cost."""
    rows = []
    for recipe, cells in zip(results, matrix_of(results), strict=True):
        wall = duration(sum(recipe.wall_s) / len(recipe.wall_s)) if recipe.wall_s else "-"
        tokens = [run.tokens for run in recipe.runs]
        rows.append(
            [
                recipe.name,
                *[change_words(cell) for cell in cells],
                _paired_count(cells),
                number(recipe.episodes),
                number(round(sum(tokens) / len(tokens))) if any(tokens) else "-",
                wall,
            ]
        )
    return ResultTable(
        "Matrix: before → after, and the difference",
        "in brackets the 95 % interval of the difference, over seeds and tasks, paired; ≈: "
        f"{OPEN} from no change; n: tasks by seeds; episodes, tokens and time of one run",
        ["recipe", *columns_of(results), "n", "episodes", "tokens", "time"],
        rows,
    )


def against_table(results: Sequence[RecipeResult]) -> ResultTable | None:
    """Every other recipe less the first; None of one recipe."""
    if len(results) < 2 or not columns_of(results):
        return None
    rows = [
        [cells[0].recipe.name, *[words(cell.against_first) for cell in cells]]
        for cells in matrix_of(results)[1:]
    ]
    return ResultTable(
        f"After training, less {results[0].name}",
        f"95 % intervals, paired by seed and task; ≈: {OPEN}",
        ["recipe", *columns_of(results)],
        rows,
    )


def change_words(cell: Cell) -> str:
    """`0.45 → 0.98, +0.53 (+0.44 to +0.62)`."""
    if cell.before is None or cell.after is None:
        return "-" if cell.after is None else f"{cell.after:.2f}"
    return f"{cell.before:.2f} → {cell.after:.2f}, {words(cell.change)}"


def words(change: Difference | None) -> str:
    """`+0.53 (+0.44 to +0.62)`."""
    if change is None:
        return "-"
    mark = "" if change.is_clear else "≈ "
    return f"{mark}{change.mean:+.2f} ({change.low:+.2f} to {change.high:+.2f})"


def findings(results: Sequence[RecipeResult]) -> list[str]:
    """Findings, a sentence each; those that the intervals do not tell apart are marked so."""
    matrix = [cells for cells in matrix_of(results) if any(cell.change for cell in cells)]
    if not matrix:
        return ["Nothing is measured before and after yet."]
    found = [sentence for cells in matrix if (sentence := _fallen_sentence(cells))]
    found += [_change_sentence(cells) for cells in matrix]
    probes = {recipe.model: recipe.probe for recipe in results if recipe.probe}
    found += [
        f"Teacher probe of {model}, liked before training: {probe_words(rows)}."
        for model, rows in probes.items()
    ]
    found += [sentence for cells in matrix[1:] if (sentence := _against_sentence(cells, results))]
    seeds = max(cell.change.seeds for cells in matrix for cell in cells if cell.change)
    if seeds == 1:
        found.append("One seed: the intervals are over tasks alone and say nothing of other seeds.")
    if any(CONTROL_MARK in recipe.name for recipe in results):
        found.append(
            "Controls have nothing to learn from: what one gains is no effect of rewards or hints."
        )
    return [*found, budget_sentence(results)]


def _fallen_sentence(cells: Sequence[Cell]) -> str:
    """The cost in right answers; empty where that is little."""
    fallen = [
        f"{cell.before:.2f} to {cell.after:.2f}, {words(cell.change)}, on {cell.measure}"
        for cell in cells
        if cell.measure.endswith(" correct")
        and cell.before is not None
        and cell.after is not None
        and cell.change is not None
        and cell.change.mean < _FALLEN
    ]
    return f"RIGHT ANSWERS FELL by {cells[0].recipe.name}: {_list(fallen)}." if fallen else ""


def _change_sentence(cells: Sequence[Cell]) -> str:
    up = [cell for cell in cells if cell.change and cell.change.low > 0]
    down = [cell for cell in cells if cell.change and cell.change.high < 0]
    level = [cell.measure for cell in cells if cell.change and not cell.change.is_clear]
    parts = []
    if up:
        parts.append(f"gained {_list(f'{words(c.change)} on {c.measure}' for c in up)}")
    if down:
        parts.append(f"lost {_list(_loss(c) for c in down)}")
    if level:
        parts.append(f"is {OPEN} from before on {_list(level)}")
    return f"{cells[0].recipe.name} {_list(parts)}."


def _loss(cell: Cell) -> str:
    """`0.20 (0.06 to 0.34) on terminal success`."""
    change = cell.change
    assert change is not None
    return f"{-change.mean:.2f} ({-change.high:.2f} to {-change.low:.2f}) on {cell.measure}"


def _against_sentence(cells: Sequence[Cell], results: Sequence[RecipeResult]) -> str:
    compared = [cell for cell in cells if cell.against_first is not None]
    clear = [cell for cell in compared if cell.against_first and cell.against_first.is_clear]
    level = [cell.measure for cell in compared if cell not in clear]
    first, name = results[0].name, cells[0].recipe.name
    if not compared:
        return ""
    parts = []
    if clear:
        differences = _list(f"{words(c.against_first)} on {c.measure}" for c in clear)
        parts.append(differences)
    if level:
        parts.append(f"{OPEN} on {_list(level)}")
    return f"{name}, less {first}: {'; '.join(parts)}."


def budget_sentence(results: Sequence[RecipeResult]) -> str:
    """Whether recipes had as much to learn from."""
    episodes = [recipe.episodes for recipe in results]
    if max(episodes) <= (1 + _EVEN) * min(episodes):
        same = "" if max(episodes) == min(episodes) else "about "
        return f"Budgets are equal: {same}{number(max(episodes))} training episodes a run."
    return (
        f"Budgets are NOT equal: {number(min(episodes))} to {number(max(episodes))} training "
        "episodes a run, so differences between recipes may be theirs; episodes=N sets them."
    )


def cells_of(results: Sequence[RecipeResult]) -> list[dict[str, object]]:
    """All cells, for programs."""
    return [
        {
            "recipe": cell.recipe.name,
            "measure": cell.measure,
            "before": cell.before,
            "after": cell.after,
            "change": asdict(cell.change) if cell.change else None,
            "against_first": asdict(cell.against_first) if cell.against_first else None,
        }
        for cells in matrix_of(results)
        for cell in cells
    ]


def _paired_count(cells: Sequence[Cell]) -> str:
    counts = sorted({(cell.change.tasks, cell.change.seeds) for cell in cells if cell.change})
    return ", ".join(f"{tasks} by {seeds}" for tasks, seeds in counts) or "-"


def _list(parts: Iterable[str]) -> str:
    texts = list(parts)
    return ", ".join(texts[:-1]) + " and " + texts[-1] if len(texts) > 1 else "".join(texts)
