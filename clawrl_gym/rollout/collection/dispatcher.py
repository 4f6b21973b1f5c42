"""The dispatcher: which task next, how many groups at once, and when to hold back.

A group is outstanding from its dispatch until the update that trained it is published. At most
(max_staleness + 1) batches of groups are outstanding, which bounds both staleness and memory and
holds rollouts back when the learner is behind. With max_staleness 0 collecting and learning take
turns. Where the learner is what takes the time, samples would only grow old in front of it: then
one batch fewer is outstanding, as long as it never has to wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

from clawrl_gym.config import RolloutConfig
from clawrl_gym.core.types import Episode, Group, StopReason
from clawrl_gym.rollout.collection.group import run_group
from clawrl_gym.rollout.collection.mixture import Mixture
from clawrl_gym.rollout.collection.pool import WorkerPool
from clawrl_gym.rollout.episodes.episode import Limits

_MOST_WAITING = 0.05
"""Share of the learner's time: when it waits for more, one more batch is outstanding."""


class Dispatcher:
    """Keeps the pool full of training groups within the staleness bound."""

    def __init__(
        self,
        config: RolloutConfig,
        limits: Limits,
        tasks: Mixture,
        pool: WorkerPool,
        on_group: Callable[[Group, float], Awaitable[None]],
        on_episode: Callable[[Episode], None],
    ) -> None:
        """`on_group` gets each whole group and the Unix time of its dispatch."""
        self._config = config
        self._limits = limits
        self._tasks = tasks
        self._pool = pool
        self._on_group = on_group
        self._on_episode = on_episode
        self._most_ahead = 0 if config.mode == "sync" else config.max_staleness
        self._ahead = self._most_ahead
        """Batches that may be outstanding beside the one that is learned from."""
        self._outstanding = 0
        self._room = asyncio.Event()
        self.version = 0
        """The newest published weight version; set by the training loop."""

    @property
    def outstanding(self) -> int:
        """Groups dispatched and not yet trained or dropped."""
        return self._outstanding

    def release(self, groups: int) -> None:
        """Groups were trained or dropped: as many may be dispatched again."""
        self._outstanding -= groups
        self._room.set()

    def pace(self, ready: int, waited_s: float, learned_s: float) -> None:
        """After an update: `ready` groups wait for the next ones, and the learner, which learned
        for `learned_s`, had waited for its batch."""
        if waited_s > _MOST_WAITING * learned_s:
            self._ahead = min(self._ahead + 1, self._most_ahead)
            self._room.set()
        elif ready >= self._outstanding:  # nothing is in flight: all lies there and grows old
            self._ahead = max(self._ahead - 1, min(1, self._most_ahead))

    def adopt(self, groups: int) -> None:
        """Groups of a resumed run wait for training: they count as outstanding."""
        self._outstanding += groups

    async def run(self, numbers: Iterable[int]) -> None:
        """Dispatch the groups of these numbers, in order, until cancelled."""
        async with asyncio.TaskGroup() as running:
            for number in numbers:
                while self._outstanding >= (self._ahead + 1) * self._config.groups:
                    self._room.clear()
                    await self._room.wait()
                self._outstanding += 1
                running.create_task(self._one(number))

    async def _one(self, number: int) -> None:
        started_s = time.time()
        task = self._tasks.train(number)
        group = await run_group(
            number,
            task,
            self.version,
            self._config,
            self._limits[task.env],
            self._pool,
            self._on_episode,
        )
        for episode in group.episodes_G:
            if episode.stop_reason is StopReason.NO_VERDICT:
                self._tasks.leave_out(task, episode.error or "")
        await self._on_group(group, started_s)
