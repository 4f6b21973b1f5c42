"""Configuration of supervised fine-tuning (SFT): its data and its length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from clawrl_gym.config.envs import AgentConfig, AnyEnvConfig, usual_env_config
from clawrl_gym.config.learning import LearnerConfig
from clawrl_gym.config.part import Part
from clawrl_gym.config.policy import PolicyConfig
from clawrl_gym.config.run import RunFolderConfig

FULL_LR, ADAPTER_LR = 2e-5, 2e-4
"""Learning rates of trl's SFTTrainer: ten times as much for an adapter, as its docs advise."""


def is_supervised(values: Mapping[str, object]) -> bool:
    """Whether the values are the configuration of a supervised run, of any version."""
    return "learn_on" in values


def _several(value: object) -> object:
    """Turn a single name into a list."""
    return (value,) if isinstance(value, str) else value


class EpisodesConfig(Part):
    """The episodes of a run to imitate; held-out ones never are."""

    min_reward: float = 1.0
    """Lowest reward of an episode."""
    per_task: int | None = Field(None, ge=1)
    """Most episodes of one task: those with the highest reward, of equals the newest. None: all."""


class SftConfig(Part):
    """One supervised run, whole."""

    data: Annotated[tuple[str, ...], BeforeValidator(_several)] = ()
    """Chats (a .jsonl or .parquet file, or a folder of them) and runs (runs/NAME), which may stand
    without the key."""
    demonstrations: int = Field(0, ge=0)
    """Episodes of `env` that its oracle plays to be imitated, beside `data`."""
    seed: int = Field(0, ge=0)
    """Seed of the order of the data, of an adapter's first weights and of demonstrations."""
    run: RunFolderConfig = RunFolderConfig()
    resume: str | None = None
    """Folder of the supervised run to resume."""
    dry_run: bool = False
    """Print the resolved configuration and exit."""
    learn_on: Literal["all", "last"] = "all"
    """Replies of a conversation to imitate; with `last` the others are only read."""
    heldout: float = Field(0.05, ge=0, lt=1)
    """Share of the data that is held out: its loss is printed before, during and after. A hash of
    the conversation's beginning, of an episode its task, decides; the seed does not."""
    epochs: int = Field(3, ge=1)
    """Passes over the data."""
    steps: int | None = Field(None, ge=1)
    """Updates; None: as many as `epochs` take."""
    batch: int = Field(16, ge=1)
    """Sequences of one update."""
    every: int | None = Field(None, ge=1)
    """Updates between held-out losses, with a checkpoint each; None: an epoch."""
    max_tokens_per_pack: int = Field(2048, ge=128)
    """Tokens of one packed forward pass."""
    episodes: EpisodesConfig = EpisodesConfig()
    policy: PolicyConfig = PolicyConfig()
    learner: LearnerConfig = LearnerConfig(lr=FULL_LR)
    env: AnyEnvConfig = Field(default_factory=usual_env_config)
    """The environment of demonstrations."""
    agent: AgentConfig = AgentConfig()

    @model_validator(mode="before")
    @classmethod
    def _has_a_rate(cls, values: object) -> object:
        """For `learner.lr` null, fill in the rate that suits the trained weights."""
        learner = values.get("learner") if isinstance(values, Mapping) else None
        if not isinstance(values, Mapping) or not isinstance(learner, Mapping):
            return values
        if learner.get("lr") is not None:
            return values
        rate = FULL_LR if learner.get("adapter") is None else ADAPTER_LR
        return {**values, "learner": {**learner, "lr": rate}}
