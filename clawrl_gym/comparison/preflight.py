"""Checks before the first run of a bench: every recipe as `train` would check it, every environment
of the matrix as `evaluate` would."""

from __future__ import annotations

from pathlib import Path

from clawrl_gym.comparison.measurement import folder_of, is_measured
from clawrl_gym.comparison.plan import PlannedRun, baselines_of, plan_runs, quoted
from clawrl_gym.comparison.record import read_record
from clawrl_gym.comparison.runner import check_settings
from clawrl_gym.config import BenchConfig, RunConfig
from clawrl_gym.core.errors import ConfigErrors
from clawrl_gym.preflight.preflight import Preflight, preflight_evaluation, preflight_training
from clawrl_gym.preflight.problems import Problems
from clawrl_gym.recipe.model_size import compose_sized
from clawrl_gym.run_folder.folder import RunFolder

RecipePlans = dict[str, Preflight[RunConfig]]
"""Plans by recipe; those of which every run has ended are left out."""


def preflight_comparison(config: BenchConfig) -> tuple[list[PlannedRun], RecipePlans]:
    """All runs of the bench. Raises ConfigErrors with all that would keep one from running."""
    runs = plan_runs(config)
    check_settings(runs)
    problems = Problems()
    with problems.noted():
        RunFolder(runs[0].folder.parent.parent).check_usable()
    plans: RecipePlans = {}
    for run in runs:
        record = read_record(run.record_file)
        if run.recipe in plans or (record is not None and record.finished):
            continue
        arguments = [*run.arguments, f"run.dir={quoted(_empty(run.folder))}"]
        try:
            plans[run.recipe] = preflight_training(compose_sized("train", arguments, RunConfig))
        except ConfigErrors as errors:
            problems.lines += [f"experiment {run.recipe!r}: {line}" for line in errors.lines]
            break
    for baseline in baselines_of(runs):
        for name, column in baseline.columns.items():
            if is_measured(column):
                continue
            place = column.run.model_copy(update={"dir": str(_empty(folder_of(column)))})
            try:
                preflight_evaluation(column.model_copy(update={"run": place}))
            except ConfigErrors as errors:
                problems.lines += [f"env={name}: {line}" for line in errors.lines]
    problems.raise_if_any()
    return runs, plans


def _empty(folder: Path) -> Path:
    """The folder as it will be: what is in its place makes room when its turn comes."""
    return folder.with_suffix(".again") if folder.exists() else folder
