"""A bench's page: its tables, and every measure's curves of all recipes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from clawrl_gym.comparison.matrix import findings
from clawrl_gym.comparison.picture import matrix_svg
from clawrl_gym.comparison.results import RecipeResult, SeedPoint, measures_of
from clawrl_gym.comparison.tables import ResultTable
from clawrl_gym.config import BenchConfig
from clawrl_gym.core.errors import ClawError
from clawrl_gym.core.files.files import replace_text
from clawrl_gym.core.provenance import Start
from clawrl_gym.ui import pages
from clawrl_gym.ui.charts import Chart
from clawrl_gym.ui.svg import CHART_HEIGHT, CHART_WIDTH, Series, line_chart, write_picture
from clawrl_gym.ui.text import number

COLOURS = 8
"""Colours of recipes on the page; each has its own pattern of dashes, too."""
_FOLDER = Path(__file__).resolve().parent
_WINDOW = 3
"""Updates that a point of a training curve is the mean of."""


def write_page(
    path: Path,
    config: BenchConfig,
    results: Sequence[RecipeResult],
    tables: Sequence[ResultTable],
    start: Start,
) -> None:
    """Write the page in one step. Raises ClawError when it cannot be written."""
    text = pages.render(
        "page.html.j2",
        _FOLDER,
        title=Path(config.dir).resolve().name,
        config=config,
        start=start,
        recipes=[(colour(index), recipe) for index, recipe in enumerate(results)],
        failures={name: why for recipe in results for name, why in recipe.failures.items()},
        findings=findings(results),
        matrix=matrix_svg(results),
        tables=tables,
        heldout=heldout_charts(results),
        training=training_charts(results),
        window=_WINDOW,
        made=time.strftime("%Y-%m-%d %H:%M"),
    )
    try:
        replace_text(path, text)
    except OSError as error:
        raise ClawError(f"cannot write {str(path)!r}: {error}") from error


def write_curves(path: Path, results: Sequence[RecipeResult]) -> None:
    """Write the first recipe's main measure, of all recipes by updates, as a picture of its own."""
    measure = results[0].main
    curves = [(recipe, recipe.curve(measure)) for recipe in results if measure in recipe.measures]
    if not curves:
        return
    keys = [(colour(index), recipe.name) for index, recipe in enumerate(results)]
    chart = _chart(measure, curves, results, bars=True, size=(CHART_WIDTH, CHART_HEIGHT))
    write_picture(path, f"{measure}, held-out, by updates", keys, chart.svg)


def colour(index: int) -> str:
    """The colour class of recipe number `index`."""
    return f"recipe{index % COLOURS}"


def heldout_charts(results: Sequence[RecipeResult]) -> list[Chart]:
    """Every measure by updates: the mean of the seeds, with the lowest and the highest."""
    measures = measures_of(results)
    return [
        _chart(name, [(recipe, recipe.curve(name)) for recipe in results], results, bars=True)
        for name in measures
    ]


def training_charts(results: Sequence[RecipeResult]) -> list[Chart]:
    """The measures that recipes are after, in training, by problems trained on."""
    charts = []
    for name in dict.fromkeys(recipe.main for recipe in results):
        curves = [
            (recipe, recipe.training(name, _WINDOW)) for recipe in results if recipe.main == name
        ]
        if any(points for _, points in curves):
            charts.append(_chart(name, curves, results, bars=False, by_problems=True))
    return charts


def _chart(
    measure: str,
    curves: Sequence[tuple[RecipeResult, list[SeedPoint]]],
    results: Sequence[RecipeResult],
    bars: bool,
    by_problems: bool = False,
    size: tuple[int, int] = (520, 240),
) -> Chart:
    colours = {recipe.name: colour(index) for index, recipe in enumerate(results)}
    series = []
    for recipe, points in curves:
        scale = recipe.problems_per_update if by_problems else 1
        spread = [(float(p.step * scale), p.low, p.high) for p in points if len(p.values) > 1]
        mean = [(float(p.step * scale), p.mean) for p in points]
        series.append(Series(recipe.name, colours[recipe.name], mean, spread if bars else None))
    values = [y for curve in series for _, y in curve.points]
    svg = line_chart(
        series, width=size[0], height=size[1], form=number, label=measure,
        y_range=(min(0.0, *values, 0.0), max(1.0, *values, 1.0)),
        x_label="problem" if by_problems else "update",
    )  # fmt: skip
    return Chart(measure, "", svg)
