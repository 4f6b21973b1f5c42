"""The comparison as two pictures: reward by update, and what is left beside the controls."""

from __future__ import annotations

from pathlib import Path

from bench.learning.figures import (
    MEASURES,
    SMOOTHED,
    Results,
    curve_of,
    difference,
    smoothed,
    words,
)
from bench.learning.settings import CONTROL, without_control
from clawrl_gym.ui.svg import (
    CHART_HEIGHT,
    CHART_WIDTH,
    IntervalRow,
    Series,
    interval_chart,
    line_chart,
    write_picture,
)
from clawrl_gym.ui.text import number

_COLOURS = {"ours": "recipe7", "ours-lag1": "recipe4", "ours-sync": "recipe0", "trl": "recipe5"}
_NAMES = {
    "ours": "clawrl_gym",
    "ours-lag1": "clawrl_gym, lag 1",
    "ours-sync": "clawrl_gym, sync",
    "trl": "trl",
}


def write_curves(results: Results, path: Path, title: str) -> None:
    """Training reward, a line for each seed; a control is dashed, in the colour of its arm."""
    series, keys = [], []
    for arm, seeds in results.items():
        own = without_control(arm)
        for seed, result in seeds.items():
            curve = smoothed(curve_of({seed: result}).means, SMOOTHED)
            points = [(float(update), reward) for update, reward in enumerate(curve, 1)]
            name = f"{_NAMES[own]}{', shuffled' if arm != own else ''}, seed {seed}"
            series.append(Series(name, _COLOURS[own], points, dashed=arm != own))
        if arm == own:
            keys.append((_COLOURS[own], _NAMES[own]))
    chart = line_chart(series, width=CHART_WIDTH, height=CHART_HEIGHT, label=title)
    write_picture(path, title, keys, chart)


def write_differences(results: Results, path: Path, title: str) -> None:
    """Held-out reward less that of the control, greedy and sampled."""
    rows = []
    for arm in results:
        for measure in MEASURES:
            found = difference(results, arm, arm + CONTROL, measure)
            if found is not None:
                ends = found.mean, found.low, found.high
                name = f"{_NAMES[arm]}, {measure}"
                rows.append(IntervalRow(name, _COLOURS[arm], *ends, words(found)))
    if not rows:
        return
    low, high = min(0.0, *(row.low for row in rows)), max(0.0, *(row.high for row in rows))
    margin = 0.05 * (high - low)
    chart = interval_chart(
        rows, label=title, width=CHART_WIDTH, x_range=(low - margin, high + margin), form=number
    )
    write_picture(path, title, [], chart)
