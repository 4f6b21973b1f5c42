"""Samples that wait for the learner in live conversations: a queue for each line of weights.

The run's own line has one; where users have weights of their own, so has each of them, from their
first sample on. What one queue holds never goes into another's batch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from clawrl_gym.core.ownership import OWNER, user_of
from clawrl_gym.core.types import Compared, Group, Sample
from clawrl_gym.store import StoredGroup
from clawrl_gym.trainers.batch_queue import BatchQueue


class UserQueues:
    """The queues of one service."""

    def __init__(
        self,
        make: Callable[[str], BatchQueue],
        separate: bool = False,
        on_new: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`make` builds a user's queue; `separate`: users have weights of their own. `on_new` is
        called with each of them who gets a queue."""
        self._make = make
        self._separate = separate
        self._on_new = on_new
        self._queues = {OWNER: make(OWNER)}

    @property
    def own(self) -> BatchQueue:
        """Queue of the run's own weights."""
        return self._queues[OWNER]

    @property
    def waiting_samples(self) -> int:
        """Number of waiting samples of all users together."""
        return sum(queue.waiting_samples for queue in self._queues.values())

    @property
    def flush_in_s(self) -> float:
        """Seconds until the next queue is flushed; NaN when nothing waits for that."""
        due_s = [queue.flush_in_s for queue in self._queues.values()]
        return min((s for s in due_s if not math.isnan(s)), default=math.nan)

    def trained_user(self, session_id: str) -> str:
        """User whose weights learn from a session."""
        return user_of(session_id) if self._separate else OWNER

    def of(self, user: str) -> BatchQueue:
        """The queue of a user's own weights."""
        queue = self._queues.get(user)
        if queue is None:
            queue = self._queues[user] = self._make(user)
            queue.version = self.own.version
            self._on_new(user)
        return queue

    def version(self, session_id: str) -> int:
        """The newest version of the weights that learn from a session."""
        return self._queues.get(self.trained_user(session_id), self.own).version

    def restore(self, groups: Iterable[StoredGroup]) -> None:
        """Queue groups that an earlier process accepted and no update used.

        What waited for weights of a user's own waits on while all share one.
        """
        of_users: dict[str, list[StoredGroup]] = {}
        for group in groups:
            if group.user == OWNER or self._separate:
                of_users.setdefault(group.user, []).append(group)
        for user, waiting in of_users.items():
            samples = [group.samples for group in waiting]
            self.of(user).restore(samples, [group.id for group in waiting])

    async def accept(
        self, group: Group, samples: list[Sample], compared: Sequence[Compared]
    ) -> list[Sample]:
        """Store a group of one session and queue it; returns the samples as stored."""
        user = self.trained_user(group.episodes_G[0].session_id)
        return await self.of(user).accept(group, samples, compared)

    @property
    def counters(self) -> Counter[str]:
        """Samples left out of batches since the start, and (`samples/held`) samples that wait until
        others' samples make room for them; over all queues."""
        counts = sum((queue.counters for queue in self._queues.values()), Counter[str]())
        held = sum(queue.held.total() for queue in self._queues.values())
        return counts + Counter({"samples/held": held})

    def withdraw(self, turn_id: int) -> int:
        """Empty the groups of a turn's waiting samples; returns how many samples that were."""
        return sum(queue.withdraw(turn_id) for queue in self._queues.values())

    def forget(self, session_id: str) -> int:
        """Empty the groups of a session's waiting samples; returns how many samples that were."""
        return sum(queue.forget(session_id) for queue in self._queues.values())

    def forget_user(self, user: str) -> None:
        """Drop the queue of a removed user."""
        self._queues.pop(user, None)
