"""The first lines of a report: before and after in large figures, with what they stand on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from clawrl_gym.core.controls import control_words
from clawrl_gym.core.metrics import (
    HELDOUT_HIGH,
    HELDOUT_LOW,
    HELDOUT_SUCCESS,
    MetricRow,
)
from clawrl_gym.ui.run_data import RunData
from clawrl_gym.ui.text import number, pass_rates, sample_size, share
from clawrl_gym.ui.verdicts import (
    FEWEST_CLEAR,
    VerdictShare,
    comparison_words,
    differ,
    first_and_newest,
)


@dataclass(frozen=True, slots=True)
class ResultInWords:
    """One share that was measured."""

    label: str
    """When, and of what."""
    success: str
    spread: str


@dataclass(frozen=True, slots=True)
class Headline:
    """The first lines of the page."""

    verdict: str
    before: ResultInWords | None = None
    after: ResultInWords | None = None
    change: str = ""
    """`+58 points`."""
    may_be_chance: bool = False


def headline(run: RunData) -> Headline:
    """Before and after, or what is missing for saying that."""
    if run.is_serving:
        return _serving_headline(run)
    line = _training_headline(run)
    control = control_words(run.setting("control"))
    return line if control is None else replace(line, verdict=f"{control} {line.verdict}")


def _training_headline(run: RunData) -> Headline:
    evaluations = run.heldout
    if not run.is_finished:
        total = "" if run.total_steps is None else f" of {run.total_steps}"
        verdict = f"This run is not finished: {run.last_step}{total} updates so far."
    else:
        verdict = f"{_updates(run.last_step)}, finished."
    if not evaluations:
        return Headline(f"{verdict} It has no held-out evaluation.")
    first_step = int(evaluations[0]["step"])
    if first_step != 0:
        verdict += f" Its first held-out evaluation came after {first_step} updates."
    when = "before" if first_step == 0 else f"after {_updates(first_step)}"
    before = _result(f"held-out success {when}", evaluations[0])
    if len(evaluations) == 1:
        return Headline(f"{verdict} It has one held-out evaluation.", before)
    after = _result(f"after {_updates(int(evaluations[-1]['step']))}", evaluations[-1])
    points = 100 * (evaluations[-1][HELDOUT_SUCCESS] - evaluations[0][HELDOUT_SUCCESS])
    return Headline(verdict, before, after, f"{points:+.0f} points")


def _serving_headline(run: RunData) -> Headline:
    """The first clear verdicts against the newest."""
    judged = len(run.judged)
    turns = f"{number(judged)} judged turn{'' if judged == 1 else 's'}"
    made = f"{_updates(run.last_step)} from {turns}." if judged else f"{_updates(run.last_step)}."
    compared = first_and_newest(run.judged)
    if compared is None:
        few = f" From {FEWEST_CLEAR} clear verdicts (+1 or -1) on, first and newest are compared."
        return Headline(f"A serving run: {made}{few if run.is_recorded else ''}")
    first, newest = compared
    points = 100 * (newest.value - first.value)
    return Headline(
        f"A serving run: {made} {comparison_words(first, newest)}",
        _verdict_result(f"judged good, first {first.clear}", first),
        _verdict_result(f"newest {newest.clear}", newest),
        f"{points:+.0f} points",
        may_be_chance=not differ(first, newest),
    )


def _updates(count: int) -> str:
    return f"{count} update{'' if count == 1 else 's'}"


def _result(label: str, row: MetricRow) -> ResultInWords:
    spread = sample_size(row)
    if HELDOUT_LOW in row and HELDOUT_HIGH in row:
        spread = f"{_interval(row[HELDOUT_LOW], row[HELDOUT_HIGH])}, {spread}"
    spread = ", ".join(filter(None, (spread, pass_rates(row))))
    return ResultInWords(label, share(row[HELDOUT_SUCCESS]), spread)


def _verdict_result(label: str, good: VerdictShare) -> ResultInWords:
    spread = f"{_interval(*good.interval)}, {good.good} of {good.clear}"
    return ResultInWords(label, share(good.value), spread)


def _interval(low: float, high: float) -> str:
    return f"95 %: {100 * low:.0f} to {100 * high:.0f} %"
