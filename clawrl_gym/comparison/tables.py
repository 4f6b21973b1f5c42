"""A bench's results as tables: for the terminal, as Markdown, and as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table as RichTable

from clawrl_gym.comparison.results import Point, RecipeResult
from clawrl_gym.ui.text import duration


@dataclass(frozen=True, slots=True)
class Table:
    """Words in rows and columns."""

    title: str
    says: str
    columns: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
        body = "\n".join("| " + " | ".join(line) + " |" for line in cells)
        return f"**{self.title}**: {self.says}\n\n{body}\n"

    def rich(self) -> RichTable:
        table = RichTable(
            title=self.title, caption=self.says, box=box.SIMPLE_HEAD, title_justify="left",
            caption_justify="left", header_style="grey62", title_style="bold",
        )  # fmt: skip
        for index, column in enumerate(self.columns):
            longest_word = max(len(word) for word in column.split())
            table.add_column(column, no_wrap=index == 0, min_width=longest_word)
        for row in self.rows:
            table.add_row(*row)
        return table


def tables_of(results: Sequence[RecipeResult], target: float) -> list[Table]:
    """Before and after everywhere; the way there; nothing of recipes without a finished run."""
    return [_before_after(results), *_ways(results, target)]


def _before_after(results: Sequence[RecipeResult]) -> Table:
    measures = list(dict.fromkeys(name for one in results for name in one.measures))
    measures.sort(key=lambda name: name not in {one.main for one in results})
    rows = []
    for one in results:
        total = len(one.runs) + len(one.failures)
        wall = duration(sum(one.wall_s) / len(one.wall_s)) if one.wall_s else "-"
        changes = [_change(one.curve(measure)) for measure in measures]
        rows.append([one.name, f"{len(one.runs)} of {total}", str(one.steps), *changes, wall])
    return Table(
        "Held-out, before → after",
        "mean over seeds, and the lowest and highest seed",
        ["recipe", "runs", "updates", *measures, "wall time"],
        rows,
    )


def _ways(results: Sequence[RecipeResult], target: float) -> list[Table]:
    """For each environment: its main measure at every update at which a recipe was measured."""
    tables = []
    for env in dict.fromkeys(one.env for one in results):
        own = [one for one in results if one.env == env and one.runs]
        steps = sorted({point.step for one in own for point in one.curve(one.main)})
        if not steps:
            continue
        first = own[0]
        compared = f"last, less {first.name}"
        rows = []
        for one in own:
            at = {point.step: point for point in one.curve(one.main)}
            cells = [_spread(at[step]) if step in at else "-" for step in steps]
            rows.append([one.name, *cells, _reached(one, target), _paired(one, first)])
        tables.append(
            Table(
                first.main,
                "held-out, by updates; differences are between runs of the same seed",
                ["recipe", *[f"at {step}" for step in steps], f"first at {target:g}", compared],
                rows,
            )
        )
    return tables


def _change(curve: Sequence[Point]) -> str:
    if not curve:
        return "-"
    if len(curve) == 1:
        return f"{curve[0].mean:.2f} at {curve[0].step}"
    return f"{curve[0].mean:.2f} → {_spread(curve[-1])}"


def _spread(point: Point) -> str:
    if len(point.values) == 1:
        return f"{point.mean:.2f}"
    return f"{point.mean:.2f} ({point.low:.2f} to {point.high:.2f})"


def _reached(one: RecipeResult, target: float) -> str:
    step = one.reached(target)
    if step is None:
        return "never"
    if step == 0:
        return "before"
    return f"{step} updates, {step * one.problems_per_update} problems"


def _paired(one: RecipeResult, first: RecipeResult) -> str:
    differences = one.less(first)
    if one is first or not differences:
        return "-"
    mean = sum(differences) / len(differences)
    each = ", ".join(f"{value:+.2f}" for value in differences)
    return f"{mean:+.2f} ({each})" if len(differences) > 1 else f"{mean:+.2f}"


def data_of(results: Sequence[RecipeResult], target: float) -> list[dict[str, Any]]:
    """All numbers, for programs."""
    return [
        {
            "recipe": one.name,
            "env": one.env,
            "main": one.main,
            "updates": one.steps,
            "problems_per_update": one.problems_per_update,
            "episodes_per_update": one.episodes_per_update,
            "seeds": [run.seed for run in one.runs],
            "wall_s": one.wall_s,
            "failures": one.failures,
            "reached_at_update": one.reached(target),
            "heldout": {
                name: [{"step": p.step, "values": list(p.values)} for p in one.curve(name)]
                for name in one.measures
            },
            "training": {
                name: [{"step": p.step, "values": list(p.values)} for p in one.training(name)]
                for name in one.measures
                if one.training(name)
            },
        }
        for one in results
    ]
