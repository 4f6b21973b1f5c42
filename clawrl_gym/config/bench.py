"""Configuration of the bench of recipes."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from clawrl_gym.config.part import Part


class BenchConfig(Part):
    """Which recipes are compared, over which seeds."""

    experiment: tuple[str, ...] = Field(
        ("personal_binary", "personal_opd", "personal_hybrid", "general_terminal"), min_length=1
    )
    """Options of conf/experiment/, each a recipe: experiment=personal_binary,personal_opd."""
    seeds: int = Field(3, ge=1)
    """Runs of each recipe. All recipes get the same seeds, 0 and up: differences are paired."""
    dir: str = "runs/bench"
    """Where the runs, bench.json, bench.md and bench.html go. Finished runs in it are kept."""
    environments: tuple[str, ...] = ("conversation", "terminal")
    """Options of conf/env/ whose held-out tasks every recipe is measured on, before and after:
    what was forgotten shows."""
    overrides: tuple[str, ...] = ()
    """KEY=VALUE for every run; whatever stands on the command line and is no key of the bench."""
    target: float = Field(0.8, gt=0, le=1)
    """How many updates and training problems a recipe needed to reach this is counted."""
    run_timeout_s: float = Field(14_400.0, gt=0)
    """A run that takes longer is stopped and has failed."""
    dry_run: bool = False
    """Print the resolved configuration and end."""

    @model_validator(mode="after")
    def _no_recipe_twice(self) -> Self:
        twice = sorted({name for name in self.experiment if self.experiment.count(name) > 1})
        if twice:
            raise ValueError(f"got experiment {twice[0]!r} twice, expected each recipe once")
        return self
