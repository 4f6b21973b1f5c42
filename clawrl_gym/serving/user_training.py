"""The users who have weights of their own: each has a line of versions beside the run's own.

A line begins with the first sample of its user: then the adapter is the run's own as it is, and the
count of versions goes on from there. Its checkpoints lie in the user's folder, one for each update
that served, and what serves after a restart is the newest of them.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from clawrl_gym.config import AdapterConfig, LearnerConfig
from clawrl_gym.core.errors import ConfigError, PolicyError, TrainerError
from clawrl_gym.core.metrics import Timeline
from clawrl_gym.core.ownership import OWNER
from clawrl_gym.inference.weights.adapter_files import ADAPTER
from clawrl_gym.inference.weights.checkpoints import CHECKPOINTS, checkpoint_dir, list_checkpoints
from clawrl_gym.run_folder.folder import RunFolder
from clawrl_gym.serving.users import user_folder
from clawrl_gym.store import Store
from clawrl_gym.store.users import Users
from clawrl_gym.trainers.batch_queue import Batch, BatchQueue
from clawrl_gym.trainers.interface import AsyncLearner
from clawrl_gym.trainers.loop import Publication, Refused, TrainLoop, Update
from clawrl_gym.trainers.updates.guard import Guard, guard_of
from clawrl_gym.trainers.user_learners import UserLearner, UserLearners
from clawrl_gym.trainers.user_queues import UserQueues
from clawrl_gym.trainers.versions.kept_versions import KeptVersions
from clawrl_gym.trainers.versions.retention import Retention

NextBatch = Callable[[BatchQueue, int, int], Awaitable[Batch]]
Publish = Callable[[UserLearner, int, str], Awaitable[Publication]]
"""Serves what a user's learner has as a version of theirs."""
_FOREVER = sys.maxsize
_ENDED_BY: tuple[Refused, ...] = ("publication",)


class ServesUsers(Protocol):
    """The part of a `ServedPolicy` that lines need."""

    store: Store
    version: int
    adapter: AdapterConfig | None
    adapters_of_users: dict[str, tuple[int, Path]]

    async def withdraw_adapters(self, user: str) -> None: ...


@dataclass(frozen=True, slots=True)
class _UserLoop:
    """One user's training loop, and the task that runs it."""

    loop: TrainLoop
    task: asyncio.Task[None]


