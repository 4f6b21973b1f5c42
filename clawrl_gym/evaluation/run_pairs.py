"""A training run beside its control: what both ended with, task by task.

Before and after alone mislead: a policy also drifts where there is nothing to learn. A control
(`control=shuffled_rewards`) drifts as well and learns nothing, so what counts is the paired
difference of the two over the same held-out tasks, of greedy replies and of sampled ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.intervals import Difference, reward_difference
from clawrl_gym.core.metrics import HELDOUT_FILE, rewards_by_step, solved_by_step
from clawrl_gym.evaluation.settings import SETTINGS_FILE
from clawrl_gym.ui.text import number, reward_change

Scores = Mapping[int, Mapping[str, float]]
"""Scores by the number of updates before an evaluation, and by task."""


@dataclass(frozen=True, slots=True)
class MeasurePair:
    """One measure of a run and of its control."""

    name: str
    run: tuple[float, float]
    """Means of the first and of the last evaluation, over the tasks that both runs end with."""
    control: tuple[float, float]
    difference: Difference
    """The run's final result, less the control's."""

    def line(self, run: str, control: str) -> str:
        """For people."""
        one, other = (f"{number(a)} → {number(b)}" for a, b in (self.run, self.control))
        clear = "" if self.difference.is_clear else ", not distinguishable"
        return (
            f"{self.name:<16} {run} {one}, {control} {other}; difference "
            f"{reward_change(self.difference)}, n = {self.difference.tasks}{clear}"
        )


@dataclass(frozen=True, slots=True)
class RunPair:
    """A run and a control."""

    run: Path
    control: Path
    measures: tuple[MeasurePair, ...]
    missing: tuple[str, ...]
    """Measures that not both have."""

    def summary(self) -> str:
        """A line a measure."""
        names = (
            (self.run.resolve().name, self.control.resolve().name)
            if self.run.resolve().name != self.control.resolve().name
            else (str(self.run), str(self.control))
        )
        lines = [measure.line(*names) for measure in self.measures]
        lines += [
            f"{name:<16} not measured by both runs"
            + ("; eval.sampled=true measures it" if name.startswith("sampled") else "")
            for name in self.missing
        ]
        return "\n".join(lines)


def is_run(folder: Path) -> bool:
    """Whether a folder is a training run's that has measured held-out tasks."""
    return (folder / HELDOUT_FILE).exists() and not (folder / SETTINGS_FILE).exists()


def compare_runs(folders: Sequence[Path]) -> list[RunPair]:
    """The first run beside each of the others. Raises ConfigError for what cannot be compared."""
    if len(folders) < 2 or len({one.resolve() for one in folders}) < len(folders):
        given = ", ".join(map(str, folders)) or "nothing"
        raise ConfigError(f"got {given} to compare, expected a run and one or more controls of it")
    return [_pair(folders[0], control) for control in folders[1:]]


def _pair(run: Path, control: Path) -> RunPair:
    measures, missing = [], []
    ours, theirs = _measures(run), _measures(control)
    for name, own in ours.items():
        pair = _measure_pair(name, own, theirs[name])
        if pair is None:
            missing.append(name)
        else:
            measures.append(pair)
    if not measures:
        raise ConfigError(
            f"got {run} and {control}, which end with no held-out task in common, expected runs of "
            "the same env and seed, each with a held-out evaluation (eval.tasks)"
        )
    return RunPair(run, control, tuple(measures), tuple(missing))


def _measures(folder: Path) -> dict[str, Scores]:
    solved = {
        step: {task: float(one) for task, one in own.items()}
        for step, own in solved_by_step(folder).items()
    }
    return {
        "greedy success": solved,
        "greedy reward": rewards_by_step(folder, "reward"),
        "sampled reward": rewards_by_step(folder, "sampled_reward"),
    }


def _measure_pair(name: str, run: Scores, control: Scores) -> MeasurePair | None:
    """Compare a run with its control; None where the last evaluations have no task in common."""
    if not run or not control:
        return None
    ours, theirs = run[max(run)], control[max(control)]
    difference = reward_difference(theirs, ours)
    if difference is None:
        return None
    both = ours.keys() & theirs.keys()
    return MeasurePair(name, _ends(run, both), _ends(control, both), difference)


def _ends(scores: Scores, tasks: set[str]) -> tuple[float, float]:
    first, last = scores[min(scores)], scores[max(scores)]
    started = [first[task] for task in tasks if task in first] or [float("nan")]
    return fmean(started), fmean(last[task] for task in tasks)
