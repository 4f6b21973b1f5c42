"""Stages of a run's episodes: an environment, and the agent that acts in it.

A run of one environment has one stage, whose name is empty; a mixture has one for each of its
environments, and `TaskRef.env` says which a task belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clawrl_gym.config import AgentConfig, EnvConfig
from clawrl_gym.rollout.episodes.episode import EpisodeLimits


@dataclass(frozen=True, slots=True)
class Stage:
    """One environment with its agent."""

    env: EnvConfig
    agent: AgentConfig
    timeout_s: float
    """Seconds of one episode."""
    envs_per_worker: int | None = None
    """Most episodes here that a worker runs at a time; None: as many as it has slots."""

    @property
    def limits(self) -> EpisodeLimits:
        return EpisodeLimits(self.env.max_turns, self.timeout_s)


Stages = Mapping[str, Stage]
"""Stages by the environment's name in the run."""


def one_stage(env: EnvConfig, agent: AgentConfig | None = None, timeout_s: float = 120.0) -> Stages:
    """The stages of a run of one environment."""
    return {"": Stage(env, agent or AgentConfig(), timeout_s)}


def limits_of(stages: Stages) -> dict[str, EpisodeLimits]:
    """Limits of an episode, by stage."""
    return {name: stage.limits for name, stage in stages.items()}


def places_of(stages: Stages) -> dict[str, int]:
    """The stages of which a worker has fewer environments than slots, and how many."""
    counts = ((name, stage.envs_per_worker) for name, stage in stages.items())
    return {name: count for name, count in counts if count is not None}


def resources_of(stages: Stages) -> tuple[str, ...]:
    """Ray's names of the resources that a node of a cluster needs to hold all stages."""
    resources = {stage.env.node_resource for stage in stages.values()}
    return tuple(sorted(resource for resource in resources if resource is not None))
