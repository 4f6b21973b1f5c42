"""Estimate of a run's generating and learning, and of their time, before anything is measured."""

from __future__ import annotations

from dataclasses import dataclass

from clawrl_gym.config import CommandConfig, EvaluateConfig, RunConfig, ServeConfig
from clawrl_gym.inference.device import Device
from clawrl_gym.inference.models.shape import ModelShape

_TURNS = 3
"""Turns of an episode that may have more: a guess."""
_REPLY_SHARE = 0.5
"""Mean reply as a share of the longest: a guess."""
_PROMPT_TOKENS = 100
"""New before each reply: a guess."""
GPU_EAGER_TOKENS_PER_S = 1300.0
"""Generated with 128 requests on an H200, without graphs: as many with 0.6B as with 4B."""
_GPU_LEARNER_FLOPS = 1.6e14
"""Reached by the learner on an H200 with an adapter beside 4B."""
_CPU_GENERATION_FLOPS, _CPU_LEARNER_FLOPS = 2.5e10, 5e10
"""Reached on one core with a model of 0.13B in float32: 12 updates of 32 one-turn episodes with an
adapter took 313 s on two. `bench/threads.py` measures both parts."""


@dataclass(frozen=True, slots=True)
class Workload:
    """Work of a finite run for engine and learner."""

    generated_tokens: float
    read_tokens: float
    """Prompts, of which a group reads what it shares once."""
    learned_tokens: float
    """Replies, and the prompts before them: each counts once for each episode."""


def measured_episodes(
    config: RunConfig | ServeConfig | EvaluateConfig, heldout: int, others: int = 0
) -> int:
    """Episodes on held-out tasks, of all evaluations and environments.

    `heldout`: tasks of the run's own environments; `others`: of those that are measured beside.
    """
    if isinstance(config, ServeConfig):
        return 0
    whole = heldout * (1 + config.eval.samples_per_task)
    if isinstance(config, EvaluateConfig):
        return whole
    every = config.eval.every
    between = (config.trainer.steps - 1) // every if every and heldout else 0
    ends = 2 if config.eval.ends else 0
    between_tasks = config.eval.between_tasks * len(config.domains)
    return ends * (whole + others) + between * between_tasks


def workload_of(config: RunConfig | EvaluateConfig, measured: int) -> Workload:
    """`measured`: episodes that are not trained on."""
    trained = 0
    if isinstance(config, RunConfig):
        trained = config.trainer.steps * config.rollout.groups * config.rollout.group_size
    turns = min(config.env.max_turns, _TURNS)
    replies = turns * _REPLY_SHARE * config.policy.sampling.max_tokens
    prompts = turns * _PROMPT_TOKENS
    read = (trained / config.rollout.group_size + measured) * prompts
    return Workload((trained + measured) * replies, read, trained * (replies + prompts))


def seconds_of(
    work: Workload, shape: ModelShape, device: Device, config: CommandConfig | EvaluateConfig,
    cores: int,
) -> float:  # fmt: skip
    """Seconds of generating and learning; on a GPU both run at once, cores are shared."""
    if device == "cuda":
        generation_s = work.generated_tokens / GPU_EAGER_TOKENS_PER_S
        learning_s = _learning_flops(work, shape, config) / _GPU_LEARNER_FLOPS
        return max(generation_s, learning_s)
    tokens = work.generated_tokens + work.read_tokens
    generation_s = 2 * shape.parameters * tokens / (cores * _CPU_GENERATION_FLOPS)
    return generation_s + _learning_flops(work, shape, config) / (cores * _CPU_LEARNER_FLOPS)


def _learning_flops(
    work: Workload, shape: ModelShape, config: CommandConfig | EvaluateConfig
) -> float:
    """Forward and backward: 6 a parameter and token, 4 beside frozen weights, and the forward pass
    again where layers are checkpointed."""
    if isinstance(config, EvaluateConfig | ServeConfig):
        return 0.0
    assert isinstance(config, CommandConfig)
    each = 6 if config.learner.adapter is None else 4
    each += 2 if config.learner.checkpoint_layers else 0
    return each * shape.parameters * work.learned_tokens
