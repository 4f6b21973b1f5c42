"""Builds the configured algorithm."""

from __future__ import annotations

from clawrl_gym.config import TrainerConfig
from clawrl_gym.trainers.base import Algorithm
from clawrl_gym.trainers.binary import Binary
from clawrl_gym.trainers.grpo import Grpo
from clawrl_gym.trainers.hybrid import Hybrid
from clawrl_gym.trainers.opd import Opd


def build_algorithm(config: TrainerConfig, group_size: int | None) -> Algorithm:
    """For groups of this size; None: live conversations, whose turns come one by one."""
    if config.algorithm == "opd":
        return Opd(config.opd_weight)
    if config.algorithm == "hybrid":
        rewards = _for_rewards(config, group_size)
        return Hybrid(rewards, Opd(config.opd_weight), config.rl_weight)
    if config.algorithm == "binary":
        return Binary(config.baseline_decay)
    return _for_rewards(config, group_size)


def _for_rewards(config: TrainerConfig, group_size: int | None) -> Algorithm:
    """A group of one has nothing to compare an episode with but a running mean."""
    if group_size is None or group_size < 2:
        return Binary(config.baseline_decay)
    return Grpo(
        config.normalize_std, config.process_weight, config.baseline_decay, config.leave_one_out
    )
