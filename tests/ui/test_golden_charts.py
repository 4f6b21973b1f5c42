"""Charts, timelines and written numbers as they were, mark by mark and word for word.

`python -m tests.ui.test_golden_charts` writes them anew; look at what changed before it is kept.
"""

from __future__ import annotations

import itertools
import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.core.intervals import Estimate
from clawrl_gym.ui import text
from clawrl_gym.ui.sparkline import columns, spark
from clawrl_gym.ui.svg import (
    Column,
    IntervalRow,
    PlotArea,
    Point,
    Series,
    bar_chart,
    interval_chart,
    line_chart,
    on_axis,
    power_of_ten,
    span_of,
    ticks,
    write_picture,
)
from clawrl_gym.ui.timeline import (
    Span,
    busy_of_loops,
    busy_share,
    loops_of,
    spans_of,
    timeline_svg,
    training_window,
)

FILE = Path(__file__).parents[1] / "fixtures" / "golden" / "charts.json"
NAN, INF = math.nan, math.inf

SECONDS = (
    0.0, -0.0, 0.004, 0.08, 0.994, 0.996, 1.0, 4.25, 59.94, 59.95, 60.0, 64.6, 119.6, 3599.4,
    3599.6, 3600.0, 7389.0, 86400.0, -0.01, -1.0, NAN, INF, -INF,
)  # fmt: skip
NUMBERS = (
    0.0, 0.000012, 0.00099, 0.001, 0.0123, 0.9994, 0.9996, 1.0, 1.005, 9.994, 9.12, 10.0, 10.04,
    99.96, 64.0, 99.5, 100.0, 100.4, 999.4, 999.6, 1000.0, 3120.4, 1e6, 1.5e9, -0.5, -3.25, -12.34,
    -1234.5, NAN, INF,
)  # fmt: skip
SHARES = (
    0.0, 0.001, 0.0099, 0.01, 0.005, 0.5, 0.714, 0.99, 0.9901, 0.996, 0.9999, 1.0, 1.5, -0.2, NAN,
)  # fmt: skip
RANGES = (
    (0.0, 1.0), (0.0, 0.0), (1.0, 0.0), (-1.0, 1.0), (0.0, 7.0), (0.3, 0.9), (-0.004, 0.0032),
    (100.0, 2500.0), (17.0, 18.0), (-3.0, -1.0), (0.0, 1e6), (2.5, 2.5), (0.1, 0.30000000000000004),
)  # fmt: skip
MEASURED = {
    "heldout/success": 0.714, "heldout/low": 0.62, "heldout/high": 0.784, "heldout/n": 120.0,
    "heldout/lost": 2.0, "heldout/samples": 4.0, "heldout/samples_lost": 3.0, "heldout/tests": 0.25,
    "heldout/success/grep": 0.5, "pass@8": 0.8, "heldout/pass@8": 0.8, "heldout/pass@1": 0.41,
    "heldout/last_version": 7.0, "env/gui/train/success": 0.5, "env/swe/train/success": 0.25,
    "env/gui/heldout/success": 1.0, "train/success/grep": 0.5,
}  # fmt: skip
FOREIGN = (
    "a\nb", "  a  ", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07x", "\x1b]8;;http://a\x1b\\x", "a\x9bb",
    "\x1b", "é\ud800", "x" * 500, "x" * 501, "\x00\x01\x02", "\x1b[?25l", "→ … · ✓ ✗ ≈ é",
)  # fmt: skip
CURVES: tuple[list[Point], ...] = (
    [],
    [(0, 1.0)],
    [(0, 0.0), (1, 1.0), (2, 0.5), (3, NAN), (4, 0.25)],
    [(3, 1.0), (3, 2.0), (3, 6.0)],
    [(2, -1.0), (7, 2.0), (20, 3.0), (-1, 5.0)],
)
CURVE = Series("reward <b>", "reward", [(0, 0.1), (2, 0.5), (7, -0.2), (10, 0.9)])
DOTS = Series("held-out", "heldout", [(0, 0.3), (10, 0.6)], [(0, 0.2, 0.4), (10, 0.5, 0.75)])
ONE_DOT = Series("once", "heldout", [(5, 0.5)], [(5, 0.25, 0.7)])
STACKED = [
    Column(0, 1, ["first", "3"], (1.0, 2.0)), Column(1, 2, ["second"], (0.0, 4.5)),
    Column(2, 9, ["wide"], (2.0, 0.0)), Column(9, 9.01, ["narrow"], (0.5, 0.5)),
]  # fmt: skip
ROWS = [
    IntervalRow("first <b>", "recipe0", 0.5, 0.25, 0.75, "50 %"),
    IntervalRow("a longer name", "recipe1", -0.25, -2.0, 0.125, "beyond & less"),
    IntervalRow("x", "recipe2", 0.9, 0.8, 3.0, "90 % (80 to 100 %)"),
]


