"""Which curves a report draws, and how each is called."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from clawrl_gym.core.errors import ClawError
from clawrl_gym.core.metrics import (
    ALSO_PREFIX,
    FAMILY_PREFIX,
    HELDOUT_HIGH,
    HELDOUT_LOW,
    HELDOUT_SUCCESS,
)
from clawrl_gym.ui.picture import CHART_HEIGHT, CHART_WIDTH, write_picture
from clawrl_gym.ui.plans import DETAILS, JUDGING, Plan
from clawrl_gym.ui.run_data import RunData
from clawrl_gym.ui.svg import Form, Series, line_chart
from clawrl_gym.ui.text import HELDOUT_PREFIX, number, scores, share

HELDOUT_FAMILY_PREFIX = HELDOUT_SUCCESS + "/"


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawn chart with its words."""

    title: str
    says: str
    svg: Markup
    latest: str = ""
    keys: tuple[tuple[str, str], ...] = ()
    """(colour, words) of each curve and its last value, where there are several."""


def main_chart(run: RunData, width: int, height: int) -> Markup:
    """Reward and success in training, held-out success with its intervals."""
    reward = [] if reward_is_success(run) else run.points("train/reward")
    series = [
        Series("training reward", "reward", reward),
        Series("training success", "success", run.points("train/success")),
        heldout_series(run),
    ]
    rewards = [y for _, y in series[0].points]
    y_range = (min(0.0, *rewards, 0.0), max(1.0, *rewards, 1.0))
    return line_chart(
        series, width=width, height=height, y_range=y_range, form=share if y_range == (0, 1) else
        number, x_range=(0.0, float(max(1, run.last_step))),
        label="Training reward, training success and held-out success over updates",
    )  # fmt: skip


def reward_is_success(run: RunData) -> bool:
    """Rewards of 0 and 1 only: one curve says both."""
    return run.points("train/reward") == run.points("train/success")


def heldout_series(run: RunData) -> Series:
    """Held-out success as dots with 95 % intervals."""
    bars = [
        (float(row["step"]), float(row[HELDOUT_LOW]), float(row[HELDOUT_HIGH]))
        for row in run.heldout
        if HELDOUT_LOW in row and HELDOUT_HIGH in row
    ]
    return Series("held-out success", "heldout", run.points(HELDOUT_SUCCESS), bars)


def detail_charts(run: RunData) -> list[Chart]:
    """The health of a run, in small charts."""
    return _planned(run, DETAILS)


def judging_charts(run: RunData) -> list[Chart]:
    """What the judge and the teacher did, in small charts."""
    return _planned(run, JUDGING)


def _planned(run: RunData, plans: tuple[Plan, ...]) -> list[Chart]:
    """One chart for each plan that has data."""
    charts = []
    for plan in plans:
        series = [
            Series(name, colour, points)
            for metric, name, colour in plan.curves
            if (points := run.points(metric))
        ]
        if not series:
            continue
        said = [(one.name, one.points[-1][1]) for one in series]
        said += [
            (name, run.points(metric)[-1][1]) for metric, name in plan.also if run.points(metric)
        ]
        latest = ", ".join(f"{name} {plan.form(value)}" for name, value in said)
        chart = line_chart(series, form=plan.form, label=plan.title)
        keys = [(one.colour, f"{one.name} {plan.form(one.points[-1][1])}") for one in series]
        keys += [("", f"{name} {plan.form(value)}") for name, value in said[len(series) :]]
        several = tuple(keys) if len(series) > 1 else ()
        charts.append(Chart(plan.title, plan.says, chart, latest, several))
    return charts


def family_charts(run: RunData) -> list[Chart]:
    """Success by task family: training as a curve, held-out as dots."""
    names = {name for row in run.rows for name in row}
    families = {
        name.removeprefix(FAMILY_PREFIX) for name in names if name.startswith(FAMILY_PREFIX)
    }
    families |= {
        name.removeprefix(HELDOUT_FAMILY_PREFIX)
        for name in names
        if name.startswith(HELDOUT_FAMILY_PREFIX)
    }
    return [
        _small_chart(run, family, FAMILY_PREFIX + family, HELDOUT_FAMILY_PREFIX + family, share)
        for family in sorted(families)
    ]


