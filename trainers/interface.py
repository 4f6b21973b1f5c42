"""What a run asks of a learner, wherever it computes.

Everything is asynchronous: a learner in another process or on another machine keeps nobody waiting
who serves. A class whose methods are plain is called in a process of its own (`run.ray_learner`);
one that declares the capability `remote` is an `AsyncLearner` itself.
"""

from __future__ import annotations

from typing import Protocol

from clawrl_gym.core.types import StepStats
from clawrl_gym.policy.probe import Reading
from clawrl_gym.trainers.guard import Review
from clawrl_gym.trainers.published_version import PublishedVersion
from clawrl_gym.trainers.sample_batch import SampleBatch


class LearnerHandle(Protocol):
    """What a training loop drives."""

    async def step(self, batch: SampleBatch, version: int) -> StepStats:
        """Update once: weights of `version` become those of `version + 1`."""
        ...

    async def save_checkpoint(self, folder: str) -> None:
        """Make `folder`, on the run's machine, all that `load_checkpoint` needs."""
        ...

    async def load_checkpoint(self, folder: str) -> None:
        """Go on from a checkpoint. Raises TrainerError for one that cannot be read."""
        ...

    async def reset(self) -> None:
        """Go on from the run's first weights."""
        ...

    async def restart(self, checkpoint: str | None) -> None:
        """Work again after LearnerDied: at a checkpoint, or (None) at the first weights."""
        ...


class AsyncLearner(LearnerHandle, Protocol):
    """A learner that serves one run; each method raises TrainerError where it fails, LearnerDied
    where `restart` may help.

    `probe`, `review`, and `use` with `forget` are called only where the capability of the name
    (`users` for the last two) is declared.
    """

    async def ready(self) -> None:
        """Answers once the model is loaded."""
        ...

    async def publish(self, *, as_adapter: bool) -> PublishedVersion:
        """Give out the weights of now, `as_adapter` the adapter alone (capability `adapters`)."""
        ...

    async def probe(self) -> Reading:
        """What the weights of now say of a short text, the same throughout a run."""
        ...

    async def review(self, batch: SampleBatch) -> Review:
        """What the weights of now say of samples, none of which is learned from."""
        ...

    async def use(self, user: str, checkpoint: str | None) -> None:
        """Go on with a user's adapter and optimizer; without a checkpoint with the run's own
        adapter as it is now."""
        ...

    async def forget(self, user: str) -> None:
        """Nothing of a user whose turn it is not stays in memory."""
        ...


class RemoteLearner(AsyncLearner, Protocol):
    """One of a class that declares `remote`, made by its `from_config(config, setup)`."""

    async def close(self) -> None:
        """Let go of everything: the run ends."""
        ...