def span(loop: str, name: str, start_s: float, end_s: float, **more: Any) -> Span:
    return Span(loop, name, start_s, end_s, **more)


SPANS = [
    span("serve", "generate", 0, 4, tokens=400.0), span("serve", "generate", 4, 6, tokens=800.0),
    span("serve", "generate", 6, 9, tokens=10.0), span("serve", "swap", 6.5, 6.75),
    span("serve", "publish", 11, 11.0), span("serve", "generate", 9, 9.0005),
    span("collect", "episode", 0.5, 3), span("collect", "episode", 1, 7.25),
    span("collect", "episode", 2, 2.5, error="<lost>"), span("collect", "episode", 7, 12),
    span("collect", "wait", 3, 7), span("collect", "held-out", 9, 11.5),
    span("collect", "held-out", 11.5, 11.75), span("judge", "swap", 1, 2),
    span("judge", "verdict", 2, 2.01, error="no"), span("judge", "idle", 3, 8),
    span("judge", "verdict", 8.5, 9), span("train", "update", 3, 5), span("train", "wait", 5, 6),
    span("train", "update", 6.0, 8.5), span("other", "x", 0, 20),
]  # fmt: skip
SHORT = [span("train", "update", n / 2000, n / 2000 + 1e-4) for n in range(1501)]
LINES: list[dict[str, Any]] = [
    {"loop": "train", "name": "b", "start_s": 105, "end_s": 107.5, "tokens": 4},
    {"loop": "train", "name": "a", "start_s": 100.5, "end_s": 100.5, "error": "no"},
    {"loop": "x", "name": "back", "start_s": 3, "end_s": 2}, {"loop": "x", "start_s": 3},
    {"start_s": "3", "end_s": 4}, {"start_s": 101, "end_s": "4"}, {}, {"end_s": 4},
    {"start_s": 103, "end_s": 104, "tokens": "many", "error": ""},
]  # fmt: skip


def words() -> dict[str, Sequence[object]]:
    """Numbers as people read them."""
    less = [
        {name: value for name, value in MEASURED.items() if name != left_out}
        for left_out in ("heldout/low", "heldout/high", "heldout/lost", "heldout/samples_lost")
    ]
    measured = [MEASURED, *less, {}]
    return {
        "durations": [text.duration(value) for value in SECONDS],
        "ages": [text.age(value) for value in SECONDS if math.isfinite(value)],
        "until": [text.until(value) for value in SECONDS if math.isfinite(value)],
        "numbers": [text.number(value) for value in (*NUMBERS, None)],
        "shares": [text.share(value) for value in (*SHARES, None)],
        "estimates": [
            text.in_words(Estimate(value, 0.1, 0.256, n)) for value, n in ((0.2, 9), (0.5, 0))
        ],
        "intervals": [text.interval(values) for values in measured],
        "sizes": [text.sample_size(values) for values in measured],
        "rates": [text.pass_rates(values) for values in measured],
        "versions": [text.measured_versions(step, MEASURED) for step in (5, 6, 7, 8)],
        "scores": [text.scores(MEASURED), text.scores({})],
        "environments": [text.envs_in(MEASURED, name) for name in ("train/success", "success", "")],
        "families": [text.family_of(name) for name in MEASURED],
        "lines": [text.one_line(foreign) for foreign in FOREIGN],
        "short lines": [text.one_line(foreign, 2) for foreign in FOREIGN],
        "plain": [text.plain(foreign) for foreign in FOREIGN],
        "writable": [
            text.writable(FOREIGN[-1], encoding) for encoding in ("ascii", "latin-1", "utf-8", None)
        ],
    }


def scales() -> dict[str, Sequence[object]]:
    """What an axis is made of, and curves in block characters."""
    frame = PlotArea(300, 100, (2.0, 4.0), (-1.0, 1.0))
    flat = PlotArea(300, 100, (2.0, 2.0), (1.0, 1.0), left=1, right=2, top=3, bottom=4)
    marks = (0.0, 0.125, 0.5, 1.0, 2.5, 1234.5, 99_999.0, 1e5, 3e6, -0.3)
    forms = (text.number, text.share, text.duration, power_of_ten, text.age)
    lines = [
        columns(curve, width, end)
        for curve, width, end in itertools.product(CURVES, (1, 6), (0.0, 8.0))
    ]
    return {
        "ticks": [ticks(*ends, about=about) for ends in RANGES for about in (2, 4, 7)],
        "spans": [span_of(ends, zero) for ends in RANGES for zero in (True, False)],
        "marks": [[on_axis(value, form) for value in marks[: 5 if form is power_of_ten else 10]]
                  for form in forms],
        "places": [[one.x(value), one.y(value)] for one in (frame, flat) for value in (-1, 2, 3.3)],
        "columns": lines,
        "sparks": [
            spark(line, low, high, rows)
            for line in lines
            for low, high, rows in ((0.0, 1.0, 1), (-1.0, 3.0, 2), (1.0, 1.0, 3))
        ],
    }  # fmt: skip


