"""What runs reached: held-out measures of every environment over updates, of all seeds together.

A measure is `ENVIRONMENT SCORE`, such as `conversation personalization`. Only finished runs count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clawrl_gym.comparison.plan import PlannedRun
from clawrl_gym.comparison.record import RunRecord
from clawrl_gym.core.jsonl import read_json_lines
from clawrl_gym.core.metrics import (
    ALSO_PREFIX,
    ENV_PREFIX,
    HELDOUT_LOST,
    HELDOUT_OWN,
    HELDOUT_SUCCESS,
    METRICS_FILE,
    MetricRow,
    by_step,
)
from clawrl_gym.core.types import Json
from clawrl_gym.ui.text import HELDOUT_PREFIX

_MAIN_SCORES = {"conversation": "personalization"}
"""What a recipe of an environment is after, where it is not success."""
_NO_SCORES = frozenset(
    name.removeprefix(HELDOUT_PREFIX) for name in HELDOUT_OWN if name != HELDOUT_SUCCESS
)
_LOST = HELDOUT_LOST.removeprefix(HELDOUT_PREFIX)

Curve = dict[int, float]
"""Value by update."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """One finished run."""

    seed: int
    heldout: dict[str, Curve]
    """By measure."""
    training: dict[str, Curve]
    """Of sampled episodes since the update before, by measure."""
    lost: int = 0
    """Tasks of all its held-out evaluations that infrastructure lost; in no share."""


@dataclass(frozen=True, slots=True)
class SeedPoint:
    """A measure at one update, of every seed that has it."""

    step: int
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return sum(self.values) / len(self.values)

    @property
    def low(self) -> float:
        return min(self.values)

    @property
    def high(self) -> float:
        return max(self.values)


@dataclass(frozen=True, slots=True)
class RecipeResult:
    """One recipe over its seeds."""

    name: str
    env: str
    problems_per_update: int
    episodes_per_update: int
    steps: int
    runs: list[RunResult]
    wall_s: list[float]
    failures: dict[str, str]
    """Why, by run."""

    @property
    def main(self) -> str:
        """The measure that the recipe is after."""
        return f"{self.env} {_MAIN_SCORES.get(self.env, 'success')}"

    @property
    def measures(self) -> list[str]:
        return sorted({name for run in self.runs for name in run.heldout})

    def curve(self, measure: str) -> list[SeedPoint]:
        """A held-out measure over updates; only updates at which every run was measured."""
        return points_of([run.heldout.get(measure, {}) for run in self.runs])

    def training(self, measure: str, window: int = 1) -> list[SeedPoint]:
        """The same of sampled episodes; each value is the mean of up to `window` updates."""
        curves = [smooth(run.training.get(measure, {}), window) for run in self.runs]
        return points_of(curves)

    def reached(self, target: float) -> int | None:
        """The first update at which the main measure's mean was the target; None for never."""
        return next((p.step for p in self.curve(self.main) if p.mean >= target), None)

    def less(self, baseline: RecipeResult) -> tuple[float, ...]:
        """By how much the last main measure was above another recipe's, seed by seed."""
        subtrahends = {run.seed: last(run.heldout.get(self.main, {})) for run in baseline.runs}
        minuends = {run.seed: last(run.heldout.get(self.main, {})) for run in self.runs}
        pairs = [(own, subtrahends.get(seed)) for seed, own in sorted(minuends.items())]
        return tuple(a - b for a, b in pairs if a is not None and b is not None)


def measures_of(results: Sequence[RecipeResult]) -> list[str]:
    """All measures, those that recipes are after first."""
    measures = list(dict.fromkeys(name for recipe in results for name in recipe.measures))
    return sorted(measures, key=lambda name: name not in {recipe.main for recipe in results})


def read_results(ended: Sequence[tuple[PlannedRun, RunRecord]]) -> list[RecipeResult]:
    """The recipes in their order."""
    results = []
    for name in dict.fromkeys(run.recipe for run, _ in ended):
        own = [(run, record) for run, record in ended if run.recipe == name]
        config = own[0][0].config
        results.append(
            RecipeResult(
                name=name,
                env=config.env_name,
                problems_per_update=config.rollout.groups,
                episodes_per_update=config.rollout.groups * config.rollout.group_size,
                steps=config.trainer.steps,
                runs=[_read(run) for run, record in own if record.finished],
                wall_s=[record.wall_s for _, record in own if record.finished],
                failures={r.name: record.failure for r, record in own if not record.finished},
            )
        )
    return results


def _read(run: PlannedRun) -> RunResult:
    rows = by_step(read_json_lines(run.folder / METRICS_FILE))
    heldout: dict[str, Curve] = {}
    training: dict[str, Curve] = {}
    for row in rows:
        step = int(row["step"])
        for name, value in measured(row, run.config.env_name).items():
            heldout.setdefault(name, {})[step] = value
    for name in heldout:
        env, _, score = name.partition(" ")
        if env == run.config.env_name or env in run.config.mixture:
            metric = (
                f"{ENV_PREFIX}{env}/train/{score}"
                if env in run.config.mixture
                else f"train/{score}"
            )
            training[name] = {int(row["step"]): row[metric] for row in rows if metric in row}
    return RunResult(run.seed, heldout, training, sum(map(_lost, rows)))


def _lost(row: MetricRow) -> int:
    """In all evaluations after an update, those of other environments too."""
    prefixes = (HELDOUT_PREFIX, ALSO_PREFIX)
    return int(
        sum(
            value
            for name, value in row.items()
            if name.startswith(prefixes) and name.rpartition("/")[2] == _LOST
        )
    )


def measured(row: Json, env: str) -> dict[str, float]:
    """The held-out measures in a row of metrics; families are left out."""
    measures: dict[str, float] = {}
    for name, value in row.items():
        if name.startswith(HELDOUT_PREFIX):
            where, score = env, name.removeprefix(HELDOUT_PREFIX)
        elif name.startswith(ALSO_PREFIX):
            where, _, score = name.removeprefix(ALSO_PREFIX).partition("/")
        elif name.startswith(ENV_PREFIX) and "/heldout/" in name:
            where, _, score = name.removeprefix(ENV_PREFIX).partition("/heldout/")
        else:
            continue
        if score not in _NO_SCORES and "/" not in score and isinstance(value, int | float):
            measures[f"{where} {score}"] = float(value)
    return measures


def points_of(curves: Sequence[Curve]) -> list[SeedPoint]:
    """Curves as one, at the updates that all of them have."""
    if not curves:
        return []
    common = set(curves[0]).intersection(*curves[1:])
    return [SeedPoint(step, tuple(curve[step] for curve in curves)) for step in sorted(common)]


def smooth(curve: Curve, window: int) -> Curve:
    """Each value the mean of itself and those before it, up to `window` together."""
    steps = sorted(curve)
    smoothed = {}
    for index, step in enumerate(steps):
        near = [curve[s] for s in steps[max(0, index - window + 1) : index + 1]]
        smoothed[step] = sum(near) / len(near)
    return smoothed


def last(curve: Curve) -> float | None:
    """The value at the last update."""
    return curve[max(curve)] if curve else None
