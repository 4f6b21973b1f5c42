"""The flow of episodes into the pool: as many at a time as the engine can use, by its metrics.

It only opens and closes the pool's door: no episode is ended for it, and while the engine says
nothing the number stays as it is.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from clawrl_gym.core import provenance
from clawrl_gym.core.errors import PolicyError
from clawrl_gym.rollout.collection.concurrency import Concurrency, Reading, Why
from clawrl_gym.rollout.collection.pool import WorkerPool

_EVERY_S = 1.0
_TIMEOUT_S = 5.0


def memory_free() -> float:
    """Share of this machine's memory; of a large one, as if it had 100 GiB."""
    return provenance.memory_available_gb() / min(100.0, provenance.memory_total_gb())


class Flow:
    """The allowed number of episodes in flight, kept up to date."""

    def __init__(
        self,
        pool: WorkerPool,
        fixed: int | None,
        engine_metrics: Callable[[], Awaitable[Mapping[str, float]]],
        on_reason: Callable[[int, Why], None] = lambda limit, why: None,
        *,
        useful: int | None = None,
        weight_version: Callable[[], int] = lambda: 0,
        memory_free: Callable[[], float] = memory_free,
    ) -> None:
        """`fixed`: always so many, at most as many as the pool has slots; None follows the engine,
        up to as many as are `useful`.
        `weight_version` is what it serves now.

        `on_reason` gets the number and what decided on it, once for each reason.
        """
        self._pool = pool
        self._engine_metrics = engine_metrics
        self._useful = useful
        self._on_reason = on_reason
        self._memory_free = memory_free
        self._preemptions = Preemptions(weight_version)
        self._concurrency: Concurrency | None = None
        self._why = Why.FIXED
        self._heard: set[Why] = set()
        self._readings: Counter[Why] = Counter()
        if fixed is None:
            self._concurrency = Concurrency(pool.capacity)
            self._why, fixed = Why.START, self._concurrency.limit
        pool.limit = fixed

    @property
    def limit(self) -> int:
        """Episodes that may be in flight."""
        return self._pool.limit

    def shares(self) -> dict[str, float]:
        """Reasons for the number, as shares of the time since the last call, by name."""
        readings, self._readings = self._readings, Counter()
        total = max(1, readings.total())
        return {f"flow/{why.name.lower()}": count / total for why, count in readings.items()}

    async def run(self) -> None:
        """Follow the engine until cancelled."""
        while self._concurrency is not None:
            try:
                async with asyncio.timeout(_TIMEOUT_S):
                    self._follow(self._concurrency, await self._engine_metrics())
            except (PolicyError, TimeoutError):
                pass  # the fleet and whoever waits for it see to that
            await asyncio.sleep(_EVERY_S)

    def _follow(self, concurrency: Concurrency, engine: Mapping[str, float]) -> None:
        reading = Reading(
            in_flight=self._pool.in_flight,
            wanted=self._pool.waiting,
            engines=int(engine.get("engines", 1)),
            running=engine.get("running", 0.0),
            waiting=engine.get("waiting", 0.0),
            kv_usage=engine.get("kv_usage", 0.0),
            turns=engine.get("requests", 0.0),
            episodes=self._pool.ended,
            preemptions=self._preemptions.of_load(engine.get("preemptions", 0.0)),
            contexts=engine.get("contexts", 0.0),
            memory_free=self._memory_free(),
        )
        concurrency.most = capacity = self._pool.capacity
        if self._useful is not None:
            concurrency.most = min(capacity, self._useful)
        self._pool.limit = concurrency.read(reading)
        why = concurrency.reason
        if why is Why.MOST and concurrency.most < capacity:
            why = Why.STALE
        self._readings[why] += 1
        if why is not self._why and why not in self._heard:
            self._heard.add(why)
            self._on_reason(self._pool.limit, why)
        self._why = why


class Preemptions:
    """The engine's preemptions without those of weight swaps, which drop the cache of all that
    runs."""

    def __init__(self, weight_version: Callable[[], int]) -> None:
        self._weight_version = weight_version
        self._last = self._of_load = 0.0
        self._versions = (0, 0)

    def of_load(self, total: float) -> float:
        """So many so far, of `total`; those around a swap are not counted."""
        versions = (self._versions[1], self._weight_version())
        if self._versions[0] == versions[0] == versions[1]:
            self._of_load += max(0.0, total - self._last)
        self._last, self._versions = total, versions
        return self._of_load