CHARTS: Mapping[str, Callable[[], str]] = {
    "lines": lambda: line_chart([CURVE, DOTS, ONE_DOT, Series("none", "x", [])], label="a <label>"),
    "one point": lambda: line_chart([Series("a", "reward", [(3, 2.0)])], x_label="hour"),
    "nothing": lambda: line_chart([Series("a", "reward", [])]),
    "ranges": lambda: line_chart(
        [CURVE], width=700, height=300, x_range=(-5, 20), y_range=(-1, 2), form=text.share
    ),
    "powers": lambda: line_chart([Series("a", "x", [(0, 1.0), (3, 4.0)])], powers=True, width=240),
    "durations": lambda: line_chart([Series("a", "x", [(0, 1), (1.5, 250)])], form=text.duration),
    "large": lambda: line_chart([Series("a", "x", [(0, 0), (130, 250_000)])], width=900),
    "columns": lambda: bar_chart(
        STACKED, ["good", "bad"], width=400, height=150, x_range=(0, 10), label="columns"
    ),
    "no columns": lambda: bar_chart(
        [Column(0, 1, [], (0.0,))], ["good"], width=400, height=150, x_range=(0, 1), label=""
    ),
    "intervals": lambda: interval_chart(ROWS, label="intervals"),
    "differences": lambda: interval_chart(ROWS, label="", width=400, x_range=(-1, 1)),
    "numbers": lambda: interval_chart(ROWS[:1], label="", x_range=(0, 2), form=text.number),
    "no intervals": lambda: interval_chart([], label=""),
    "timeline": lambda: timeline_svg(SPANS, start_s=0, end_s=12, width=400, label="<time>"),
    "a part of the time": lambda: timeline_svg(SPANS, start_s=2, end_s=7, width=300, label=""),
    "a moment": lambda: timeline_svg(SPANS[6:10], start_s=1, end_s=1.5, width=200, label=""),
    "hours": lambda: timeline_svg(
        [span("train", "update", 0, 9000)], start_s=0, end_s=9000, width=800, label=""
    ),
    "days": lambda: timeline_svg(
        [span("train", "wait", 0, 9e5)], start_s=0, end_s=9e5, width=800, label=""
    ),
    "many": lambda: timeline_svg(SHORT, start_s=0, end_s=1, width=160, label=""),
    "many at once, all idle": lambda: timeline_svg(
        [span("collect", "wait", 0, 2), span("collect", "idle", 1, 3)],
        start_s=0, end_s=3, width=160, label="",
    ),
    "no time": lambda: timeline_svg([], start_s=0, end_s=0, width=160, label=""),
    "picture": lambda: picture(),
}  # fmt: skip


def picture() -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "deep" / "chart.svg"
        keys = [("reward", "a <key>"), ("heldout", "b")]
        write_picture(path, "A <title>", keys, line_chart([CURVE], width=696, height=264))
        return path.read_text("utf-8")


def times() -> dict[str, object]:
    """What is counted of spans."""
    read = spans_of(LINES)
    return {
        "read": [repr(one) for one in read],
        "none": spans_of([]),
        "rates": [[one.rate, one.is_idle, one.is_swap] for one in SPANS],
        "windows": [training_window(spans) for spans in (SPANS, SPANS[:6], [])],
        "loops": loops_of(SPANS),
        "busy": busy_of_loops(SPANS),
        "shares": [
            busy_share(SPANS[6:12], *window) for window in ((0, 12), (1, 3), (11, 20), (3, 3))
        ],
    }


def marks(svg: str) -> list[str]:
    """One for each tag."""
    return [f"<{mark}" for mark in svg.split("<")[1:]]


def as_json(content: object) -> Any:
    return json.loads(json.dumps(content))


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    return dict(json.loads(FILE.read_text("utf-8")))


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_is_drawn_as_it_was(name: str, golden: dict[str, Any]) -> None:
    assert marks(CHARTS[name]()) == golden["charts"][name]


@pytest.mark.parametrize(("group", "now"), [("words", words), ("scales", scales), ("times", times)])
def test_numbers_are_written_and_placed_as_they_were(
    group: str, now: Callable[[], Mapping[str, object]], golden: dict[str, Any]
) -> None:
    for name, content in now().items():
        assert as_json(content) == golden[group][name], name


if __name__ == "__main__":
    contents = {
        "charts": {name: marks(draw()) for name, draw in CHARTS.items()},
        "words": words(),
        "scales": scales(),
        "times": times(),
    }
    FILE.write_text(json.dumps(contents, indent=0) + "\n", "utf-8")
