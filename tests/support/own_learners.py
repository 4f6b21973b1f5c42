"""Learners of somebody else's, each without something that a run may need."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from clawrl_gym.config import LearnerConfig, TrainerConfig
from clawrl_gym.core.types import Sample, StepStats
from clawrl_gym.inference.weights.probe import Reading
from clawrl_gym.trainers.capabilities import LearnerCapabilities
from clawrl_gym.trainers.models.pictures import Images
from clawrl_gym.trainers.updates.guard import Review


class Bare:
    """It declares nothing: steps, weights and checkpoints alone."""

    def __init__(
        self,
        trainer: TrainerConfig,
        learner: LearnerConfig,
        model_dir: str,
        seed: int,
        device: str,
        temperature: float,
        images: Images | None,
    ) -> None:
        self.model_dir = Path(model_dir)

    def step(self, samples: Sequence[Sample], version: int) -> StepStats:
        return StepStats({}, sum(len(sample.ids_T) for sample in samples), 0.1)

    def save_weights(self, folder: str) -> None: ...

    def save_checkpoint(self, folder: str) -> None: ...

    def load_checkpoint(self, folder: str) -> None: ...


class Reads(Bare):
    """It reads, too."""

    capabilities: ClassVar[LearnerCapabilities] = LearnerCapabilities(probe=True, review=True)

    def probe(self) -> Reading:
        return Reading([1, 2], [-0.5])

    def review(self, samples: Sequence[Sample]) -> Review:
        return Review(1.0, [[] for _ in samples])


class Boasting(Bare):
    """It declares what it has no method for."""

    capabilities: ClassVar[LearnerCapabilities] = LearnerCapabilities(review=True)


class Unreachable(Bare):
    """Its versions go a way that no engine takes."""

    capabilities: ClassVar[LearnerCapabilities] = LearnerCapabilities(transfers=("name", "nccl"))


class WithAdapters(Bare):
    """One adapter for all."""

    capabilities: ClassVar[LearnerCapabilities] = LearnerCapabilities(adapters=True)

    def save_adapter(self, folder: str) -> None: ...


class Elsewhere(Bare):
    """It computes somewhere else, and has not all that this takes."""

    capabilities: ClassVar[LearnerCapabilities] = LearnerCapabilities(remote=True)


class Waits(Bare):
    """Its step is a coroutine that nobody awaits in a process of its own."""

    async def step(self, samples: Sequence[Sample], version: int) -> StepStats:  # type: ignore[override]
        return StepStats({}, 0, 0.1)


class DoesNotWait(Bare):
    """A remote one that would block who calls it."""

    capabilities: ClassVar[LearnerCapabilities] = LearnerCapabilities(remote=True)

    def publish(self) -> None: ...

    ready = reset = restart = close = publish


class NoAdapter(Bare):
    """It has no way to give its adapter out."""

    capabilities: ClassVar[LearnerCapabilities] = LearnerCapabilities(adapters=True)
