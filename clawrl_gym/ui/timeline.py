"""The timeline of the four loops: what each did when, how busy it was, and both as inline SVG.

Lanes whose spans never overlap are drawn as bars, as high as their tokens per second where they
count `tokens`; a lane with many at once (episodes in flight) as an area whose height is their
number. Swaps are ticks through all lanes; spans named `wait` are idle time, drawn hollow.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup, escape

from clawrl_gym.core.metrics import LOOPS, Loop
from clawrl_gym.core.types import Json
from clawrl_gym.ui.text import duration, number

_IDLE_NAMES = frozenset({"wait", "idle"})
_SWAP_NAMES = frozenset({"swap", "publish", "reload"})


@dataclass(frozen=True, slots=True)
class Span:
    """One line of timeline.jsonl; seconds since the first span of the run."""

    loop: str
    name: str
    start_s: float
    end_s: float
    error: str | None = None
    tokens: float = 0.0

    @property
    def rate(self) -> float:
        """Tokens per second; 0 where the span counts none."""
        return self.tokens / max(1e-3, self.end_s - self.start_s)

    @property
    def is_idle(self) -> bool:
        """Waiting, as the loop itself recorded it."""
        return self.name in _IDLE_NAMES

    @property
    def is_swap(self) -> bool:
        """A weight swap of the engine."""
        return self.loop == "serve" and self.name in _SWAP_NAMES


def spans_of(rows: Iterable[Json]) -> list[Span]:
    """Spans of a timeline file, times counted from the first; lines that are none are left out."""
    spans = [span for row in rows if (span := _span_of(row)) is not None]
    zero = min((span.start_s for span in spans), default=0.0)
    return [
        replace(span, start_s=span.start_s - zero, end_s=span.end_s - zero)
        for span in sorted(spans, key=lambda span: span.start_s)
    ]


def _span_of(row: Json) -> Span | None:
    start_s, end_s = row.get("start_s"), row.get("end_s")
    if not isinstance(start_s, int | float) or not isinstance(end_s, int | float):
        return None
    if end_s < start_s:
        return None
    tokens = row.get("tokens", 0.0)
    return Span(
        str(row.get("loop")), str(row.get("name")), start_s, end_s,
        error=str(row["error"]) if row.get("error") else None,
        tokens=float(tokens) if isinstance(tokens, int | float) else 0.0,
    )  # fmt: skip


def busy_share(spans: Sequence[Span], start_s: float, end_s: float) -> float:
    """Share of start..end in which at least one span that is not idle runs."""
    covered, reached = 0.0, start_s
    for span in sorted(spans, key=lambda span: span.start_s):
        if span.is_idle:
            continue
        low, high = max(span.start_s, reached), min(span.end_s, end_s)
        covered += max(0.0, high - low)
        reached = max(reached, high)
    return covered / (end_s - start_s) if end_s > start_s else 0.0


def training_window(spans: Sequence[Span]) -> tuple[float, float]:
    """First to last span of the train loop; the whole when there is none."""
    inside = [span for span in spans if span.loop == "train"] or list(spans)
    if not inside:
        return 0.0, 0.0
    return min(span.start_s for span in inside), max(span.end_s for span in inside)


def loops_of(spans: Sequence[Span]) -> list[Loop]:
    """The loops that have spans, in their order."""
    present = {span.loop for span in spans}
    return [loop for loop in LOOPS if loop in present]


def busy_of_loops(spans: Sequence[Span]) -> dict[str, float]:
    """Busy share of each loop that has spans, over the training window."""
    window = training_window(spans)
    lanes = {loop: [span for span in spans if span.loop == loop] for loop in LOOPS}
    return {loop: busy_share(lane, *window) for loop, lane in lanes.items() if lane}


Place = Callable[[float], float]
"""Seconds -> position on the x axis."""

_LANE_HEIGHT = 40
_LANE_GAP = 12
_WHOLE_LANE_NAMES = frozenset({"held-out"})
"""Spans that take a lane for themselves: drawn as a block with its name."""
_MAX_BARS = 1500
_CLOCK_STEPS_S = (
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    1800,
    3600,
    7200,
    21600,
    86400,
)


def timeline_svg(
    spans: Sequence[Span], *, start_s: float, end_s: float, width: int, label: str
) -> Markup:
    """The lanes between two moments, of the loops that recorded anything at all."""
    loops = loops_of(spans)
    left, right = 58, 10
    height = len(loops) * (_LANE_HEIGHT + _LANE_GAP) + 22
    scale = (width - left - right) / max(1e-9, end_s - start_s)

    def place(moment_s: float) -> float:
        return round(left + (min(max(moment_s, start_s), end_s) - start_s) * scale, 2)

    inside = [span for span in spans if span.end_s >= start_s and span.start_s <= end_s]
    base = height - 20
    tracks, parts = [], [_seconds_axis(start_s, end_s, base, place, width)]
    for index, loop in enumerate(loops):
        top = index * (_LANE_HEIGHT + _LANE_GAP) + 2
        lane = [span for span in inside if span.loop == loop and not span.is_swap]
        blocks = [span for span in lane if span.name in _WHOLE_LANE_NAMES]
        lane = [span for span in lane if span.name not in _WHOLE_LANE_NAMES]
        tracks.append(
            f'<text class="lane s-{loop} fill" x="0" y="{top + 24}">{loop}</text>'
            f'<rect class="track" x="{left}" y="{top}" width="{width - left - right}" '
            f'height="{_LANE_HEIGHT}" rx="3"/>'
        )
        parts += [_block(span, top, place) for span in blocks]
        serial = _is_serial(lane)
        window = (start_s, end_s)
        parts.append(
            _bars(lane, loop, top, place) if serial else _area(lane, loop, top, place, window)
        )
    for span in (span for span in inside if span.is_swap):
        x = place(span.start_s)
        wide = max(0.8, place(span.end_s) - x)
        parts.append(
            f'<rect class="swap" x="{x}" y="0" width="{wide}" height="{base - 6}">'
            f"<title>{escape(_words(span))}</title></rect>"
        )
    return Markup(
        f'<svg class="timeline" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(label)}">{"".join([*tracks, *parts])}</svg>'
    )


def _is_serial(lane: Sequence[Span]) -> bool:
    if len(lane) > _MAX_BARS:
        return False
    pairs = itertools.pairwise(lane)
    return all(after.start_s >= before.end_s - 1e-3 for before, after in pairs)


def _block(span: Span, top: int, place: Place) -> str:
    x = place(span.start_s)
    wide = max(1.0, place(span.end_s) - x)
    words = escape(span.name)
    text = f'<text x="{x + 6}" y="{top + 24}">{words}</text>' if wide > 8 * len(span.name) else ""
    return (
        f'<rect class="block" x="{x}" y="{top}" width="{wide:.2f}" height="{_LANE_HEIGHT}" rx="3">'
        f"<title>{escape(_words(span))}</title></rect>{text}"
    )


def _bars(lane: Sequence[Span], loop: str, top: int, place: Place) -> str:
    parts = []
    highest = max((span.rate for span in lane), default=0.0)
    for span in lane:
        x = place(span.start_s)
        wide = max(0.6, place(span.end_s) - x)
        share = max(0.06, span.rate / highest) if highest > 0 else 1.0
        tall = round(_LANE_HEIGHT * share, 1)
        kind = "failed" if span.error else "idle" if span.is_idle else f"s-{loop} fill"
        parts.append(
            f'<rect class="{kind}" x="{x}" y="{top + _LANE_HEIGHT - tall}" width="{wide:.2f}" '
            f'height="{tall}"><title>{escape(_words(span))}</title></rect>'
        )
    return "".join(parts)


def _area(
    lane: Sequence[Span], loop: str, top: int, place: Place, window: tuple[float, float]
) -> str:
    """Number of spans at a time, averaged over each pixel."""
    start_s, end_s = window
    left, right = place(start_s), place(end_s)
    cells = max(1, int(right - left))
    seconds = [0.0] * cells
    width_s = (end_s - start_s) / cells
    for span in (span for span in lane if not span.is_idle):
        low, high = max(span.start_s, start_s), min(span.end_s, end_s)
        first, last = int((low - start_s) / width_s), int((high - start_s) / width_s)
        for cell in range(max(0, first), min(cells, last + 1)):
            cell_start_s = start_s + cell * width_s
            seconds[cell] += max(0.0, min(high, cell_start_s + width_s) - max(low, cell_start_s))
    most = max(seconds) / width_s
    if most <= 0:
        return ""
    bottom = top + _LANE_HEIGHT
    heights = [bottom - _LANE_HEIGHT * value / width_s / most for value in seconds]
    path = "".join(f"L{left + i} {y:.1f}H{left + i + 1}" for i, y in enumerate(heights))
    return (
        f'<path class="s-{loop} fill area" d="M{left} {bottom}{path}V{bottom}Z">'
        f"<title>{loop}: at most {most:.0f} at a time</title></path>"
    )


def _seconds_axis(start_s: float, end_s: float, base: int, place: Place, width: int) -> str:
    parts = []
    least_s = (end_s - start_s) / max(2, width // 110)
    step_s = next((step for step in _CLOCK_STEPS_S if step >= least_s), _CLOCK_STEPS_S[-1])
    first = math.ceil(start_s / step_s)
    for tick in (step_s * index for index in range(first, math.floor(end_s / step_s) + 1)):
        x = place(tick)
        anchor = "end" if x > width - 30 else "middle"
        parts.append(f'<path class="grid" d="M{x} 0V{base - 6}"/>')
        parts.append(
            f'<text x="{x}" y="{base + 10}" text-anchor="{anchor}">{escape(_clock(tick))}</text>'
        )
    return "".join(parts)


def _clock(seconds: float) -> str:
    if seconds != int(seconds):
        return f"{seconds:g} s"
    if seconds >= 3600:
        return f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02}:{int(seconds) % 60:02}"
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def _words(span: Span) -> str:
    lasted = duration(span.end_s - span.start_s)
    rate = f", {number(span.rate)} tokens/s" if span.rate else ""
    error = f", failed: {span.error}" if span.error else ""
    return f"{span.loop}: {span.name}, {lasted} from {duration(span.start_s)}{rate}{error}"
