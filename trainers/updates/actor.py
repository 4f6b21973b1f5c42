"""The learner as a Ray actor. Its class is looked up in its own process, the only one that imports
what it needs. On a machine that shares no folder with the driver, files come and go as
transfers.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from clawrl_gym.config import LearnerConfig, TrainerConfig
from clawrl_gym.core.files.files import cache_root, private_files
from clawrl_gym.core.files.scratch import Scratch
from clawrl_gym.core.files.transfer import Get, Put, Transfer, manifest_of, receive, send
from clawrl_gym.core.plugins import LEARNERS
from clawrl_gym.core.types import StepStats
from clawrl_gym.inference.device import torch_device
from clawrl_gym.inference.models.source import ModelFinder, ModelSource
from clawrl_gym.inference.weights.cache import ModelCache
from clawrl_gym.inference.weights.probe import Reading
from clawrl_gym.trainers.sample_batch import SampleBatch
from clawrl_gym.trainers.updates.guard import Review

if TYPE_CHECKING:
    from clawrl_gym.trainers.models.pictures import Images


@dataclass(frozen=True, slots=True)
class LearnerSetup:
    """Arguments that a learner is made with."""

    trainer: TrainerConfig
    learner: LearnerConfig
    seed: int
    device: str
    temperature: float
    images: Images | None = None
    model_dir: str = ""
    """Folder of the run's first weights."""
    objectives: frozenset[str] | None = None
    """The terms of the loss; None: those of `trainer.algorithm`."""

    def arguments(
        self,
    ) -> tuple[TrainerConfig, LearnerConfig, str, int, str, float, Images | None]:
        """The arguments of a class without `from_config`, in order."""
        return (
            self.trainer, self.learner, self.model_dir, self.seed, self.device, self.temperature,
            self.images,
        )  # fmt: skip


def make_learner(setup: LearnerSetup) -> Any:
    """The learner that `learner.backend` names, in this process."""
    plugin = LEARNERS.resolve(setup.learner.backend)
    return plugin.make(setup.learner, setup, plain=setup.arguments())


class LearnerActor:
    """Forwards every call to the learner that `learner.backend` names."""

    def __init__(self, setup: LearnerSetup, folder: str | None = None) -> None:
        """`folder`: start of relative paths, as in the process that made the actor."""
        if folder is not None:
            os.chdir(folder)
        self._learner = make_learner(setup)

    def step(self, batch: SampleBatch, version: int) -> StepStats:
        stats: StepStats = self._learner.step(batch.samples(), version)
        return stats

    def review(self, batch: SampleBatch) -> Review:
        review: Review = self._learner.review(batch.samples())
        return review

    def probe(self) -> Reading:
        reading: Reading = self._learner.probe()
        return reading

    def save_weights(self, folder: str) -> None:
        self._learner.save_weights(folder)

    def save_adapter(self, folder: str) -> None:
        self._learner.save_adapter(folder)

    def save_checkpoint(self, folder: str) -> None:
        self._learner.save_checkpoint(folder)

    def load_checkpoint(self, folder: str) -> None:
        self._learner.load_checkpoint(folder)

    def use(self, user: str, folder: str | None) -> None:
        self._learner.use(user, folder)

    def forget(self, user: str) -> None:
        self._learner.forget(user)


class LearnerAway:
    """A learner whose model and checkpoints are files on another machine."""

    def __init__(self, put: Put, get: Get, cache: str | None = None) -> None:
        self._put = put
        self._get = get
        root = cache_root() if cache is None else Path(cache)
        self._finder = ModelFinder(ModelCache(root / "models"))
        self._model: Path | None = None

    def find_model(self, source: ModelSource) -> bool:
        """Whether the model is already here and need not be sent."""
        self._model = self._finder.find(source)
        return self._model is not None

    def take_model(self, transfer: Transfer) -> None:
        self._model = self._finder.take(transfer, self._get)

    def begin(self, setup: LearnerSetup, device: Literal["auto", "cpu", "cuda"]) -> None:
        """Load the model on a device of this machine."""
        assert self._model is not None
        here = replace(setup, device=torch_device(device), model_dir=str(self._model))
        self._learner = LearnerActor(here)

    def step(self, batch: SampleBatch, version: int) -> StepStats:
        return self._learner.step(batch, version)

    def review(self, batch: SampleBatch) -> Review:
        return self._learner.review(batch)

    def probe(self) -> Reading:
        return self._learner.probe()

    def send_weights(self) -> Transfer:
        return self._sent(self._learner.save_weights)

    def send_adapter(self) -> Transfer:
        return self._sent(self._learner.save_adapter)

    def send_checkpoint(self) -> Transfer:
        return self._sent(self._learner.save_checkpoint)

    def load_checkpoint(self, transfer: Transfer) -> None:
        with private_files(), Scratch("learner") as scratch:
            receive(transfer, scratch / "checkpoint", self._get)
            self._learner.load_checkpoint(str(scratch / "checkpoint"))

    def use(self, user: str, transfer: Transfer | None) -> None:
        if transfer is None:
            return self._learner.use(user, None)
        with private_files(), Scratch("learner") as scratch:
            receive(transfer, scratch / "checkpoint", self._get)
            self._learner.use(user, str(scratch / "checkpoint"))

    def forget(self, user: str) -> None:
        self._learner.forget(user)

    def _sent(self, save: Callable[[str], None]) -> Transfer:
        with private_files(), Scratch("learner") as scratch:
            save(str(scratch / "saved"))
            return send(manifest_of(files_below(scratch / "saved")), self._put)


def files_below(folder: Path) -> dict[str, Path]:
    """All files of a checkpoint, by their relative paths."""
    return {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
