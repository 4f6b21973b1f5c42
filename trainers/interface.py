"""The interface between a run and a learner, wherever the learner computes.

Everything is asynchronous, so that a learner in another process or on another machine delays no
serving. A class with plain methods runs in a process of its own (`clawrl_gym.cluster.ray_learner`);
one that declares the capability `remote` is an `AsyncLearner` itself.
"""

from __future__ import annotations

from typing import Protocol

from clawrl_gym.core.types import StepStats
from clawrl_gym.inference.weights.probe import Reading
from clawrl_gym.trainers.published_version import PublishedVersion
from clawrl_gym.trainers.sample_batch import SampleBatch
from clawrl_gym.trainers.updates.guard import Review


class LearnerHandle(Protocol):
    """Methods of a learner that a training loop calls."""

    async def step(self, batch: SampleBatch, version: int) -> StepStats:
        """Update once: weights of `version` become those of `version + 1`."""
        ...

    async def save_checkpoint(self, folder: str) -> None:
        """Write to `folder`, on the run's machine, all that `load_checkpoint` needs."""
        ...

    async def load_checkpoint(self, folder: str) -> None:
        """Resume from a checkpoint. Raises TrainerError for one that cannot be read."""
        ...

    async def reset(self) -> None:
        """Resume from the run's first weights."""
        ...

    async def restart(self, checkpoint: str | None) -> None:
        """Restart after LearnerDied, at a checkpoint or (None) at the first weights."""
        ...


class AsyncLearner(LearnerHandle, Protocol):
    """A learner that serves one run; each method raises TrainerError where it fails, LearnerDied
    where `restart` may help.

    `probe`, `review`, and `use` with `forget` are called only where the capability of the name
    (`users` for the last two) is declared.
    """

    async def ready(self) -> None:
        """Return once the model is loaded."""
        ...

    async def publish(self, *, as_adapter: bool) -> PublishedVersion:
        """Publish the current weights; `as_adapter`: the adapter alone (capability `adapters`)."""
        ...

    async def probe(self) -> Reading:
        """Reading of a short text by the current weights; the text is the same throughout a run."""
        ...

    async def review(self, batch: SampleBatch) -> Review:
        """Review of samples by the current weights; nothing is learned from them."""
        ...

    async def use(self, user: str, checkpoint: str | None) -> None:
        """Switch to a user's adapter and optimizer; without a checkpoint, to the run's own adapter
        as it is now."""
        ...

    async def forget(self, user: str) -> None:
        """Drop from memory all state of a user whose turn it is not."""
        ...


class RemoteLearner(AsyncLearner, Protocol):
    """An `AsyncLearner` whose class declares `remote`, made by its `from_config(config, setup)`."""

    async def close(self) -> None:
        """Release everything: the run ends."""
        ...
