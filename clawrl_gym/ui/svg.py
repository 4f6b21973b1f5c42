"""Charts as inline SVG: lines, points with error bars, bars of a timeline. Strings in, markup out.

Colours are CSS classes (`s-NAME`), so that the page decides about light and dark. Every chart has a
fixed view box; a page that must be read on a phone asks for a narrow one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from clawrl_gym.ui.text import duration, number, share

Point = tuple[float, float]
Form = Callable[[float], str]
"""How a value is written."""


@dataclass(frozen=True, slots=True)
class Series:
    """One curve."""

    name: str
    colour: str
    """Name of the colour class."""
    points: list[Point]
    bars: list[tuple[float, float, float]] | None = None
    """Error bars (x, low, high); a series with bars is drawn as dots."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Where data lies in a chart's view box."""

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


def on_axis(value: float, form: Form) -> str:
    """A tick's label: no more digits than it needs, with the unit of `form`."""
    if form is share:
        return f"{round(100 * value, 6):g} %"
    if form is duration:
        return f"{value:g} s"
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
) -> Markup:
    """Curves over updates; empty markup when there is nothing to draw."""
    series = [one for one in series if one.points]
    points = [point for one in series for point in one.points]
    if not points:
        return Markup("")
    xs, ys = [x for x, _ in points], [y for _, y in points]
    widest = max((len(on_axis(tick, form)) for tick in ticks(*(y_range or span_of(ys)))), default=4)
    frame = Frame(
        width, height, x_range or (min(xs), max(xs) if max(xs) > min(xs) else min(xs) + 1),
        y_range or span_of(ys), left=12 + 7 * widest,
    )  # fmt: skip
    parts = [_axes(frame, form, x_label), *[_curve(frame, one) for one in series]]
    return _svg(frame, parts, label, hover=_hover_data(frame, series, form, x_label))


_LAST_LABEL_PX = 100
"""Room for the last mark of the x axis, which carries the axis' name."""


def _axes(frame: Frame, form: Form, x_label: str) -> str:
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
        text = f"{x_label} {number(tick)}" if index == len(whole) - 1 else number(tick)
        x = frame.x(tick)
        anchor = "end" if x > right - 20 else "middle"
        parts.append(f'<text x="{x}" y="{base + 16}" text-anchor="{anchor}">{escape(text)}</text>')
    parts.append(f'<path class="axis" d="M{frame.left} {base}H{right}"/>')
    return "".join(parts)


def _curve(frame: Frame, series: Series) -> str:
    if series.bars is not None:
        return _dots(frame, series)
    places = [f"{frame.x(x)} {frame.y(y)}" for x, y in series.points]
    if len(places) == 1:
        x, y = places[0].split()
        return f'<circle class="s-{series.colour} fill" cx="{x}" cy="{y}" r="3"/>'
    return f'<path class="s-{series.colour} line" d="M{"L".join(places)}"/>'


def _dots(frame: Frame, series: Series) -> str:
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


def _hover_data(frame: Frame, series: Sequence[Series], form: Form, x_label: str) -> str:
    """What the page's script shows under the pointer: per x its position and its lines of text."""
    rows: dict[float, list[str]] = {}
    for one in series:
        bars = {x: (low, high) for x, low, high in one.bars or []}
        for x, y in one.points:
            spread = f" ({form(bars[x][0])} to {form(bars[x][1])})" if x in bars else ""
            rows.setdefault(x, [f"{x_label} {number(x)}"]).append(f"{one.name}: {form(y)}{spread}")
    return json.dumps([[frame.x(x), *rows[x]] for x in sorted(rows)], separators=(",", ":"))


def _svg(frame: Frame, parts: Sequence[str], label: str, hover: str = "") -> Markup:
    data = f' data-hover="{escape(hover)}"' if hover else ""
    base = f'<path class="cursor" d="M0 {frame.top}V{frame.height - frame.bottom}"/>'
    return Markup(  # every text above went through escape()
        f'<svg viewBox="0 0 {frame.width} {frame.height}" role="img" aria-label="{escape(label)}"'
        f"{data}>{''.join(parts)}{base if hover else ''}</svg>"
    )
