"""A bench's results as tables: for the terminal, as Markdown, and as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich import box
from rich.table import Table

from clawrl_gym.comparison.results import RecipeResult, SeedPoint, measures_of
from clawrl_gym.comparison.teacher_probe import ProbeRow
from clawrl_gym.ui.text import duration


@dataclass(frozen=True, slots=True)
class ResultTable:
    """Words in rows and columns."""

    title: str
    caption: str
    columns: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
        body = "\n".join("| " + " | ".join(line) + " |" for line in cells)
        return f"**{self.title}**: {self.caption}\n\n{body}\n"

    def rich(self) -> Table:
        table = Table(
            title=self.title, caption=self.caption, box=box.SIMPLE_HEAD, title_justify="left",
            caption_justify="left", header_style="grey62", title_style="bold",
        )  # fmt: skip
        for index, column in enumerate(self.columns):
            longest_word = max(len(word) for word in column.split())
            table.add_column(column, no_wrap=index == 0, min_width=longest_word)
        for row in self.rows:
            table.add_row(*row)
        return table


def tables_of(results: Sequence[RecipeResult], target: float) -> list[ResultTable]:
    """Before and after everywhere; the way there; nothing of recipes without a finished run."""
    return [_before_after(results), *_ways(results, target)]


def probe_tables(results: Sequence[RecipeResult]) -> list[ResultTable]:
    """The teacher probe of each policy that recipes begin with, where they learn from hints."""
    probes = {recipe.model: recipe.probe for recipe in results if recipe.probe}
    return [probe_table(model, rows) for model, rows in probes.items()]


def probe_table(model: str, rows: Sequence[ProbeRow]) -> ResultTable:
    """First replies by what was read behind the first message."""
    return ResultTable(
        f"Teacher probe of {model}",
        "shares of first replies before training, with 95 % intervals: what a policy makes of a "
        "hint is all that it can teach itself by it",
        ["hint", "liked", "correct", "n"],
        [
            [
                row.hint,
                f"{row.liked:.2f} ({row.low:.2f} to {row.high:.2f})",
                f"{row.correct:.2f}",
                str(row.tasks),
            ]
            for row in rows
        ],
    )


def _before_after(results: Sequence[RecipeResult]) -> ResultTable:
    measures = measures_of(results)
    rows = []
    for recipe in results:
        runs = f"{len(recipe.runs)} of {recipe.planned}"
        wall = duration(sum(recipe.wall_s) / len(recipe.wall_s)) if recipe.wall_s else "-"
        changes = [_change(recipe.curve(measure)) for measure in measures]
        lost = str(sum(run.lost for run in recipe.runs))
        rows.append([recipe.name, runs, str(recipe.steps), *changes, lost, wall])
    return ResultTable(
        "Held-out, before → after",
        "mean over seeds, and the lowest and highest seed; lost: tasks that nobody measured",
        ["recipe", "runs", "updates", *measures, "lost", "wall time"],
        rows,
    )


def _ways(results: Sequence[RecipeResult], target: float) -> list[ResultTable]:
    """For each environment: its main measure at every update at which a recipe was measured."""
    tables = []
    for env in dict.fromkeys(recipe.env for recipe in results):
        recipes = [recipe for recipe in results if recipe.env == env and recipe.runs]
        steps = sorted({point.step for recipe in recipes for point in recipe.curve(recipe.main)})
        if not steps:
            continue
        first = recipes[0]
        compared = f"last, less {first.name}"
        rows = []
        for recipe in recipes:
            by_step = {point.step: point for point in recipe.curve(recipe.main)}
            cells = [_spread(by_step[step]) if step in by_step else "-" for step in steps]
            rows.append([recipe.name, *cells, _reached(recipe, target), _paired(recipe, first)])
        tables.append(
            ResultTable(
                first.main,
                "held-out, by updates; differences are between runs of the same seed",
                ["recipe", *[f"at {step}" for step in steps], f"first at {target:g}", compared],
                rows,
            )
        )
    return tables


def _change(curve: Sequence[SeedPoint]) -> str:
    if not curve:
        return "-"
    if len(curve) == 1:
        return f"{curve[0].mean:.2f} at {curve[0].step}"
    return f"{curve[0].mean:.2f} → {_spread(curve[-1])}"


def _spread(point: SeedPoint) -> str:
    if len(point.values) == 1:
        return f"{point.mean:.2f}"
    return f"{point.mean:.2f} ({point.low:.2f} to {point.high:.2f})"


def _reached(recipe: RecipeResult, target: float) -> str:
    step = recipe.reached(target)
    if step is None:
        return "never"
    if step == 0:
        return "before"
    return f"{step} updates, {step * recipe.problems_per_update} problems"


def _paired(recipe: RecipeResult, first: RecipeResult) -> str:
    differences = recipe.less(first)
    if recipe is first or not differences:
        return "-"
    mean = sum(differences) / len(differences)
    each = ", ".join(f"{value:+.2f}" for value in differences)
    return f"{mean:+.2f} ({each})" if len(differences) > 1 else f"{mean:+.2f}"


def data_of(results: Sequence[RecipeResult], target: float) -> list[dict[str, object]]:
    """All numbers, for programs."""
    return [
        {
            "recipe": recipe.name,
            "env": recipe.env,
            "main": recipe.main,
            "updates": recipe.steps,
            "problems_per_update": recipe.problems_per_update,
            "episodes_per_update": recipe.episodes_per_update,
            "seeds": [run.seed for run in recipe.runs],
            "lost": [run.lost for run in recipe.runs],
            "wall_s": recipe.wall_s,
            "failures": recipe.failures,
            "teacher_probe": [asdict(row) for row in recipe.probe],
            "reached_at_update": recipe.reached(target),
            "heldout": {
                name: [{"step": p.step, "values": list(p.values)} for p in recipe.curve(name)]
                for name in recipe.measures
            },
            "training": {
                name: [{"step": p.step, "values": list(p.values)} for p in recipe.training(name)]
                for name in recipe.measures
                if recipe.training(name)
            },
        }
        for recipe in results
    ]
