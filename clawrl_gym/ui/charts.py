"""Curves of a report: their metrics and titles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from markupsafe import Markup

from clawrl_gym.core.errors import ClawError
from clawrl_gym.core.metrics import (
    ALSO_PREFIX,
    ENV_PREFIX,
    FAMILY_PREFIX,
    HELDOUT_HIGH,
    HELDOUT_LOW,
    HELDOUT_REWARD,
    HELDOUT_REWARD_HIGH,
    HELDOUT_REWARD_LOW,
    HELDOUT_SUCCESS,
)
from clawrl_gym.ui.run_data import RunData, read_run
from clawrl_gym.ui.svg import CHART_HEIGHT, CHART_WIDTH, Form, Series, line_chart, write_picture
from clawrl_gym.ui.text import HELDOUT_PREFIX, duration, envs_in, number, scores, share


@dataclass(frozen=True, slots=True)
class ChartPlan:
    """A chart that is drawn when its metrics are there."""

    title: str
    caption: str
    curves: tuple[tuple[str, str, str], ...]
    """(metric, name, colour)."""
    form: Form = number
    in_words: tuple[tuple[str, str], ...] = ()
    """(metric, name) that is written and not drawn, because it would flatten the curve."""


_FAMILY_COLOURS = ("recipe0", "recipe5", "recipe7", "recipe4")
_BESIDE = "recipe6"

DETAILS = (
    ChartPlan(
        "Log-prob gap", "between the learner and vLLM, per token",
        (("logprob_gap/mean", "mean", "train"),), in_words=(("logprob_gap/max", "max"),),
    ),
    ChartPlan(
        "Staleness", "weight versions between sampling a token and learning from it",
        (("staleness/mean", "mean", "collect"), ("staleness/max", "max", "soft")),
    ),
    ChartPlan("Swap pause", "how long vLLM paused for new weights",
          (("swap/pause_s", "pause", "serve"),), duration),
    ChartPlan("Tokens generated a second", "by vLLM, sampled only",
          (("rollout/tokens_per_s", "tokens/s", "serve"),)),
    ChartPlan("Tokens trained a second", "in the learner's step, prompts included",
          (("learner/tokens_per_s", "tokens/s", "train"),)),
    ChartPlan("Episodes a second", "finished in all workers",
          (("rollout/episodes_per_s", "episodes/s", "collect"),)),
    ChartPlan("Waiting", "how long the learner waited for a full batch",
          (("learner/waited_s", "waited", "train"),), duration),
    ChartPlan("Turns an episode", "", (("train/turns", "turns", "collect"),)),
    ChartPlan("Loss", "policy gradient; its size says little, a jump says much",
          (("learner/loss", "loss", "train"),)),
    ChartPlan("Gradient norm", "before clipping", (("learner/grad_norm", "norm", "train"),)),
    ChartPlan("Entropy", "of the policy on the tokens it sampled",
          (("learner/entropy", "entropy", "train"),)),
    ChartPlan("First replies", "log-prob of a token of what the policy said before it learned",
          (("language/reference_logprob", "log-prob", "train"),)),
    ChartPlan("Reply length", "sampled tokens of a reply that was learned from",
          (("language/reply_tokens", "tokens", "train"),)),
    ChartPlan("Masked tokens", "share left out for their importance ratio",
          (("learner/masked_share", "masked", "train"),), share),
    ChartPlan("Clipped tokens", "share outside the trust region",
          (("learner/clip_share", "clipped", "train"),), share),
    ChartPlan("Learning rate", "", (("learner/lr", "rate", "train"),)),
    ChartPlan("Groups left out", "per update: all rewards equal, or too old",
          (("groups/zero_variance", "equal rewards", "judge"),
           ("groups/dropped_stale", "too old", "bad"))),
    ChartPlan("Level", "difficulty of most training tasks that are drawn",
          (("curriculum/level", "level", "collect"),)),
    ChartPlan("Families by pass rate", "that a curriculum knows: mostly, sometimes, hardly solved",
          (("curriculum/easy", "easy", "soft"), ("curriculum/between", "between", "collect"),
           ("curriculum/hard", "hard", "bad"))),
    ChartPlan("Episodes in flight", "when an update ended, and how many might have been",
          (("rollout/in_flight", "in flight", "collect"),
           ("rollout/in_flight_limit", "at most", "soft"))),
)  # fmt: skip
"""The health of a run."""

JUDGING = (
    ChartPlan("Verdicts", "mean of the clear ones, by update", (("judge/mean", "mean", "judge"),)),
    ChartPlan("Abstentions", "share of judged turns without a valid verdict; never a reward",
          (("judge/abstained", "abstained", "judge"),), share),
    ChartPlan("Hints", "share of judged turns that gave one, and of hints that were refused",
          (("judge/hinted", "with a hint", "judge"),
           ("judge/hints_refused", "refused", "train")), share),
    ChartPlan("Agreement", "of the judge with the rules, where both are clear",
          (("judge/agreement", "agree", "judge"),), share),
    ChartPlan("Invalid votes", "share of votes that could not be read",
          (("judge/votes_invalid", "invalid", "bad"),), share),
    ChartPlan("Tokens of each term", "share of the batch that each part of the loss ran on",
          (("objective/policy_gradient", "reward", "reward"),
           ("objective/distillation_sampled", "teacher", "success"),
           ("objective/distillation_topk", "teacher, top k", "success"),
           ("objective/kl", "KL", "soft")), share),
    ChartPlan("Teacher's gap", "its log-prob less the policy's, mean over distilled tokens",
          (("teacher/gap_mean", "mean", "train"), ("teacher/gap_abs", "size", "soft"))),
    ChartPlan("Gaps cut off", "share of distilled tokens beyond trainer.distillation.gap_clip",
          (("teacher/gap_clipped", "cut off", "train"),), share),
    ChartPlan("Overlap", "of the teacher's most likely tokens with the policy's",
          (("teacher/overlap", "overlap", "train"),), share),
    ChartPlan("Tokens taught", "that had a teacher, by update",
          (("teacher/tokens", "tokens", "train"),), in_words=(("teacher/too_long", "too long"),)),
)  # fmt: skip
"""Charts of judge and teacher."""

HELDOUT_FAMILY_PREFIX = HELDOUT_SUCCESS + "/"


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawn chart with its words."""

    title: str
    caption: str
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
        heldout_reward_series(run),
    ]
    rewards = [y for one in (series[0], series[3]) for _, y in one.points]
    rewards += [end for _, low, high in series[3].bars or () for end in (low, high)]
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


