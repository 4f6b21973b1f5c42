"""Configuration of the bench of recipes."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from clawrl_gym.config.part import Part
from clawrl_gym.core.controls import Control


class BenchConfig(Part):
    """Which recipes are compared, over which seeds, on which environments."""

    experiment: tuple[str, ...] = Field(
        ("personal_binary", "personal_opd", "personal_hybrid", "general_terminal_plain"),
        min_length=1,
    )
    """Options of conf/experiment/, each a recipe: experiment=personal_binary,personal_opd."""
    controls: tuple[Control, ...] = ()
    """Controls that every recipe is run with, too, beside itself, where it has what the control
    makes worthless: controls=shuffled_rewards,irrelevant_hints,random_hints."""
    seeds: int = Field(3, ge=1)
    """Runs of each recipe. All recipes get the same seeds, 0 and up: differences are paired."""
    matrix: tuple[str, ...] = ("conversation", "terminal_plain")
    """Options of conf/env/ whose held-out tasks every recipe is measured on, after training, and
    the policy that it began with once for all: what was learned elsewhere, and what was forgotten.
    The environments that recipes train on are measured in any case."""
    episodes: int | None = Field(None, ge=1)
    """Training episodes of each run, the same for every recipe: as many updates as come nearest.
    None: each recipe's own `trainer.steps`."""
    dir: str = "runs/bench"
    """Where the runs, bench.json, bench.md, bench.html and bench_matrix.svg go. What is done in it
    is kept."""
    overrides: tuple[str, ...] = ()
    """KEY=VALUE for every run; whatever stands on the command line and is no key of the bench."""
    target: float = Field(0.8, gt=0, le=1)
    """How many updates and training problems a recipe needed to reach this is counted."""
    run_timeout_s: float = Field(14_400.0, gt=0)
    """A run, or a measurement, that takes longer is stopped and has failed."""
    dry_run: bool = False
    """Print the resolved configuration and end."""

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
