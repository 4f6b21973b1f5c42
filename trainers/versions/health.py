"""Warnings about a run that its reward does not show, each with what to do.

They are read off the rows of metrics, so that a run says them while it lasts and its report says
them again. Each cause is reported once, at the update that shows it first. Checks:

- does an update learn from its tokens, or are most of them masked;
- does the policy lag as far behind as it may, and is it the learner or generation that is slow;
- does the policy still speak as it did: the log-prob of its first replies, its entropy;
- did right answers on held-out problems fall while something else rose.

Thresholds were chosen between ordinary runs and runs at a rate that destroys the policy
(docs/measured.md). How long replies are is no sign by itself, since a reward may ask for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from clawrl_gym.core.metrics import (
    ALSO_PREFIX,
    ENV_PREFIX,
    HELDOUT_N,
    HELDOUT_REWARD,
    HELDOUT_SUCCESS,
    REFERENCE_LOGPROB,
    REPLY_TOKENS,
    STEP_S,
    MetricRow,
)

Cause = Literal["masked", "clipped", "lag", "language", "forgets"]

MOST_MASKED = 0.5
"""Share of an update's tokens that may be masked, or clipped."""
_LAG_SHARE = 0.9
"""Share of the largest policy lag from which a mean counts as being at it."""
_LAG_UPDATES = 4
"""Number of updates in a row that are at it."""
MOST_REFERENCE_DROP = 1.0
"""Nats a token by which the first replies may become less likely: ordinary runs of the shipped
policies lost up to 0.3; at a hundred times their rate it was 6 after one update, 17 after six."""
MOST_ENTROPY_RISE = 1.0
"""Nats entropy may rise: ordinary runs rose by up to 0.2, at a hundred times the rate by 1.8."""
_COLLAPSED_ENTROPY = 0.1
"""Share of the first update's entropy, where that was `_SPEAKING_ENTROPY`: below it the policy says
one thing only. A policy that was sure from the beginning has nothing to lose."""
_SPEAKING_ENTROPY = 0.3
_NEWEST = 3
"""Updates whose mean is compared with the first, so that one odd batch says nothing."""
MOST_FORGOTTEN = 0.05
"""Share of held-out problems whose right answers may be lost while another measure rises."""
_SCORED = ("success", "correct")
"""Shares of right answers; `correct` where success asks for more than one."""
_NO_MEASURES = (
    "n", "lost", "low", "high", "deadlines", "last_version", "samples", "samples_lost",
)  # fmt: skip
"""Fields beside the measures of an evaluation."""


@dataclass(frozen=True, slots=True)
class HealthWarning:
    """Something is wrong with a run that its reward does not show."""

    cause: Cause
    words: str
    remedy: str

    @property
    def line(self) -> str:
        """The warning as a run prints it."""
        return f"WARNING: {self.words}. {self.remedy}."

    @property
    def sentences(self) -> str:
        """The warning as a page shows it."""
        return f"{self.words[0].upper()}{self.words[1:]}. {self.remedy}."


def warnings_of(rows: Sequence[MetricRow], max_staleness: int | None) -> list[HealthWarning]:
    """Warnings about a run, one for each cause. `max_staleness`: the largest policy lag that the
    run allows; None or 0: it has none."""
    found = [
        _masked(rows),
        _clipped(rows),
        _lag(rows, max_staleness or 0),
        _language(rows),
        _forgets(rows),
    ]
    return [warning for warning in found if warning is not None]


def _masked(rows: Sequence[MetricRow]) -> HealthWarning | None:
    row = _first_above(rows, "learner/masked_share", MOST_MASKED)
    if row is None:
        return None
    return HealthWarning(
        "masked",
        f"update {int(row['step'])} masked {row['learner/masked_share']:.0%} of its tokens: the "
        "policy has moved too far from the weights that sampled them, and little is learned of "
        "them",
        "Lower learner.lr (with an adapter also learner.adapter.alpha), or rollout.max_staleness",
    )


def _clipped(rows: Sequence[MetricRow]) -> HealthWarning | None:
    row = _first_above(rows, "learner/clip_share", MOST_MASKED)
    if row is None:
        return None
    return HealthWarning(
        "clipped",
        f"update {int(row['step'])} clipped {row['learner/clip_share']:.0%} of its tokens: later "
        "minibatches find the policy outside of the trust region",
        "Lower learner.lr or trainer.minibatches",
    )


def _first_above(rows: Sequence[MetricRow], metric: str, bound: float) -> MetricRow | None:
    return next((row for row in rows if row.get(metric, 0.0) > bound), None)


def _lag(rows: Sequence[MetricRow], most: int) -> HealthWarning | None:
    """Lag at its maximum over several updates, and which side is waited for."""
    updates = [row for row in rows if "staleness/mean" in row]
    for end in range(_LAG_UPDATES, len(updates) + 1) if most else ():
        window = updates[end - _LAG_UPDATES : end]
        lag = fmean(row["staleness/mean"] for row in window)
        if lag >= _LAG_SHARE * most:
            return _lag_warning(window, lag, most)
    return None


