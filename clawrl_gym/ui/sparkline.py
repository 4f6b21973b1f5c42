"""Curves made of block characters, one or more rows high; no colour, no terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

_BLOCKS = " ▁▂▃▄▅▆▇█"


def columns(points: Sequence[tuple[float, float]], width: int, end: float) -> list[float | None]:
    """One value a column for points (x, y) on the axis 0..`end`: the mean of those that fall in it.

    A column between two points takes the value before it, columns before the first point take the
    first; columns after the last are None.
    """
    sums, counts = [0.0] * width, [0] * width
    last = -1
    for x, y in points:
        if not math.isfinite(y):
            continue
        column = min(width - 1, max(0, int(x / end * width) if end > 0 else 0))
        sums[column] += y
        counts[column] += 1
        last = max(last, column)
    values: list[float | None] = []
    before: float | None = None
    for column in range(width):
        if counts[column]:
            before = sums[column] / counts[column]
        values.append(before if column <= last else None)
    first = next((value for value in values if value is not None), None)
    return [first if v is None and i < last else v for i, v in enumerate(values)]


def spark(values: Sequence[float | None], low: float, high: float, rows: int = 1) -> list[str]:
    """Lines of block characters, topmost first; None is a blank, `low` is a thin line."""
    span = high - low
    levels = []
    for value in values:
        if value is None:
            levels.append(0)
            continue
        share = (value - low) / span if span > 0 else 0.5
        levels.append(max(1, round(min(1.0, max(0.0, share)) * rows * 8)))
    return [
        "".join(_BLOCKS[min(8, max(0, level - 8 * row))] for level in levels)
        for row in reversed(range(rows))
    ]
