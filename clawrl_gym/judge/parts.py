"""Parts that the `from_config` of judges and of hint sources is given."""

from __future__ import annotations

from typing import Protocol

from clawrl_gym.config import JudgeConfig
from clawrl_gym.judge.interface import Judge
from clawrl_gym.judge.models.chat_models import ChatModel
from clawrl_gym.judge.models.endpoint import JudgeEndpoint


class JudgeParts(Protocol):
    """Makes what a judge needs; whatever it opens is closed with the run."""

    hints: bool
    """Verdicts shall come with hints of the judge's own."""

    def judge(self, name: str, config: JudgeConfig) -> Judge:
        """Make another judge, by name or import path."""
        ...

    def rules(self, config: JudgeConfig) -> Judge | None:
        """The judge that needs no model, to compare with; None without rules."""
        ...

    def chat_model(self, config: JudgeConfig) -> ChatModel:
        """The model at `base_url`, else the run's own policy."""
        ...

    def endpoint(self, config: JudgeConfig) -> JudgeEndpoint:
        """The server at `base_url`."""
        ...
