"""Configuration of the bench of recipes."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from clawrl_gym.config.part import Part
from clawrl_gym.core.processes.controls import Control


class BenchConfig(Part):
    """The recipes to compare, the seeds of each, and the environments to measure on."""

    experiment: tuple[str, ...] = Field(
        ("personal_binary", "personal_opd", "personal_hybrid", "general_terminal_plain"),
        min_length=1,
    )
    """Options of conf/experiment/, each a recipe: experiment=personal_binary,personal_opd."""
    controls: tuple[Control, ...] = ()
    """Controls to run beside every recipe that has what the control makes worthless:
    controls=shuffled_rewards,irrelevant_hints,random_hints."""
    seeds: int = Field(3, ge=1)
    """Runs of each recipe. All recipes get the same seeds, 0 and up: differences are paired."""
    matrix: tuple[str, ...] = ("conversation", "terminal_plain")
    """Options of conf/env/ on whose held-out tasks every recipe is measured after training, and the
    policy it began with once for all: skills learned and forgotten elsewhere. The environments that
    recipes train on are always measured."""
    episodes: int | None = Field(None, ge=1)
    """Training episodes of each run, the same for every recipe, to the nearest number of updates.
    None: each recipe's own `trainer.steps`."""
    dir: str = "runs/bench"
    """Folder for the runs, bench.json, bench.md, bench.html and bench_matrix.svg. Finished work in
    it is kept."""
    overrides: tuple[str, ...] = ()
    """KEY=VALUE for every run: everything on the command line that is not a key of the bench."""
    target: float = Field(0.8, gt=0, le=1)
    """Success for which the bench counts the updates and training problems that a recipe needed."""
    run_timeout_s: float = Field(14_400.0, gt=0)
    """Seconds after which a run, or a measurement, is stopped and has failed."""
    dry_run: bool = False
    """Print the resolved configuration and exit."""

    @model_validator(mode="after")
    def _nothing_twice(self) -> Self:
        if "none" in self.controls:
            raise ValueError("got controls with 'none', expected each recipe's controls alone")
        lists: dict[str, tuple[str, ...]] = {
            "experiment": self.experiment, "controls": self.controls, "matrix": self.matrix,
        }  # fmt: skip
        for key, names in lists.items():
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"got {key} {twice[0]!r} twice, expected each once")
        return self