def score_charts(run: RunData) -> list[Chart]:
    """What the environment measures beside success: training as a curve, held-out as dots."""
    names = sorted({name for row in run.heldout for name in scores(row)})
    return [
        _small_chart(run, score, f"train/{score}", HELDOUT_PREFIX + score, number)
        for score in names
    ]


def also_charts(run: RunData) -> list[Chart]:
    """What became of the policy in other environments than its own: learned, or forgotten."""
    names = {name for row in run.rows for name in row if name.startswith(ALSO_PREFIX)}
    shown = sorted(name for name in names if name.rpartition("/")[2] not in _NO_SCORES)
    return [
        _small_chart(
            run, name.removeprefix(ALSO_PREFIX).replace("/", " "), "", name,
            share if name.endswith("/success") else number,
        )
        for name in shown
    ]  # fmt: skip


_NO_SCORES = ("low", "high", "n")


def _small_chart(run: RunData, title: str, train: str, heldout: str, form: Form) -> Chart:
    """Something between 0 and 1, before and after."""
    dots = run.points(heldout)
    series = [
        Series("training", "success", run.points(train)),
        Series("held-out", "heldout", dots, []),
    ]
    chart = line_chart(
        [one for one in series if one.points], width=240, height=110, y_range=(0.0, 1.0),
        x_range=(0.0, float(max(1, run.last_step))), form=form, x_label="",
        label=f"{title} over updates",
    )  # fmt: skip
    latest = f"{form(dots[0][1])} → {form(dots[-1][1])}" if len(dots) > 1 else ""
    return Chart(title, "", chart, latest)


def write_curve_svg(folder: Path, path: Path, score: str | None = None) -> Path:
    """The main curves of a run, or one of its scores, as a picture of its own, for a README."""
    from clawrl_gym.ui.run_data import read_run

    run = read_run(folder)
    size = (CHART_WIDTH, CHART_HEIGHT)
    if score is None:
        title, keys = curve_title(run), _main_keys(run)
        chart = main_chart(run, *size)
    else:
        title = score_title(run, score)
        keys = [("success", "training, sampled"), ("heldout", "held-out")]
        chart = _score_chart(run, score, *size)
    write_picture(path, title, keys, chart)
    return path


def _main_keys(run: RunData) -> list[tuple[str, str]]:
    keys = [("success", "training success"), ("heldout", "held-out success, 95 % interval")]
    return keys if reward_is_success(run) else [("reward", "training reward"), *keys]


def _score_chart(run: RunData, score: str, width: int, height: int) -> Markup:
    series = [
        Series("training", "success", run.points(f"train/{score}")),
        Series("held-out", "heldout", run.points(HELDOUT_PREFIX + score), []),
    ]
    return line_chart(
        series, width=width, height=height, y_range=(0.0, 1.0), form=number,
        x_range=(0.0, float(max(1, run.last_step))), label=f"{score} over updates",
    )  # fmt: skip


def score_title(run: RunData, score: str) -> str:
    """A score's result in one line. Raises ClawError for one that the run has not measured."""
    points = run.points(HELDOUT_PREFIX + score)
    if not points:
        known = sorted({name for row in run.heldout for name in scores(row)})
        raise ClawError(f"got the score {score!r}, expected one of this run's: {known}")
    first, last = points[0][1], points[-1][1]
    return f"Held-out {score} {first:.2f} → {last:.2f} in {run.last_step} updates"


def curve_title(run: RunData) -> str:
    """The run's result in one line."""
    if len(run.heldout) < 2:
        return f"{run.last_step} updates"
    first, last = run.heldout[0], run.heldout[-1]
    return (
        f"Held-out success {share(first[HELDOUT_SUCCESS])} → {share(last[HELDOUT_SUCCESS])} "
        f"in {run.last_step} updates"
    )
