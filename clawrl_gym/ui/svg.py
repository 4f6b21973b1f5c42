"""Charts as inline SVG: lines, points with error bars, bars of a timeline. Strings in, markup out.

Colours are CSS classes (`s-NAME`), so that the page decides about light and dark. Every chart has a
fixed view box; a page that must be read on a phone asks for a narrow one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup, escape

from clawrl_gym.ui.text import duration, number, share

Point = tuple[float, float]
Form = Callable[[float], str]
"""A function that writes a value."""


@dataclass(frozen=True, slots=True)
class Series:
    """One curve."""

    name: str
    colour: str
    """Name of the colour class."""
    points: list[Point]
    bars: list[tuple[float, float, float]] | None = None
    """Error bars (x, low, high); a series with bars is drawn as dots."""
    band: list[tuple[float, float, float]] | None = None
    """Interval (x, low, high) that is shaded around the line."""
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """One stacked column."""

    low: float
    high: float
    """Limits on the x axis."""
    words: list[str]
    """Lines shown for it under the pointer."""
    parts: tuple[float, ...]
    """Heights, from the bottom."""


@dataclass(frozen=True, slots=True)
class PlotArea:
    """Area of the data in a chart's view box."""

    width: int
    height: int
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    left: int = 40
    right: int = 12
    top: int = 10
    bottom: int = 24

    def x(self, value: float) -> float:
        """Position of a value on the x axis."""
        low, high = self.x_range
        part = (value - low) / (high - low) if high > low else 0.5
        return round(self.left + part * (self.width - self.left - self.right), 1)

    def y(self, value: float) -> float:
        """Position of a value on the y axis."""
        low, high = self.y_range
        part = (value - low) / (high - low) if high > low else 0.5
        return round(self.height - self.bottom - part * (self.height - self.top - self.bottom), 1)


def ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Round values that cover low..high, about so many."""
    if not high > low:
        return [low]
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = min((m * power for m in (1, 2, 2.5, 5, 10)), key=lambda s: abs(s - raw))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


def span_of(values: Sequence[float], include_zero: bool = True) -> tuple[float, float]:
    """A range that holds all values, with round ends and never empty."""
    low, high = min(values), max(values)
    if include_zero:
        low, high = min(0.0, low), max(0.0, high)
    if high == low:
        high = low + (abs(low) or 1.0)
    marks = ticks(low, high)
    step = marks[1] - marks[0] if len(marks) > 1 else high - low
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step


def power_of_ten(value: float) -> str:
    """The value of an exponent of ten, as text."""
    return f"{10**value:,.10g}"


def on_axis(value: float, form: Form) -> str:
    """A tick's label: no more digits than it needs, with the unit of `form`."""
    if form is share:
        return f"{round(100 * value, 6):g} %"
    if form is duration:
        return f"{value:g} s"
    if form is power_of_ten:
        return power_of_ten(value)
    return number(value) if abs(value) >= 1e5 else f"{value:,g}"


def line_chart(
    series: Sequence[Series],
    *,
    width: int = 360,
    height: int = 170,
    x_range: tuple[float, float] | None = None,
    y_range: tuple[float, float] | None = None,
    form: Form = number,
    x_label: str = "update",
    label: str = "",
    powers: bool = False,
) -> Markup:
    """Curves over updates; empty markup when there is nothing to draw.

    `powers`: all values are exponents of ten, and are written as what they stand for.
    """
    if powers:
        form = power_of_ten
    series = [curve for curve in series if curve.points]
    points = [point for curve in series for point in curve.points]
    if not points:
        return Markup("")
    xs, ys = [x for x, _ in points], [y for _, y in points]
    ys += [end for curve in series for _, low, high in curve.band or [] for end in (low, high)]
    widest = max((len(on_axis(tick, form)) for tick in ticks(*(y_range or span_of(ys)))), default=4)
    frame = PlotArea(
        width, height, x_range or (min(xs), max(xs) if max(xs) > min(xs) else min(xs) + 1),
        y_range or span_of(ys), left=12 + 7 * widest,
    )  # fmt: skip
    bands = [_band(frame, curve) for curve in series]
    parts = [_axes(frame, form, x_label), *bands, *[_curve(frame, curve) for curve in series]]
    return _svg(frame, parts, label, hover=_hover_data(frame, series, form, x_label))