class UserTraining:
    """All of them, while it serves and learns."""

    def __init__(
        self,
        config: LearnerConfig,
        folder: RunFolder,
        policy: ServesUsers,
        users: Users,
        timeline: Timeline,
        say: Callable[[str], None],
        publish: Publish,
    ) -> None:
        self._config = config.model_copy(update={"checkpoint_every": 1})
        self._folder = folder
        self._policy = policy
        self._users = users
        self._timeline = timeline
        self._say = say
        self._publish = publish
        self._versions: dict[str, int] = {}
        """The newest of each user's own, checkpointed."""
        self._begun: asyncio.Queue[str] = asyncio.Queue()
        self._going: dict[str, _UserLoop] = {}
        self._begin: Callable[[str], _UserLoop] | None = None
        """Starts a user's loop; None until `run`."""
        self._is_running = asyncio.Event()
        self._guards: dict[str, Guard] = {}
        self._lock = asyncio.Lock()
        self._learners: UserLearners | None = None
        self.on_update: Callable[[str, Update], Awaitable[None]] = _ignore

    async def restore(self, queues: UserQueues) -> None:
        """Go on with what an earlier process trained: it is served when the policy starts.

        Raises TrainerError where a checkpoint is gone.
        """
        for user, row in (await self._policy.store.newest_of_users()).items():
            if self._users.get(user) is None:
                continue
            folder = checkpoint_dir(self._checkpoints(user), row.version)
            if not (folder / ADAPTER).is_dir():
                raise TrainerError(
                    f"{user}'s newest checkpoint {folder} is not there: restore it, or remove the "
                    f"user (python -m clawrl_gym.users remove {user})"
                )
            await asyncio.to_thread(_check_user, folder, user)
            self._versions[user] = row.version
            self._policy.adapters_of_users[user] = (row.version, folder / ADAPTER)
            queues.of(user).version = row.version

    def begin(self, user: str) -> None:
        """A user has a sample of their own, or had one in an earlier process."""
        if user != OWNER:
            self._begun.put_nowait(user)

    def learners(self, learner: AsyncLearner) -> UserLearners:
        """The user whose turn it is at the learner."""
        self._learners = UserLearners(learner, self._checkpoint_of, self._lock)
        return self._learners

    async def run(self, queues: UserQueues, next_batch: NextBatch) -> None:
        """A training loop for each user who begins, for ever.

        `next_batch`: what is ready in a queue when it is time to learn.
        """
        async with asyncio.TaskGroup() as tasks:
            self._begin = partial(self._begin_loop, queues, next_batch, tasks)
            self._is_running.set()
            while True:
                user = await self._begun.get()
                if user not in self._going and self._users.get(user) is not None:
                    self._begin(user)

    def _begin_loop(
        self, queues: UserQueues, next_batch: NextBatch, tasks: asyncio.TaskGroup, user: str
    ) -> _UserLoop:
        assert self._learners is not None
        ready = partial(next_batch, queues.of(user))
        began = self._versions.get(user, self._policy.version)
        begins_at = 0 if user in self._versions else began
        loop = self._loop(user, ready, self._learners, begins_at)
        user_loop = _UserLoop(loop, tasks.create_task(self._learn(user, loop, began)))
        self._going[user] = user_loop
        return user_loop

    async def _learn(self, user: str, loop: TrainLoop, version: int) -> None:
        """One user's loop; where it cannot continue, the others do."""
        try:
            await loop.run(version, _FOREVER)
        except (TrainerError, PolicyError) as error:
            newest = self._versions.get(user)
            serving = f"{user}@{newest}" if newest is not None else "the run's own adapter"
            self._say(
                f"{user}'s weights learn no more until serve is started again, {serving} answers "
                f"them: {error}"
            )

    def kept_versions(self, user: str) -> list[int]:
        """Versions of a user's own that can serve again; 0 is the run's own adapter as it is then.

        None before the first update of theirs. Raises ConfigError for who can have none.
        """
        if self._policy.adapter is None:
            raise ConfigError(
                "all users share one set of weights here, the versions of which are the owner's "
                "(learner=lora with policy.serve=adapters gives each their own)"
            )
        self._users.present(user)
        return sorted(
            {0, *list_checkpoints(self._checkpoints(user))} if user in self._versions else ()
        )

    async def rollback(self, version: int, user: str) -> int:
        """Have an earlier version of a user's own serve again, as `TrainLoop.rollback`.

        Raises TrainerError where their line could not continue.
        """
        if version not in (kept := self.kept_versions(user)):
            raise ConfigError(
                f"got version {version}, expected one of {user}'s that is kept: "
                f"{', '.join(map(str, kept)) or 'there is none yet'}"
            )
        await self._is_running.wait()
        assert self._begin is not None
        user_loop = self._going.get(user) or self._begin(user)
        if user_loop.task.done():
            raise TrainerError(f"{user}'s weights learn no more: start serve again, then roll back")
        return await user_loop.loop.rollback(version)

    def deleted(self, session_id: str) -> None:
        """Forget a deleted session: nothing of it is read again."""
        for guard in self._guards.values():
            guard.forget(lambda sample: sample.session_id == session_id)

    async def end(self, user: str) -> None:
        """A user is removed: the update under way ends first, and nothing of it is left."""
        if self._policy.adapter is None:
            return
        async with self._lock:
            user_loop = self._going.pop(user, None)
            if user_loop is not None:
                user_loop.task.cancel()
                await asyncio.wait([user_loop.task])
            self._versions.pop(user, None)
            self._guards.pop(user, None)
            if self._learners is not None:
                await self._learners.forget(user)
            await self._policy.withdraw_adapters(user)

    def _loop(
        self,
        user: str,
        next_batch: Callable[[int, int], Awaitable[Batch]],
        learners: UserLearners,
        begins_at: int,
    ) -> TrainLoop:
        learner = learners.of(user)
        retention = Retention(self._config, self._checkpoints(user))

        async def publish(version: int) -> Publication:
            return await self._publish(learner, version, user)

        async def record(update: Update) -> None:
            await self._policy.store.add_user_update(user, update.row, update.checkpoint)
            if update.checkpoint is not None:
                self._versions[user] = update.version
            await self.on_update(user, update)
            await retention.recorded(update.checkpoint)

        guard = guard_of(self._config, learner)
        if guard is not None:
            self._guards[user] = guard
        return TrainLoop(
            self._config,
            learner,
            next_batch,
            publish,
            record,
            KeptVersions(self._config, self._checkpoints(user), begins_at),
            self._timeline,
            say=lambda line: self._say(f"{user}: {line}"),
            lock=learners.lock,
            guard=guard,
            ended_by=_ENDED_BY,
        )

    def _checkpoints(self, user: str) -> Path:
        return user_folder(self._folder.path, user) / CHECKPOINTS

    def _checkpoint_of(self, user: str) -> str | None:
        if user != OWNER:
            version = self._versions.get(user)
            return (
                None if version is None else str(checkpoint_dir(self._checkpoints(user), version))
            )
        version = self._policy.version
        if version and version not in list_checkpoints(self._folder.checkpoints):
            raise TrainerError(
                f"the learner died while version {version} of the run's own weights had no "
                "checkpoint: resume from the last one with resume=, or take "
                "learner.checkpoint_every=1"
            )
        return str(checkpoint_dir(self._folder.checkpoints, version)) if version else None


def _check_user(folder: Path, user: str) -> None:
    from clawrl_gym.trainers.updates.checkpoint import check_user

    check_user(folder, user)


async def _ignore(user: str, update: Update) -> None:
    pass
