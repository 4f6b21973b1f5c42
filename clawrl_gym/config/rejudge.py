"""Configuration of judging a run's stored turns once more."""

from __future__ import annotations

from pydantic import Field

from clawrl_gym.config.judge import JudgeConfig
from clawrl_gym.config.part import Part


class RejudgeConfig(Part):
    """Which turns are judged again, and by whom."""

    folder: str | None = None
    """The run whose turns are judged: runs/NAME, which may stand without its key."""
    turns: int | None = Field(None, ge=1)
    """At most so many, spread evenly over the run; None: all that a judge could read."""
    examples: int = Field(20, ge=0)
    """Turns that the page shows of those whose verdict is another one now."""
    judge: JudgeConfig = JudgeConfig()
    dry_run: bool = False
    """Print the resolved configuration and end."""
