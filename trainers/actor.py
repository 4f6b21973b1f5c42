"""The learner as an actor: its class is looked up in its own process, the only one that imports
what it needs.
"""

from __future__ import annotations

from collections.abc import Sequence

from clawrl_gym.core.plugins import LEARNERS
from clawrl_gym.core.types import Sample, StepStats


class LearnerActor:
    """Passes every call on to the learner that `learner.backend` names."""

    def __init__(self, backend: str, arguments: Sequence[object]) -> None:
        self._learner = LEARNERS.resolve(backend).target(*arguments)

    def step(self, samples: list[Sample], version: int) -> StepStats:
        stats: StepStats = self._learner.step(samples, version)
        return stats

    def save_weights(self, folder: str) -> None:
        self._learner.save_weights(folder)

    def save_checkpoint(self, folder: str) -> None:
        self._learner.save_checkpoint(folder)

    def load_checkpoint(self, folder: str) -> None:
        self._learner.load_checkpoint(folder)