def bar_chart(
    columns: Sequence[Column],
    colours: Sequence[str],
    *,
    width: int,
    height: int,
    x_range: tuple[float, float],
    label: str,
    x_label: str = "update",
) -> Markup:
    """Stacked columns, each part in its colour; empty markup when there is nothing to draw."""
    tallest = max((sum(column.parts) for column in columns), default=0.0)
    if not tallest:
        return Markup("")
    y_range = span_of([tallest])
    widest = max(len(on_axis(tick, number)) for tick in ticks(*y_range))
    frame = PlotArea(width, height, x_range, y_range, left=12 + 7 * widest)
    bars = [_column(frame, column, colours) for column in columns]
    middles = [frame.x((column.low + column.high) / 2) for column in columns]
    rows = [[x, *column.words] for x, column in zip(middles, columns, strict=True)]
    hover = json.dumps(rows, separators=(",", ":"))
    return _svg(frame, [_axes(frame, number, x_label), *bars], label, hover=hover)


_WIDEST_COLUMN_PX = 48.0


def _column(frame: PlotArea, column: Column, colours: Sequence[str]) -> str:
    left, right = frame.x(column.low), frame.x(column.high)
    wide = max(1.0, min(_WIDEST_COLUMN_PX, 0.8 * (right - left)))
    x, below, parts = (left + right - wide) / 2, 0.0, []
    for part, colour in zip(column.parts, colours, strict=True):
        if part:
            top, tall = frame.y(below + part), frame.y(below) - frame.y(below + part)
            parts.append(
                f'<rect class="s-{colour} fill" x="{x:.1f}" y="{top}" width="{wide:.1f}" '
                f'height="{tall:.1f}"/>'
            )
        below += part
    return "".join(parts)


_LAST_LABEL_PX = 100
"""Room for the last mark of the x axis, which carries the axis' name."""


