"""The configuration of `ClawRL/Text-v0`, and what follows from it."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from clawrl_gym.envs.kind import RegisteredEnvConfig
from clawrl_gym.envs.text import GYM_CLASS, GYM_ID


class TextEnvConfig(RegisteredEnvConfig):
    """`ClawRL/Text-v0`: a request, one reply, and a grader."""

    gym_class: ClassVar[str] = GYM_CLASS
    usual_agent: ClassVar[str] = "text"

    type: Literal["text"] = "text"
    id: str = GYM_ID
    tasks: str = "length"
    """`length`: a reply of about so many characters."""
    lengths: list[int] | None = None
    """tasks=length: how many characters training and held-out tasks ask for; None:
    [20,40,80,160]."""
    heldout_lengths: list[int] | None = None
    """tasks=length: how many characters held-out tasks ask for besides; None: [30,60,120]."""
    max_turns: int = Field(1, ge=1, le=1)
    """The first reply ends an episode."""
