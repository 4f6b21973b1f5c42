"""A learner that sleeps: rehearses the loops, on time and in order, without a model."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from clawrl_gym.config import LearnerConfig, TrainerConfig
from clawrl_gym.core.errors import TrainerError
from clawrl_gym.core.types import Sample, StepStats
from clawrl_gym.trainers.capabilities import SIMULATED, LearnerCapabilities
from clawrl_gym.trainers.models.packing import staleness
from clawrl_gym.trainers.models.pictures import Images
from clawrl_gym.trainers.objectives import checked_objectives
from clawrl_gym.trainers.schedule import learning_rate

if TYPE_CHECKING:
    from clawrl_gym.trainers.updates.actor import LearnerSetup


class SimulatedLearner:
    """The interface of `Learner`; a step lasts `learner.simulated_step_s` and changes no weight."""

    capabilities: ClassVar[LearnerCapabilities] = SIMULATED

    def __init__(
        self,
        trainer: TrainerConfig,
        learner: LearnerConfig,
        model_dir: str,
        seed: int,
        device: str,
        temperature: float = 1.0,
        images: Images | None = None,
        objectives: frozenset[str] | None = None,
    ) -> None:
        if objectives is None:
            checked_objectives(trainer, learner)
        self.trainer, self.config, self.model_dir = trainer, learner, model_dir
        self.updates = 0

    @classmethod
    def from_config(cls, config: LearnerConfig, setup: LearnerSetup) -> Self:
        return cls(*setup.arguments(), setup.objectives)

    def step(self, samples: Sequence[Sample], version: int) -> StepStats:
        """Sleep for one step and report what needs no model."""
        start_s = time.perf_counter()
        time.sleep(self.config.simulated_step_s)
        rate = learning_rate(version, self.trainer.steps, self.config)
        self.updates += 1
        tokens = sum(len(sample.ids_T) for sample in samples)
        duration_s = time.perf_counter() - start_s
        metrics = staleness(samples, version)
        metrics["learner/lr"] = rate
        metrics["learner/tokens_per_s"] = tokens / duration_s
        return StepStats(metrics, tokens, duration_s)

    def save_weights(self, folder: str) -> None:
        """Put the first weights into `folder`, where `model_dir` has any to copy."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        source = Path(self.model_dir) / "model.safetensors"
        if source.is_file():
            partial = Path(folder) / ".model.safetensors.partial"
            shutil.copyfile(source, partial)
            partial.replace(Path(folder) / source.name)

    def save_checkpoint(self, folder: str) -> None:
        """Write the number of updates, the only state to resume from: no model is in it."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        partial = Path(folder) / ".updates.partial"
        partial.write_text(str(self.updates))
        partial.replace(Path(folder) / "updates")

    def load_checkpoint(self, folder: str) -> None:
        """Resume from what `save_checkpoint` wrote."""
        path = Path(folder) / "updates"
        if not path.is_file():
            raise TrainerError(f"checkpoint {folder!r} has no updates file, expected a whole one")
        self.updates = int(path.read_text())