def _axes(frame: PlotArea, form: Form, x_label: str) -> str:
    right, base = frame.width - frame.right, frame.height - frame.bottom
    parts = []
    for tick in ticks(*frame.y_range):
        y = frame.y(tick)
        parts.append(f'<path class="grid" d="M{frame.left} {y}H{right}"/>')
        words = escape(on_axis(tick, form))
        parts.append(f'<text x="{frame.left - 6}" y="{y + 4}" text-anchor="end">{words}</text>')
    marks = list(ticks(*frame.x_range, about=max(2, frame.width // 110)))
    whole = [tick for tick in marks if tick == int(tick)] or marks
    if len(whole) > 2 and frame.x(whole[-1]) - frame.x(whole[-2]) < _LAST_LABEL_PX:
        del whole[-2]
    for index, tick in enumerate(whole):
        mark = power_of_ten(tick) if form is power_of_ten else number(tick)
        text = f"{x_label} {mark}" if index == len(whole) - 1 else mark
        x = frame.x(tick)
        anchor = "end" if x > right - 20 else "middle"
        parts.append(f'<text x="{x}" y="{base + 16}" text-anchor="{anchor}">{escape(text)}</text>')
    parts.append(f'<path class="axis" d="M{frame.left} {base}H{right}"/>')
    return "".join(parts)


def _curve(frame: PlotArea, series: Series) -> str:
    if series.bars is not None:
        return _dots(frame, series)
    places = [f"{frame.x(x)} {frame.y(y)}" for x, y in series.points]
    if len(places) == 1:
        x, y = places[0].split()
        return f'<circle class="s-{series.colour} fill" cx="{x}" cy="{y}" r="3"/>'
    dashed = " dashed" if series.dashed else ""
    return f'<path class="s-{series.colour} line{dashed}" d="M{"L".join(places)}"/>'


def _band(frame: PlotArea, series: Series) -> str:
    band = series.band or []
    if len(band) < 2:
        return ""
    edge = [(x, high) for x, _, high in band] + [(x, low) for x, low, _ in reversed(band)]
    places = "L".join(f"{frame.x(x)} {frame.y(y)}" for x, y in edge)
    return f'<path class="s-{series.colour} band" d="M{places}Z"/>'


def _dots(frame: PlotArea, series: Series) -> str:
    parts = []
    if len(series.points) > 1:
        places = "L".join(f"{frame.x(x)} {frame.y(y)}" for x, y in series.points)
        parts.append(f'<path class="s-{series.colour} line dashed" d="M{places}"/>')
    for x, low, high in series.bars or []:
        cx, top, bottom = frame.x(x), frame.y(high), frame.y(low)
        parts.append(
            f'<path class="s-{series.colour} bar" d="M{cx} {top}V{bottom}'
            f'M{cx - 4} {top}h8M{cx - 4} {bottom}h8"/>'
        )
    for x, y in series.points:
        place = f'cx="{frame.x(x)}" cy="{frame.y(y)}"'
        parts.append(f'<circle class="s-{series.colour} dot" {place} r="4.5"/>')
    return "".join(parts)


@dataclass(frozen=True, slots=True)
class IntervalRow:
    """A value with its interval, on a line of its own."""

    name: str
    colour: str
    value: float
    low: float
    high: float
    words: str
    """Text beside it, at the right."""


_ROW_PX, _NAME_PX, _WORDS_PX = 30, 6.6, 6.2


def interval_chart(
    rows: Sequence[IntervalRow],
    *,
    label: str,
    width: int = 720,
    x_range: tuple[float, float] = (0.0, 1.0),
    form: Form = share,
) -> Markup:
    """Values below each other with their intervals, and a line at 0 where that is in between."""
    if not rows:
        return Markup("")
    left = 16 + int(_NAME_PX * max(len(row.name) for row in rows))
    right = 16 + int(_WORDS_PX * max(len(row.words) for row in rows))
    height = 34 + _ROW_PX * len(rows)
    frame = PlotArea(width, height, x_range, (0.0, 1.0), left, right, top=4, bottom=26)
    base, parts = height - frame.bottom, []
    for tick in ticks(*x_range, about=max(2, (width - left - right) // 80)):
        x, zero = frame.x(tick), "axis" if tick == 0 and x_range[0] < 0 else "grid"
        parts.append(f'<path class="{zero}" d="M{x} {frame.top}V{base}"/>')
        words = escape(on_axis(tick, form))
        parts.append(f'<text x="{x}" y="{base + 18}" text-anchor="middle">{words}</text>')
    for place, row in enumerate(rows):
        y = frame.top + _ROW_PX * (place + 0.5)
        low, high = (frame.x(min(max(end, x_range[0]), x_range[1])) for end in (row.low, row.high))
        parts.append(
            f'<text x="8" y="{y + 4}">{escape(row.name)}</text>'
            f'<path class="s-{row.colour} bar" d="M{low} {y}H{high}'
            f'M{low} {y - 4}v8M{high} {y - 4}v8"/>'
            f'<circle class="s-{row.colour} dot" cx="{frame.x(row.value)}" cy="{y}" r="4.5"/>'
            f'<text x="{width - 8}" y="{y + 4}" text-anchor="end">{escape(row.words)}</text>'
        )
    return _svg(frame, parts, label)


def _hover_data(frame: PlotArea, series: Sequence[Series], form: Form, x_label: str) -> str:
    """Data of the page's script for the pointer: per x its position and its lines of text."""
    rows: dict[float, list[str]] = {}
    for curve in series:
        bars = {x: (low, high) for x, low, high in curve.bars or []}
        for x, y in curve.points:
            spread = f" ({form(bars[x][0])} to {form(bars[x][1])})" if x in bars else ""
            rows.setdefault(x, [f"{x_label} {number(x)}"]).append(
                f"{curve.name}: {form(y)}{spread}"
            )
    return json.dumps([[frame.x(x), *rows[x]] for x in sorted(rows)], separators=(",", ":"))


def _svg(frame: PlotArea, parts: Sequence[str], label: str, hover: str = "") -> Markup:
    data = f' data-hover="{escape(hover)}"' if hover else ""
    base = f'<path class="cursor" d="M0 {frame.top}V{frame.height - frame.bottom}"/>'
    return Markup(  # every text above went through escape()
        f'<svg viewBox="0 0 {frame.width} {frame.height}" role="img" aria-label="{escape(label)}"'
        f"{data}>{''.join(parts)}{base if hover else ''}</svg>"
    )


_PICTURE_WIDTH, _PICTURE_HEIGHT, _HEAD_HEIGHT = 720, 320, 56
CHART_WIDTH, CHART_HEIGHT = _PICTURE_WIDTH - 24, _PICTURE_HEIGHT - _HEAD_HEIGHT
"""Size of the chart itself in a picture of its own."""
_PICTURE_STYLE = """
svg{font:12px system-ui,sans-serif;--ink:#1d2430;--dim:#667085;--rule:#e4e7ec;--paper:#ffffff}
@media (prefers-color-scheme:dark){svg{--ink:#e6e9ef;--dim:#98a2b3;--rule:#2b3240;--paper:#12161d}}
.s-reward{--c:#8b5cf6}.s-success{--c:#0d9488}.s-heldout{--c:#ea580c}
.s-recipe0{--c:#0072b2}.s-recipe1{--c:#d55e00}.s-recipe2{--c:#009e73}.s-recipe3{--c:#b8609a}
.s-recipe4{--c:#4a9fd0}.s-recipe5{--c:#c98a00}.s-recipe6{--c:#6b7280}.s-recipe7{--c:#8a5cd6}
.s-recipe1.line{stroke-dasharray:8 4}.s-recipe2.line{stroke-dasharray:2 4}
.s-recipe3.line{stroke-dasharray:10 3 2 3}
text{fill:var(--dim)}.paper{fill:var(--paper);stroke:var(--rule)}.title{fill:var(--ink);
font-size:15px;font-weight:600}.grid{stroke:var(--rule);fill:none}.axis{stroke:var(--dim);fill:none}
.line{stroke:var(--c);fill:none;stroke-width:2;stroke-linejoin:round}.dashed{stroke-dasharray:4 4}
.bar{stroke:var(--c);stroke-width:1.5;fill:none}.band{fill:var(--c);fill-opacity:.13}.dot{fill:var(--paper);stroke:var(--c);
stroke-width:2.5}.key{fill:var(--c)}.cursor{display:none}
"""


def write_picture(path: Path, title: str, keys: Sequence[tuple[str, str]], chart: Markup) -> None:
    """A chart as a picture of its own; `keys` are (colour class, words) of its curves."""
    legend = Markup("").join(
        Markup(
            '<circle class="s-{colour} key" cx="{dot}" cy="44" r="4.5"/><text x="{x}" y="48">{name}'
            "</text>"
        ).format(colour=colour, dot=28 + 160 * place, x=38 + 160 * place, name=escape(name))
        for place, (colour, name) in enumerate(keys)
    )
    at = f'<svg x="12" y="{_HEAD_HEIGHT}" width="{CHART_WIDTH}" height="{CHART_HEIGHT - 8}" '
    text = Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{w}" height="{h}" '
        'role="img"><style>{style}</style><rect class="paper" x=".5" y=".5" width="{rw}" '
        'height="{rh}" rx="10"/><text class="title" x="22" y="27">{title}</text>{legend}{inner}'
        "</svg>\n"
    ).format(
        w=_PICTURE_WIDTH, h=_PICTURE_HEIGHT, rw=_PICTURE_WIDTH - 1, rh=_PICTURE_HEIGHT - 1,
        style=Markup(_PICTURE_STYLE), title=title, legend=legend,
        inner=Markup(str(chart).replace("<svg ", at, 1)),
    )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(str(text), encoding="utf-8")
