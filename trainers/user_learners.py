"""One learner for several users: the run's own weights, and those of users who have their own.

There is one base in memory, and beside it the adapter and the optimizer of whose turn it is. Each
has a training loop of their own, which waits for a batch of its own and then for its turn; turns
come in the order in which batches were ready, so nobody's waits for more than one update of each
other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from clawrl_gym.core.ownership import OWNER
from clawrl_gym.core.types import StepStats
from clawrl_gym.inference.weights.probe import Reading
from clawrl_gym.trainers.interface import AsyncLearner
from clawrl_gym.trainers.published_version import PublishedVersion
from clawrl_gym.trainers.sample_batch import SampleBatch
from clawrl_gym.trainers.updates.guard import Review

CheckpointOf = Callable[[str], str | None]
"""A user's newest checkpoint. Raises TrainerError where what serves has none."""


class UserLearners:
    """Users of one learner, and whose turn it is."""

    def __init__(
        self, learner: AsyncLearner, checkpoint_of: CheckpointOf, lock: asyncio.Lock
    ) -> None:
        """`lock` is held for one update by the user whose turn it is; first come, first served."""
        self.lock = lock
        self._learner = learner
        self._checkpoint_of = checkpoint_of
        self._user = OWNER

    def of(self, user: str) -> UserLearner:
        """The learner as one user's loop uses it."""
        return UserLearner(self, user)

    async def take(self, user: str) -> AsyncLearner:
        """The learner with this user's state."""
        if user != self._user:
            await self._learner.use(user, None if user == OWNER else self._checkpoint_of(user))
            self._user = user
        return self._learner

    async def reset(self, user: str) -> None:
        """Reset to the first weights, or to a user who begins as the run's own weights are now; no
        other user's state changes."""
        learner = await self.take(OWNER)
        if user == OWNER:
            return await learner.reset()
        await learner.forget(user)
        await learner.use(user, None)
        self._user = user

    async def restart(self, user: str, checkpoint: str | None) -> None:
        """Start a new process with the run's state, then this user's from the checkpoint."""
        own = checkpoint if user == OWNER else self._checkpoint_of(OWNER)
        await self._learner.restart(own)
        self._user = OWNER
        if user != OWNER:
            await self._learner.use(user, checkpoint)
            self._user = user

    async def forget(self, user: str) -> None:
        """Drop a removed user's weights from memory."""
        if self._user == user:
            await self.take(OWNER)
        await self._learner.forget(user)


class UserLearner:
    """The learner of one user's training loop, which calls it only while it is their turn."""

    def __init__(self, learners: UserLearners, user: str) -> None:
        self._learners = learners
        self._user = user

    async def step(self, batch: SampleBatch, version: int) -> StepStats:
        return await (await self._learners.take(self._user)).step(batch, version)

    async def review(self, batch: SampleBatch) -> Review:
        return await (await self._learners.take(self._user)).review(batch)

    async def publish(self, *, as_adapter: bool) -> PublishedVersion:
        return await (await self._learners.take(self._user)).publish(as_adapter=as_adapter)

    async def probe(self) -> Reading:
        return await (await self._learners.take(self._user)).probe()

    async def save_checkpoint(self, folder: str) -> None:
        await (await self._learners.take(self._user)).save_checkpoint(folder)

    async def load_checkpoint(self, folder: str) -> None:
        await (await self._learners.take(self._user)).load_checkpoint(folder)

    async def reset(self) -> None:
        await self._learners.reset(self._user)

    async def restart(self, checkpoint: str | None) -> None:
        await self._learners.restart(self._user, checkpoint)
