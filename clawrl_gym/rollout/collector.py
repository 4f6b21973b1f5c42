"""The collector: whole groups become samples in the store, and samples become batches.

Groups are numbered by the order in which they were accepted; batch n is always groups n*B to
n*B + B - 1 of that order, and the order is in the store. So a resumed run forms the very batches
that would have come. A sample that has become too old is left out when its batch is formed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from clawrl_gym.config import RolloutConfig
from clawrl_gym.rollout.merge import merge_turns
from clawrl_gym.store import Store
from clawrl_gym.trainers.base import Algorithm
from clawrl_gym.types import Group, Sample


@dataclass(frozen=True, slots=True)
class Batch:
    """What one update trains on."""

    number: int
    groups: int
    """Groups that it takes from the dispatcher's bound."""
    samples: list[Sample]


class Collector:
    """Takes whole groups, gives batches."""

    def __init__(
        self,
        config: RolloutConfig,
        store: Store,
        algorithm: Algorithm,
        on_dropped: Callable[[int], None],
    ) -> None:
        self._config = config
        self._store = store
        self._algorithm = algorithm
        self._on_dropped = on_dropped
        self._ready: asyncio.Queue[list[Sample]] = asyncio.Queue()
        self._order = asyncio.Lock()
        self.counters: Counter[str] = Counter()
        """Since the start: merge/*, groups/*; the loop reports differences."""

    @property
    def ready_groups(self) -> int:
        """Accepted groups that wait for the learner."""
        return self._ready.qsize()

    def restore(self, groups: list[list[Sample]]) -> None:
        """Groups that a resumed run had accepted and not trained, in their order."""
        for samples in groups:
            self._ready.put_nowait(samples)

    async def add(self, group: Group) -> None:
        """Accept a whole group: merge its turns, stamp advantages, store, queue."""
        rewarded = [e for e in group.episodes_G if e.reward is not None]
        if len(rewarded) < self._config.min_group:
            self.counters["groups/dropped_failed"] += 1
            self._on_dropped(1)
            return
        segments_G = []
        for episode in group.episodes_G:
            merged = merge_turns(await self._store.turns_of(episode.session_id))
            self.counters["merge/turns"] += merged.merged + merged.forks.total()
            self.counters["merge/merged"] += merged.merged
            for reason, count in merged.forks.items():
                self.counters[f"merge/fork_{reason}"] += count
            segments_G.append(merged.sequences)
        samples = self._algorithm.stamp(group, segments_G)
        if not samples:
            self.counters["groups/zero_variance"] += 1
        self.counters["groups/accepted"] += 1
        async with self._order:
            self._ready.put_nowait(await self._store.add_group(group, samples))

    async def batch(self, number: int, version: int) -> Batch:
        """The next batch, as soon as enough groups are there."""
        samples: list[Sample] = []
        for _ in range(self._config.groups):
            for sample in await self._ready.get():
                if version - sample.oldest_version > self._config.max_staleness:
                    self.counters["samples/dropped_stale"] += 1
                else:
                    samples.append(sample)
        return Batch(number, self._config.groups, samples)
