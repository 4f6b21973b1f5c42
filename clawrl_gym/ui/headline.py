"""The first lines of a report: before and after in large figures, with what they stand on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from clawrl_gym.core.intervals import mean_difference, reward_difference
from clawrl_gym.core.metrics import (
    HELDOUT_HIGH,
    HELDOUT_LOW,
    HELDOUT_SUCCESS,
    NO_GRADIENT,
    NO_GRADIENT_PREFIX,
    MetricRow,
)
from clawrl_gym.core.processes.controls import control_words
from clawrl_gym.trainers.no_gradient import CAUSES, REMEDIES, Cause
from clawrl_gym.trainers.versions.health import warnings_of
from clawrl_gym.ui.personal import fallen_answers
from clawrl_gym.ui.run_data import RunData
from clawrl_gym.ui.text import (
    number,
    pass_rates,
    reward_change,
    reward_words,
    sample_size,
    sampled_words,
    share,
)
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
    """Time and subject."""
    success: str
    spread: str


@dataclass(frozen=True, slots=True)
class Headline:
    """The first lines of the page."""

    verdict: str
    before: ResultInWords | None = None
    after: ResultInWords | None = None
    change: str = ""
    """`+58 points (+49 to +67)`."""
    may_be_chance: bool = False
    warnings: tuple[str, ...] = ()
    """Warnings to read first."""


def headline(run: RunData) -> Headline:
    """Before and after, or what is missing for saying that."""
    if run.is_serving:
        return _serving_headline(run)
    line = _training_headline(run)
    line = replace(line, warnings=(*fallen_answers(run), *line.warnings))
    control = control_words(run.setting("control"))
    return line if control is None else replace(line, verdict=f"{control} {line.verdict}")


def _training_headline(run: RunData) -> Headline:
    evaluations = run.heldout
    warnings = (*unhealthy(run), *without_gradient(run))
    if not run.is_finished:
        total = "" if run.total_steps is None else f" of {run.total_steps}"
        verdict = f"This run is not finished: {run.last_step}{total} updates so far."
    else:
        verdict = f"{_updates(run.last_step)}, finished."
    if not evaluations:
        return Headline(f"{verdict} It has no held-out evaluation.", warnings=warnings)
    first_step = int(evaluations[0]["step"])
    if first_step != 0:
        verdict += f" Its first held-out evaluation came after {first_step} updates."
    when = "before" if first_step == 0 else f"after {_updates(first_step)}"
    before = _result(f"held-out success {when}", evaluations[0])
    if len(evaluations) == 1:
        verdict = f"{verdict} It has one held-out evaluation."
        return Headline(verdict, before, warnings=warnings)
    last_step = int(evaluations[-1]["step"])
    after = _result(f"after {_updates(last_step)}", evaluations[-1])
    change, comparison, is_clear = _compared(run, first_step, last_step)
    rewards = _rewards_compared(run, first_step, last_step)
    return Headline(
        " ".join(filter(None, [verdict, comparison, rewards])), before, after, change,
        may_be_chance=not is_clear, warnings=warnings,
    )  # fmt: skip


def _compared(run: RunData, first_step: int, last_step: int) -> tuple[str, str, bool]:
    """The change, what is to be said of it, and whether it is clear: the paired difference over the
    tasks that both evaluations measured, as `evaluate compare` has it."""
    before, after = run.solved.get(first_step, {}), run.solved.get(last_step, {})
    both = [task for task in before if task in after]
    difference = mean_difference([[float(after[task]) - float(before[task]) for task in both]])
    if difference is None:
        words = "were not recorded" if not (before and after) else "have no task in common"
        return "", f"The two evaluations are not compared: their tasks {words}.", False
    low, high = 100 * difference.low, 100 * difference.high
    change = f"{100 * difference.mean:+.0f} points ({low:+.0f} to {high:+.0f})"
    apart = len(before) + len(after) - 2 * len(both)
    of_tasks = f"the {len(both)} tasks that both evaluations measured" if apart else ""
    if difference.is_clear:
        return change, f"The change is over {of_tasks}." if apart else "", True
    of_tasks = of_tasks or f"the same {len(both)} tasks"
    return change, f"Before and after are not distinguishable on {of_tasks}.", False


def _rewards_compared(run: RunData, first_step: int, last_step: int) -> str:
    """The paired difference of mean rewards; empty where they are not known, or say the same as
    success."""
    before, after = run.rewards.get(first_step, {}), run.rewards.get(last_step, {})
    solved = run.solved.get(first_step, {}), run.solved.get(last_step, {})
    if before == solved[0] and after == solved[1]:  # rewards of 0 and 1: success has said it
        return ""
    difference = reward_difference(before, after)
    if difference is None:
        return ""
    words = reward_change(difference)
    return f"Held-out reward changed by {words}{'' if difference.is_clear else ', not clearly'}."


def unhealthy(run: RunData) -> tuple[str, ...]:
    """Warnings to read before the reward."""
    most = run.setting("rollout.max_staleness")
    is_async = run.setting("rollout.mode") != "sync"
    lag = most if is_async and isinstance(most, int) else None
    return tuple(warning.sentences for warning in warnings_of(run.rows, lag))


def without_gradient(run: RunData) -> tuple[str, ...]:
    """Lines about updates that had no gradient: how many, why, and what to do; else none."""
    rows = [row for row in run.rows if NO_GRADIENT in row]
    if not rows:
        return ()
    counts: dict[Cause, int] = {
        cause: sum(f"{NO_GRADIENT_PREFIX}{cause}" in row for row in rows) for cause in CAUSES
    }
    had = {cause: count for cause, count in counts.items() if count}
    causes = "; ".join(f"{CAUSES[cause]} ({count})" for cause, count in had.items())
    line = f"{len(rows)} of {_updates(run.last_step)} had no gradient: {causes}."
    most = run.setting("learner.most_without_gradient")
    if not run.is_finished and isinstance(most, int) and _last_in_a_row(run) >= most:
        line += f" The run ended after {most} in a row (learner.most_without_gradient)."
    return (line, *(f"{REMEDIES[cause].capitalize()}." for cause in had))


def _last_in_a_row(run: RunData) -> int:
    """Number of newest updates in a row without a gradient."""
    updates = [row for row in run.rows if "batch/samples" in row]
    had_one = (at for at, row in enumerate(reversed(updates)) if NO_GRADIENT not in row)
    return next(had_one, len(updates))


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
    spread = ", ".join(filter(None, (spread, reward_words(row), pass_rates(row))))
    sampled = sampled_words(row)
    spread += f"; sampled {sampled}" if sampled else ""
    return ResultInWords(label, share(row[HELDOUT_SUCCESS]), spread)


def _verdict_result(label: str, good: VerdictShare) -> ResultInWords:
    spread = f"{_interval(*good.interval)}, {good.good} of {good.clear}"
    return ResultInWords(label, share(good.value), spread)


def _interval(low: float, high: float) -> str:
    return f"95 %: {100 * low:.0f} to {100 * high:.0f} %"
