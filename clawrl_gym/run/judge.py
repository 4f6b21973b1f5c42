"""Builds the configured judge."""

from __future__ import annotations

from clawrl_gym.config import JudgeConfig
from clawrl_gym.judge.base import Judge


def build_judge(config: JudgeConfig) -> Judge | None:
    """None when turns are not judged: outcomes and explicit feedback remain."""
    if config.type == "none":
        return None
    from clawrl_gym.judge.rules import RuleJudge

    return RuleJudge(config)
