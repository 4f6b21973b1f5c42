"""A run's configuration as frozen objects: every key, its meaning, unit and default.

Each component receives its own part, never the whole. `compose.py` makes it from files and command
lines.
"""

from clawrl_gym.config.bench import BenchConfig
from clawrl_gym.config.cluster import RayConfig
from clawrl_gym.config.curriculum import CurriculumConfig
from clawrl_gym.config.envs import (
    AgentConfig,
    EnvConfig,
    SandboxConfig,
)
from clawrl_gym.config.evaluate import EndpointConfig, EvaluateConfig
from clawrl_gym.config.judge import HintConfig, JudgeConfig, ReplyRule, ResultRule
from clawrl_gym.config.learning import (
    AdapterConfig,
    DistillationConfig,
    EvalConfig,
    GuardsConfig,
    LearnerConfig,
    RolloutConfig,
    TrainerConfig,
)
from clawrl_gym.config.live import KindRule, LiveConfig
from clawrl_gym.config.loss import LossConfig
from clawrl_gym.config.mixture import DomainConfig
from clawrl_gym.config.part import Part
from clawrl_gym.config.policy import GatewayConfig, ImagesConfig, PolicyConfig, SamplingConfig
from clawrl_gym.config.rejudge import RejudgeConfig
from clawrl_gym.config.run import CommandConfig, RunConfig, RunFolderConfig, ServeConfig
from clawrl_gym.config.sft import EpisodesConfig, SftConfig

__all__ = [
    "AdapterConfig",
    "AgentConfig",
    "BenchConfig",
    "CommandConfig",
    "CurriculumConfig",
    "DistillationConfig",
    "DomainConfig",
    "EndpointConfig",
    "EnvConfig",
    "EpisodesConfig",
    "EvalConfig",
    "EvaluateConfig",
    "GatewayConfig",
    "GuardsConfig",
    "HintConfig",
    "ImagesConfig",
    "JudgeConfig",
    "KindRule",
    "LearnerConfig",
    "LiveConfig",
    "LossConfig",
    "Part",
    "PolicyConfig",
    "RayConfig",
    "RejudgeConfig",
    "ReplyRule",
    "ResultRule",
    "RolloutConfig",
    "RunConfig",
    "RunFolderConfig",
    "SamplingConfig",
    "SandboxConfig",
    "ServeConfig",
    "SftConfig",
    "TrainerConfig",
]
