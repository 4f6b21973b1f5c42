"""Held-out success of an adapter against all weights, after the same run with each.

    PYTHONPATH=. python bench/adapter_learning.py [--environments terminal toolcall conversation]
        [--trainers grpo hybrid] [--learners lora adamw] [--seeds 0 1 2] [--runs N] [KEY=VALUE ...]

Runs `python -m clawrl_gym.train` once for each environment, trainer, seed and learner, and prints
a Markdown table of what is there: success over all seeds with a 95 % interval (Wilson), and the
adapter's divided by that of all weights (Katz's interval of a ratio). Runs that are whole are not
repeated; `--runs` is how many are made now, 0 for the table alone.
"""

from __future__ import annotations

import argparse
import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import Any

from bench.main_job import run
from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.core.metrics import wilson

ENVIRONMENTS = {
    "terminal": ["trainer.steps=10"],
    "toolcall": ["trainer.steps=16"],
    "conversation": [
        "policy.model=tiny",
        "trainer.steps=8",
        "rollout.groups=12",
        "learner.lr=4e-4",
    ],
}
"""Updates enough for all weights to be near their best."""
TRAINERS = {"grpo": ["trainer=grpo"], "hybrid": ["trainer=hybrid", "judge=rule"]}
LEARNERS = ("lora", "adamw")
Z = 1.959964


@dataclass(frozen=True, slots=True)
class Job:
    """One run."""

    environment: str
    trainer: str
    seed: int
    learner: str

    def folder(self, out: Path) -> Path:
        return out / f"{self.environment}-{self.trainer}-{self.learner}" / f"seed{self.seed}"

    @property
    def overrides(self) -> list[str]:
        return [
            f"env={self.environment}", f"learner={self.learner}", *TRAINERS[self.trainer],
            *ENVIRONMENTS[self.environment], "eval.every=0",
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reached:
    """Held-out results of the seeds that are there."""

    before: float
    after: list[float]
    tasks: int
    """Tasks of each seed."""
    personalization: list[float]
    """After; empty where the environment measures no such thing."""

    @property
    def mean(self) -> float:
        return sum(self.after) / len(self.after)

    @property
    def successes(self) -> int:
        return round(self.mean * self.count)

    @property
    def count(self) -> int:
        return self.tasks * len(self.after)

    def __str__(self) -> str:
        low, high = wilson(self.successes, self.count)
        seeds = ", ".join(f"{100 * success:.0f}" for success in self.after)
        return f"{100 * self.mean:.1f} % ({100 * low:.0f} to {100 * high:.0f}; {seeds})"


def reached(jobs: list[Job], out: Path) -> Reached | None:
    """Success of some jobs; None where no run is whole."""
    ends = [_held_out(job.folder(out)) for job in jobs if (job.folder(out) / "wall_s").exists()]
    if not ends:
        return None
    last = [rows[-1] for rows in ends]
    return Reached(
        before=sum(rows[0]["heldout/success"] for rows in ends) / len(ends),
        after=[row["heldout/success"] for row in last],
        tasks=int(last[0]["heldout/n"]),
        personalization=[
            row["heldout/personalization"] for row in last if "heldout/personalization" in row
        ],
    )


def ratio(adapter: Reached, whole: Reached) -> str:
    """Ratio with the interval of its logarithm; half a failure is added where there is none."""
    variance = 0.0
    for reading in (adapter, whole):
        share = min(reading.mean, 1 - 0.5 / reading.count)
        variance += (1 - share) / (share * reading.count)
    quotient, width = adapter.mean / whole.mean, math.exp(Z * math.sqrt(variance))
    return f"{quotient:.3f} ({quotient / width:.2f} to {quotient * width:.2f})"


def _held_out(folder: Path) -> list[dict[str, Any]]:
    rows = read_json_lines(folder / "metrics.jsonl")
    return [row for row in rows if row.get("heldout/success") is not None]


def _line(environment: str, trainer: str, seeds: list[int], out: Path) -> Iterator[str]:
    readings = {
        learner: reached([Job(environment, trainer, seed, learner) for seed in seeds], out)
        for learner in LEARNERS
    }
    whole, adapter = readings["adamw"], readings["lora"]
    if whole is None or adapter is None:
        return
    cells = [environment, trainer, f"{100 * whole.before:.0f} %", str(whole), str(adapter)]
    yield " | ".join([*cells, ratio(adapter, whole)])
    if whole.personalization:
        style = [
            ", ".join(f"{value:.2f}" for value in reading.personalization)
            for reading in (whole, adapter)
        ]
        means = [sum(r.personalization) / len(r.personalization) for r in (whole, adapter)]
        cells = [f"{environment}, personalization", trainer, "", *style]
        yield " | ".join([*cells, f"{means[1] / means[0]:.2f}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--environments", nargs="+", default=list(ENVIRONMENTS))
    parser.add_argument("--trainers", nargs="+", default=list(TRAINERS))
    parser.add_argument("--learners", nargs="+", default=list(LEARNERS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=int, default=None, help="at most this many now")
    parser.add_argument("--out", type=Path, default=Path("runs/adapter_learning"))
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_args()
    combinations = product(options.seeds, options.trainers, options.environments, options.learners)
    jobs = [Job(environment, trainer, seed, learner)
            for seed, trainer, environment, learner in combinations]  # fmt: skip
    missing = [job for job in jobs if not (job.folder(options.out) / "wall_s").exists()]
    for job in islice(missing, options.runs):
        folder = job.folder(options.out)
        shutil.rmtree(folder, ignore_errors=True)  # a run that was ended halfway
        run(folder, job.seed, [*job.overrides, *options.overrides])
    print("| environment | trainer | before | all weights | adapter | ratio |")
    print("|---|---|---|---|---|---|")
    for environment, trainer in product(options.environments, options.trainers):
        for line in _line(environment, trainer, options.seeds, options.out):
            print(f"| {line} |")


if __name__ == "__main__":
    main()
