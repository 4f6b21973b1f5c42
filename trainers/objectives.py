"""The terms of a configuration's loss, and those that a learner can run.

A run whose learner lacks a term is refused at its start: no term is ever left out in silence. What
ran is reported by each step, under `objective/NAME`.
"""

from __future__ import annotations

from clawrl_gym.config import LearnerConfig, TrainerConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.plugins import ALGORITHMS
from clawrl_gym.trainers.algorithms.algorithm import Algorithm
from clawrl_gym.trainers.capabilities import capabilities_of

POLICY_GRADIENT = "policy_gradient"
DISTILLATION_SAMPLED = "distillation_sampled"
DISTILLATION_TOPK = "distillation_topk"
KL = "kl"

OF_A_TEACHER = frozenset({DISTILLATION_SAMPLED, DISTILLATION_TOPK})
"""Terms that need the capability `teacher`; every learner can run all others."""


def objectives(trainer: TrainerConfig) -> frozenset[str]:
    """The terms of this configuration's loss."""
    names = set()
    if _algorithm(trainer).has_rewards(trainer):
        names.add(POLICY_GRADIENT)
    if distils(trainer):
        topk = trainer.distillation.form == "topk"
        names.add(DISTILLATION_TOPK if topk else DISTILLATION_SAMPLED)
    if trainer.kl_coef > 0:
        names.add(KL)
    return frozenset(names)


def distils(trainer: TrainerConfig) -> bool:
    """Whether a teacher is asked."""
    return _algorithm(trainer).distils(trainer)


def checked_objectives(trainer: TrainerConfig, learner: LearnerConfig) -> frozenset[str]:
    """The terms of a configuration's loss. Raises ConfigError for one that its learner lacks."""
    terms = objectives(trainer)
    missing = terms & OF_A_TEACHER
    if missing and not capabilities_of(learner).teacher:
        raise ConfigError(
            f"learner.backend={learner.backend} cannot run {', '.join(sorted(missing))}, which "
            f"trainer.algorithm={trainer.algorithm} needs: take learner.backend=torch, or one with "
            "the capability `teacher`"
        )
    return terms


def _algorithm(trainer: TrainerConfig) -> type[Algorithm]:
    algorithm: type[Algorithm] = ALGORITHMS.resolve(trainer.algorithm).target
    return algorithm