def _lag_warning(window: Sequence[MetricRow], lag: float, most: int) -> HealthWarning:
    waited_s = fmean(row.get("learner/waited_s", 0.0) for row in window)
    step_s = fmean(row.get(STEP_S, 0.0) for row in window)
    where = f"the policy lag was {lag:.1f} of at most {most} versions in updates "
    where += f"{int(window[0]['step'])} to {int(window[-1]['step'])}"
    if waited_s > step_s:
        return HealthWarning(
            "lag",
            f"{where}, and the learner waits for generation: {waited_s:.1f} s for a batch, "
            f"{step_s:.1f} s for a step",
            "Make generation faster (policy.threads, policy.servers, shorter replies), or have "
            "fewer episodes in flight (rollout.in_flight)",
        )
    return HealthWarning(
        "lag",
        f"{where}, and generation waits for the learner: {step_s:.1f} s for a step, "
        f"{waited_s:.1f} s for a batch",
        "Make the learner faster (learner.threads, a device of its own), or lower "
        "rollout.max_staleness, which makes generation wait for fresher weights",
    )


def _language(rows: Sequence[MetricRow]) -> HealthWarning | None:
    """Signs that the policy's language degraded, at the first row that shows one."""
    logprobs: list[float] = []
    entropies: list[float] = []
    for end, row in enumerate(rows, 1):
        logprobs += _values([row], REFERENCE_LOGPROB)
        entropies += _values([row], "learner/entropy")
        signs = [*_reference_signs(logprobs), *_entropy_signs(entropies)]
        if signs:
            signs += _length_signs(rows[:end])
            return HealthWarning(
                "language",
                f"language collapses after {int(row['step'])} updates{_beside_reward(rows[:end])}: "
                + "; ".join(signs),
                "Do not trust the reward: read replies in the report, lower learner.lr (with an "
                "adapter also learner.adapter.alpha), or hold the policy to its first weights "
                "(trainer.kl_coef)",
            )
    return None


def _reference_signs(logprobs: Sequence[float]) -> Iterator[str]:
    if len(logprobs) > 1 and logprobs[0] - logprobs[-1] > MOST_REFERENCE_DROP:
        yield (
            f"the log-prob of the policy's first replies fell from {logprobs[0]:.2f} to "
            f"{logprobs[-1]:.2f} a token"
        )


def _entropy_signs(entropies: Sequence[float]) -> Iterator[str]:
    if len(entropies) <= _NEWEST:
        return
    first, last = entropies[0], fmean(entropies[-_NEWEST:])
    fell = first >= _SPEAKING_ENTROPY and last < _COLLAPSED_ENTROPY * first
    if fell or last - first > MOST_ENTROPY_RISE:
        yield f"its entropy went from {first:.2f} to {last:.2f} nats"


def _length_signs(rows: Sequence[MetricRow]) -> Iterator[str]:
    values = _values(rows, REPLY_TOKENS)
    if len(values) > 1:
        yield f"replies have {values[-1]:.0f} tokens, {values[0]:.0f} at first"


def _beside_reward(rows: Sequence[MetricRow]) -> str:
    for metric, name in ((HELDOUT_REWARD, "held-out reward"), ("train/reward", "reward")):
        values = _values(rows, metric)
        if len(values) > 1 and values[-1] > values[0]:
            return f" while the {name} rose from {values[0]:.2f} to {values[-1]:.2f}"
    return ""


def _forgets(rows: Sequence[MetricRow]) -> HealthWarning | None:
    """Right answers lost between the first held-out evaluation and the last one of as many tasks,
    while another held-out measure rose."""
    evaluations = [row for row in rows if HELDOUT_SUCCESS in row]
    if not evaluations:
        return None
    first = evaluations[0]
    last = [row for row in evaluations if row.get(HELDOUT_N) == first.get(HELDOUT_N)][-1]
    changes = {
        name: last[name] - first[name] for name in first if name in last and _is_measure(name)
    }
    risen = [name for name, change in changes.items() if change > 0]
    fallen = [name for name, by in changes.items() if _is_of_answers(name) and by < -MOST_FORGOTTEN]
    if not (risen and fallen):
        return None
    most = max(risen, key=lambda name: changes[name])
    lost = ", ".join(f"{name} {first[name]:.0%} to {last[name]:.0%}" for name in fallen)
    return HealthWarning(
        "forgets",
        f"right answers on held-out problems fell by more than {100 * MOST_FORGOTTEN:.0f} points "
        f"between updates {int(first['step'])} and {int(last['step'])} ({lost}) while {most} rose "
        f"from {first[most]:.3g} to {last[most]:.3g}",
        "Do not take the rise for progress: mix in the problems that are lost (env=[A,B]), lower "
        "learner.lr, or hold the policy to its first weights (trainer.kl_coef)",
    )


def _is_of_answers(name: str) -> bool:
    """Whether a share of held-out tasks says how many were answered rightly."""
    return name.rpartition("/")[2] in _SCORED


def _is_measure(name: str) -> bool:
    """Whether a metric is a mean over held-out tasks: of all, of an environment, or elsewhere.
    Families are small: chance moves them by more."""
    head, _, score = name.rpartition("/")
    is_whole = head == "heldout" or head.startswith(ALSO_PREFIX) or (
        head.startswith(ENV_PREFIX) and head.endswith("/heldout")
    )  # fmt: skip
    return is_whole and not score.endswith(("_low", "_high")) and score not in _NO_MEASURES


def _values(rows: Sequence[MetricRow], metric: str) -> list[float]:
    return [row[metric] for row in rows if math.isfinite(row.get(metric, math.nan))]
