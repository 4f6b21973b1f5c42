"""Configuration of judging a run's stored turns once more."""

from __future__ import annotations

from pydantic import Field

from clawrl_gym.config.judge import JudgeConfig
from clawrl_gym.config.part import Part


class RejudgeConfig(Part):
    """The turns to judge again, and the judge."""

    folder: str | None = None
    """The run whose turns are judged: runs/NAME, which may stand without its key."""
    turns: int | None = Field(None, ge=1)
    """Most turns, spread evenly over the run; None: all that a judge could read."""
    examples: int = Field(20, ge=0)
    """Turns shown on the page, of those whose verdict changed."""
    judge: JudgeConfig = JudgeConfig()
    dry_run: bool = False
    """Print the resolved configuration and exit."""