def heldout_reward_series(run: RunData) -> Series:
    """Held-out reward as dots with 95 % intervals; empty where success says the same."""
    points = run.points(HELDOUT_REWARD)
    if points == [one for one in run.points(HELDOUT_SUCCESS) if one[0] in dict(points)]:
        return Series("held-out reward", "reward", [])
    bars = [
        (float(row["step"]), float(row[HELDOUT_REWARD_LOW]), float(row[HELDOUT_REWARD_HIGH]))
        for row in run.heldout
        if HELDOUT_REWARD_LOW in row and HELDOUT_REWARD_HIGH in row
    ]
    return Series("held-out reward", "reward", points, bars)


def detail_charts(run: RunData) -> list[Chart]:
    """The health of a run, in small charts."""
    return _planned(run, DETAILS)


def judging_charts(run: RunData) -> list[Chart]:
    """Small charts of judge and teacher."""
    return _planned(run, JUDGING)


def _planned(run: RunData, plans: tuple[ChartPlan, ...]) -> list[Chart]:
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
        latest_values = [(curve.name, curve.points[-1][1]) for curve in series]
        latest_values += [
            (name, run.points(metric)[-1][1])
            for metric, name in plan.in_words
            if run.points(metric)
        ]
        latest = ", ".join(f"{name} {plan.form(value)}" for name, value in latest_values)
        chart = line_chart(series, form=plan.form, label=plan.title)
        keys = [
            (curve.colour, f"{curve.name} {plan.form(curve.points[-1][1])}") for curve in series
        ]
        keys += [("", f"{name} {plan.form(value)}") for name, value in latest_values[len(series) :]]
        several = tuple(keys) if len(series) > 1 else ()
        charts.append(Chart(plan.title, plan.caption, chart, latest, several))
    return charts


def family_charts(run: RunData) -> list[Chart]:
    """Success by task family: training as a curve, held-out as dots."""
    names = {name for row in run.rows for name in row}
    families = {
        name.removeprefix(FAMILY_PREFIX) for name in names if name.startswith(FAMILY_PREFIX)
    }
    families |= {*_heldout_families(run)}
    return [
        _small_chart(run, family, FAMILY_PREFIX + family, HELDOUT_FAMILY_PREFIX + family, share)
        for family in sorted(families)
    ]


