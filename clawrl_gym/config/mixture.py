"""A mixture of environments in one run: each with its agent, its judge and its weight."""

from __future__ import annotations

from pydantic import Field

from clawrl_gym.config.curriculum import CurriculumConfig
from clawrl_gym.config.envs import AgentConfig, AnyEnvConfig
from clawrl_gym.config.judge import JudgeConfig
from clawrl_gym.config.part import Part


class DomainConfig(Part):
    """One environment that a run trains on."""

    env: AnyEnvConfig
    agent: AgentConfig = AgentConfig()
    judge: JudgeConfig = JudgeConfig()
    """The judge of this environment's turns."""
    curriculum: CurriculumConfig = CurriculumConfig()
    weight: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Its share of the groups is this over the sum of all weights."""
    episode_timeout_s: float | None = Field(None, gt=0)
    """Seconds of an episode; None takes `rollout.episode_timeout_s`."""
    envs_per_worker: int | None = Field(None, ge=1)
    """Most of its episodes that one worker runs at a time; None: as many as the worker has room
    for. Browsers and containers take much memory, each."""
