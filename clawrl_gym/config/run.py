"""The whole configurations of the commands: made by `compose.py`, and taken apart by the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, model_validator

from clawrl_gym.config.cluster import RayConfig
from clawrl_gym.config.curriculum import CurriculumConfig
from clawrl_gym.config.envs import AgentConfig, AnyEnvConfig, usual_env_config
from clawrl_gym.config.judge import JudgeConfig
from clawrl_gym.config.learning import (
    EvalConfig,
    LearnerConfig,
    RolloutConfig,
    TrainerConfig,
)
from clawrl_gym.config.live import LiveConfig
from clawrl_gym.config.mixture import DomainConfig
from clawrl_gym.config.part import Part
from clawrl_gym.config.policy import GatewayConfig, PolicyConfig
from clawrl_gym.core.plugins import LOGGERS
from clawrl_gym.core.processes.controls import Control


class RunFolderConfig(Part):
    """The place of the run's folder."""

    root: str = "runs"
    """Parent of the run's folder when `dir` is not given."""
    name: str | None = None
    """Folder name below `root`; None makes one from environment, policy and time."""
    dir: str | None = None
    """The folder itself; wins over `root` and `name`."""


class CommandConfig(Part):
    """Shared settings of training and serving."""

    seed: int = Field(0, ge=0)
    run: RunFolderConfig = RunFolderConfig()
    resume: str | None = None
    """Folder of the run to resume."""
    searchpath: tuple[str, ...] = ()
    """Places of groups beside conf/; --config-dir DIR sets it."""
    dry_run: bool = False
    """Print the resolved configuration and exit."""
    logger: str = "none"
    """Destination of metrics in addition to metrics.jsonl: tensorboard, wandb, or a class of your
    own: package.module:Name."""
    logger_options: dict[str, object] = Field(default_factory=dict)
    """Options of a logger of your own, as its `Options` say."""
    ui: Literal["auto", "live", "line"] = "auto"
    """`auto`: the live view on a terminal, one line a step elsewhere."""
    policy: PolicyConfig = PolicyConfig()
    gateway: GatewayConfig = GatewayConfig()
    ray: RayConfig = RayConfig()
    judge: JudgeConfig = JudgeConfig()
    trainer: TrainerConfig = TrainerConfig()
    learner: LearnerConfig = LearnerConfig()
    live: LiveConfig = LiveConfig()

    @model_validator(mode="after")
    def _logger_is_there(self) -> Self:
        LOGGERS.checked_options(self.logger, self.logger_options)
        return self

    @model_validator(mode="after")
    def _trainable_sampling(self) -> Self:
        sampling = self.policy.sampling
        if sampling.top_p < 1 or sampling.temperature == 0:
            raise ValueError(
                f"got policy.sampling with temperature {sampling.temperature:g} and top_p "
                f"{sampling.top_p:g}, expected a temperature above 0 and top_p 1: log-probs of "
                "cut distributions cannot be compared with the learner's"
            )
        return self

    @property
    def judges(self) -> tuple[JudgeConfig, ...]:
        """The judges of all environments."""
        return (self.judge,)


class RunConfig(CommandConfig):
    """One training run, whole."""

    env: AnyEnvConfig = Field(default_factory=usual_env_config)
    """The environment; in a mixture the first one's, and so is `agent`."""
    agent: AgentConfig = AgentConfig()
    mixture: dict[str, DomainConfig] = Field(default_factory=dict)
    """Environments that are trained on together, by name: env=[terminal,toolcall], with
    mixture={terminal:2,toolcall:1} for weights and mixture.NAME.KEY for the rest."""
    curriculum: CurriculumConfig = CurriculumConfig()
    rollout: RolloutConfig = RolloutConfig()
    eval: EvalConfig = EvalConfig()
    control: Control = "none"
    """A control run for comparison, which has nothing to learn from: `shuffled_rewards` permutes
    rewards and verdicts within a group (groups of one get those of the group before),
    `irrelevant_hints` gives hints of other tasks, `random_hints` words of other tasks' requests. It
    is called a control wherever it is shown."""

    @property
    def domains(self) -> Mapping[str, DomainConfig]:
        """The trained environments by name: the mixture, or the one, whose name is empty."""
        alone = DomainConfig.model_construct(
            env=self.env, agent=self.agent, judge=self.judge, curriculum=self.curriculum
        )
        return self.mixture or {"": alone}

    @property
    def judges(self) -> tuple[JudgeConfig, ...]:
        return tuple(domain.judge for domain in self.domains.values())

    @property
    def env_name(self) -> str:
        """The trained environments as a name, also of folders: `terminal`, `terminal+toolcall`."""
        return "+".join(self.mixture) or str(self.env.type)


class ServeConfig(CommandConfig):
    """One `serve`, whole."""

    learn: bool = True
    """False: serve and record only."""
    print_config: bool = False
    """Write the `openclaw.json` snippet to standard output and exit."""
    print_unit: bool = False
    """Write the systemd unit of this installation and these overrides to standard output and
    exit."""