def env_charts(run: RunData) -> list[Chart]:
    """Success in each environment of a mixture: training as a curve, held-out as dots."""
    envs = {name for row in run.rows for name in envs_in(row, "train/success")}
    envs |= {name for row in run.rows for name in envs_in(row, HELDOUT_SUCCESS)}
    return [
        _small_chart(
            run, env, f"{ENV_PREFIX}{env}/train/success", f"{ENV_PREFIX}{env}/{HELDOUT_SUCCESS}",
            share,
        )
        for env in sorted(envs)
    ]  # fmt: skip


def score_charts(run: RunData) -> list[Chart]:
    """Charts of other scores than success: training as a curve, held-out as dots."""
    names = sorted({name for row in run.heldout for name in scores(row)})
    return [
        _small_chart(run, score, f"train/{score}", HELDOUT_PREFIX + score, number)
        for score in names
    ]


def transfer_charts(run: RunData) -> list[Chart]:
    """Charts of the policy in other environments than its own: skills learned, or forgotten."""
    names = {name for row in run.rows for name in row if name.startswith(ALSO_PREFIX)}
    measures = sorted(name for name in names if name.rpartition("/")[2] not in _NO_SCORES)
    return [
        _small_chart(
            run, name.removeprefix(ALSO_PREFIX).replace("/", " "), "", name,
            share if name.endswith("/success") else number,
        )
        for name in measures
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
        [curve for curve in series if curve.points], width=240, height=110, y_range=(0.0, 1.0),
        x_range=(0.0, float(max(1, run.last_step))), form=form, x_label="",
        label=f"{title} over updates",
    )  # fmt: skip
    latest = f"{form(dots[0][1])} → {form(dots[-1][1])}" if len(dots) > 1 else ""
    return Chart(title, "", chart, latest)


def write_curve_svg(folder: Path, path: Path, score: str | None = None) -> Path:
    """The main curves of a run, or one of its scores, as a picture of its own, for a README."""
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


def write_families_svg(folder: Path, path: Path, beside: Sequence[Path] = ()) -> Path:
    """Held-out success of each task family as a picture of its own; families of other runs, such as
    a control, are drawn behind it. Raises ClawError where the run has measured no family."""
    run = read_run(folder)
    families = _heldout_families(run)
    if not families:
        raise ClawError(f"got {str(folder)!r}, expected a run whose held-out tasks have families")
    keys = list(zip(cycle(_FAMILY_COLOURS), families, strict=False))
    series = [
        Series(family, colour, run.points(HELDOUT_FAMILY_PREFIX + family))
        for colour, family in keys
    ]
    others = {_name_beside(other): other for other in map(read_run, beside)}
    behind = [
        Series(f"{name}, {family}", _BESIDE, other.points(HELDOUT_FAMILY_PREFIX + family))
        for name, other in others.items()
        for family in families
    ]
    keys += [(_BESIDE, name) for name in others]
    last_step = max(one.last_step for one in (run, *others.values()))
    results = ", ".join(f"{one.name} {_from_to(one)}" for one in series)
    title = f"Held-out success: {results}"
    chart = line_chart(
        [*behind, *series], width=CHART_WIDTH, height=CHART_HEIGHT, y_range=(0.0, 1.0), form=share,
        x_range=(0.0, float(max(1, last_step))), label="held-out success of families over updates",
    )  # fmt: skip
    write_picture(path, title, keys, chart)
    return path


def _heldout_families(run: RunData) -> list[str]:
    names = {name for row in run.rows for name in row if name.startswith(HELDOUT_FAMILY_PREFIX)}
    return sorted(name.removeprefix(HELDOUT_FAMILY_PREFIX) for name in names)


def _name_beside(run: RunData) -> str:
    """The name of a run beside another: its control, or its folder."""
    control = run.setting("control")
    return run.folder.resolve().name if control in (None, "none") else f"control={control}"


def _from_to(curve: Series) -> str:
    return f"{share(curve.points[0][1])} → {share(curve.points[-1][1])}"


def _main_keys(run: RunData) -> list[tuple[str, str]]:
    keys = [("success", "training success"), ("heldout", "held-out success, 95 % interval")]
    if heldout_reward_series(run).points:
        keys.append(("reward", "held-out reward, 95 % interval"))
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
        measured = sorted({name for row in run.heldout for name in scores(row)})
        raise ClawError(f"got the score {score!r}, expected one of this run's: {measured}")
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
