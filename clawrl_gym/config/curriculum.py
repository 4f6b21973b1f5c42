"""Choice of a run's training tasks by the results of those before."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from clawrl_gym.config.part import Part


class CurriculumConfig(Part):
    """Curriculum of each environment by itself; held-out tasks are never chosen by it."""

    type: Literal["none", "pass_rate", "difficulty"] = "none"
    """`none`: all tasks equally often; `pass_rate`: by the chance that the episodes of a group
    differ, 1 - p^G - (1 - p)^G, from the pass rate p of the task and its family; `difficulty`:
    those of one level and, less often, of lower ones, where tasks say how difficult they are."""
    floor: float = Field(0.1, gt=0, le=1)
    """Relative frequency of a task that teaches nothing now, beside one that surely does."""
    memory: int = Field(64, ge=8)
    """pass_rate: episodes of a task or family in its rate, older ones fade; difficulty: episodes at
    a level before it may change."""
    raise_at: float = Field(0.75, gt=0, le=1)
    """difficulty: success from which the next level begins."""
    lower_at: float = Field(0.15, ge=0, lt=1)
    """difficulty: success up to which the previous level returns."""

    @model_validator(mode="after")
    def _rises_above_where_it_falls(self) -> Self:
        if self.lower_at >= self.raise_at:
            raise ValueError(
                f"got curriculum.lower_at={self.lower_at:g} and curriculum.raise_at="
                f"{self.raise_at:g}, expected the first below the second"
            )
        return self
