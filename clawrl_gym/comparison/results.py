"""Results of runs: held-out measures of every environment over updates, of all seeds together.

A measure is `ENVIRONMENT SCORE`, such as `conversation liked`. Only finished runs count.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field

from clawrl_gym.comparison.plan import PlannedRun, episodes_per_update
from clawrl_gym.comparison.record import RunRecord
from clawrl_gym.comparison.scores import Measured, heldout_scores, read_measured
from clawrl_gym.comparison.teacher_probe import ProbeRow, read_probe
from clawrl_gym.core.errors import StoreError
from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.core.metrics import (
    ENV_PREFIX,
    HELDOUT_LOST,
    METRICS_FILE,
    MetricRow,
    by_step,
)
from clawrl_gym.store import StoreReader

_MAIN_SCORES = {"conversation": "liked"}
"""Main score of an environment's recipes, where it is not success."""
Curve = dict[int, float]
"""Value by update."""


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A planned run, and how it and what was measured of it went."""

    run: PlannedRun
    record: RunRecord
    baseline: RunRecord
    after: RunRecord | None
    """Record of the measurement; None: nothing is measured of a run that failed."""
    probe: RunRecord | None = None
    """Record of the probe; None: it learns from no hints."""

    @property
    def failures(self) -> dict[str, str]:
        """Why, by what failed."""
        records: dict[str, RunRecord | None] = {
            self.run.name: self.record,
            self.run.baseline.name: self.baseline,
            self.run.after.name: self.after,
        }
        if self.run.probe is not None:
            records[self.run.probe.name] = self.probe
        return {
            name: record.failure
            for name, record in records.items()
            if record is not None and not record.finished
        }


@dataclass(frozen=True, slots=True)
class RunResult:
    """One finished run."""

    seed: int
    heldout: dict[str, Curve]
    """Held-out curves by measure."""
    training: dict[str, Curve]
    """Curves of episodes sampled since the update before, by measure."""
    lost: int = 0
    """Tasks of all its held-out evaluations that infrastructure lost; in no share."""
    after: Measured = field(default_factory=Measured)
    """Scores of its last weights."""
    tokens: int = 0
    """Tokens that its updates learned from."""


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
    """Why, by what failed."""
    planned: int = 0
    """Runs that there should be."""
    before: Measured = field(default_factory=Measured)
    """Scores of the policy that all its runs began with."""
    model: str = ""
    """The policy that they began with."""
    probe: tuple[ProbeRow, ...] = ()
    """Teacher probe of that policy; empty where nothing is learned from hints."""

    @property
    def episodes(self) -> int:
        """Episodes that each run trained on."""
        return self.steps * self.episodes_per_update

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
        """Curves of sampled episodes; each value is the mean of up to `window` updates."""
        curves = [smooth(run.training.get(measure, {}), window) for run in self.runs]
        return points_of(curves)

    def reached(self, target: float) -> int | None:
        """The first update at which the main measure's mean was the target; None for never."""
        return next((p.step for p in self.curve(self.main) if p.mean >= target), None)

    def less(self, baseline: RecipeResult) -> tuple[float, ...]:
        """Last main measure less that of another recipe, seed by seed."""
        subtrahends = {run.seed: last(run.heldout.get(self.main, {})) for run in baseline.runs}
        minuends = {run.seed: last(run.heldout.get(self.main, {})) for run in self.runs}
        pairs = [(own, subtrahends.get(seed)) for seed, own in sorted(minuends.items())]
        return tuple(a - b for a, b in pairs if a is not None and b is not None)


def measures_of(results: Sequence[RecipeResult]) -> list[str]:
    """All measures, those that recipes are after first."""
    measures = list(dict.fromkeys(name for recipe in results for name in recipe.measures))
    return sorted(measures, key=lambda name: name not in {recipe.main for recipe in results})


def read_results(ended: Sequence[EndedRun]) -> list[RecipeResult]:
    """The recipes in their order."""
    results = []
    for name in dict.fromkeys(one.run.recipe for one in ended):
        own = [one for one in ended if one.run.recipe == name]
        first, config = own[0].run, own[0].run.config
        before = read_measured(first.baseline)
        results.append(
            RecipeResult(
                name=name,
                env=first.env_name,
                problems_per_update=config.rollout.groups,
                episodes_per_update=episodes_per_update(config),
                steps=config.trainer.steps,
                runs=[_read(one.run, before) for one in own if one.record.finished],
                wall_s=[one.record.wall_s for one in own if one.record.finished],
                failures={name: why for one in own for name, why in one.failures.items()},
                planned=len(own),
                before=before,
                model=config.policy.model,
                probe=tuple(read_probe(first.probe)) if first.probe is not None else (),
            )
        )
    return results


def _read(run: PlannedRun, before: Measured) -> RunResult:
    rows = by_step(read_json_lines(run.folder / METRICS_FILE))
    after = read_measured(run.after)
    heldout: dict[str, Curve] = {}
    for name, value in before.values.items():
        heldout.setdefault(name, {})[0] = value
    for name, value in after.values.items():
        heldout.setdefault(name, {})[run.steps] = value
    training: dict[str, Curve] = {}
    for row in rows:
        step = int(row["step"])
        for name, value in heldout_scores(row, run.env_name, run.trained_on).items():
            heldout.setdefault(name, {})[step] = value
    sources = {run.env_name: "train"}
    sources |= {column: f"{ENV_PREFIX}{name}/train" for name, column in run.trained_on.items()}
    for name in heldout:
        env, _, score = name.partition(" ")
        if env in sources:
            metric = f"{sources[env]}/{score}"
            training[name] = {int(row["step"]): row[metric] for row in rows if metric in row}
    lost = sum(map(_lost, rows)) + after.lost
    return RunResult(run.seed, heldout, training, lost, after, _tokens(run))


def _tokens(run: PlannedRun) -> int:
    """Tokens of its updates; 0 where its store cannot be read."""
    with contextlib.suppress(StoreError, sqlite3.DatabaseError):
        reader = StoreReader(run.folder)
        try:
            return sum(update.tokens for update in reader.updates())
        finally:
            reader.close()
    return 0


def _lost(row: MetricRow) -> int:
    """Lost tasks of the evaluation after an update."""
    return int(row.get(HELDOUT_LOST, 0))


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
