"""A bench's page: its tables, and every measure's curves of all recipes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clawrl_gym.comparison.results import Point, RecipeResult
from clawrl_gym.comparison.tables import Table
from clawrl_gym.config import BenchConfig
from clawrl_gym.core.errors import ClawError
from clawrl_gym.ui.charts import Chart
from clawrl_gym.ui.picture import CHART_HEIGHT, CHART_WIDTH, write_picture
from clawrl_gym.ui.svg import Series, line_chart
from clawrl_gym.ui.text import number

COLOURS = 8
"""Colours of recipes on the page; each has its own pattern of dashes, too."""
_HERE = Path(__file__).resolve().parent
_REPORT = _HERE.parent / "ui" / "page"
_WINDOW = 3
"""Updates that a point of a training curve is the mean of."""


def write_page(
    path: Path,
    config: BenchConfig,
    results: Sequence[RecipeResult],
    tables: Sequence[Table],
    start: Mapping[str, Any],
) -> None:
    """Write the page in one step. Raises ClawError when it cannot be written."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    pages = Environment(
        loader=FileSystemLoader([_HERE, _REPORT]), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    text = pages.get_template("page.html.j2").render(
        title=Path(config.dir).resolve().name,
        config=config,
        start=start,
        recipes=[(colour(index), one) for index, one in enumerate(results)],
        failures={name: why for one in results for name, why in one.failures.items()},
        tables=tables,
        heldout=heldout_charts(results),
        training=training_charts(results),
        window=_WINDOW,
        made=time.strftime("%Y-%m-%d %H:%M"),
    )
    scratch = path.with_name(path.name + ".new")
    try:
        scratch.write_text(text, encoding="utf-8", errors="replace")
        scratch.replace(path)
    except OSError as error:
        raise ClawError(f"cannot write {str(path)!r}: {error}") from error


def write_curves(path: Path, results: Sequence[RecipeResult]) -> None:
    """What the first recipe is after, of all recipes by updates, as a picture of its own."""
    measure = results[0].main
    curves = [(one, one.curve(measure)) for one in results if measure in one.measures]
    if not curves:
        return
    keys = [(colour(index), one.name) for index, one in enumerate(results)]
    chart = _chart(measure, curves, results, bars=True, size=(CHART_WIDTH, CHART_HEIGHT))
    write_picture(path, f"{measure}, held-out, by updates", keys, chart.svg)


def colour(index: int) -> str:
    """The colour class of recipe number `index`."""
    return f"recipe{index % COLOURS}"


def heldout_charts(results: Sequence[RecipeResult]) -> list[Chart]:
    """Every measure by updates: the mean of the seeds, with the lowest and the highest."""
    measures = list(dict.fromkeys(name for one in results for name in one.measures))
    measures.sort(key=lambda name: name not in {one.main for one in results})
    return [
        _chart(name, [(one, one.curve(name)) for one in results], results, bars=True)
        for name in measures
    ]


def training_charts(results: Sequence[RecipeResult]) -> list[Chart]:
    """The measures that recipes are after, in training, by problems trained on."""
    charts = []
    for name in dict.fromkeys(one.main for one in results):
        curves = [(one, one.training(name, _WINDOW)) for one in results if one.main == name]
        if any(points for _, points in curves):
            charts.append(_chart(name, curves, results, bars=False, by_problems=True))
    return charts


def _chart(
    measure: str,
    curves: Sequence[tuple[RecipeResult, list[Point]]],
    results: Sequence[RecipeResult],
    bars: bool,
    by_problems: bool = False,
    size: tuple[int, int] = (520, 240),
) -> Chart:
    colours = {one.name: colour(index) for index, one in enumerate(results)}
    series = []
    for one, points in curves:
        scale = one.problems_per_update if by_problems else 1
        spread = [(float(p.step * scale), p.low, p.high) for p in points if len(p.values) > 1]
        mean = [(float(p.step * scale), p.mean) for p in points]
        series.append(Series(one.name, colours[one.name], mean, spread if bars else None))
    values = [y for one in series for _, y in one.points]
    svg = line_chart(
        series, width=size[0], height=size[1], form=number, label=measure,
        y_range=(min(0.0, *values, 0.0), max(1.0, *values, 1.0)),
        x_label="problem" if by_problems else "update",
    )  # fmt: skip
    return Chart(measure, "", svg)
