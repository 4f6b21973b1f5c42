"""The training loop: batch, step, publish, record; then the next batch.

It knows no environment and no model: batches come in, a learner steps, weights go out. An update
is recorded only after its weights serve; its samples count as trained only with a checkpoint.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from clawrl_gym.config import LearnerConfig
from clawrl_gym.metrics import Timeline
from clawrl_gym.types import Sample, StepStats


class LearnerHandle(Protocol):
    """A learner in a process of its own."""

    async def step(self, samples: list[Sample], version: int) -> StepStats: ...

    async def save_weights(self, folder: str) -> None: ...

    async def save_checkpoint(self, folder: str) -> None: ...


class BatchLike(Protocol):
    """What the loop needs of a batch."""

    @property
    def number(self) -> int: ...

    @property
    def groups(self) -> int: ...

    @property
    def samples(self) -> list[Sample]: ...


@dataclass(frozen=True, slots=True)
class Update:
    """One update that serves."""

    version: int
    """Of the new weights."""
    batch: BatchLike
    stats: StepStats | None
    """None when the batch held no signal: the weights stayed."""
    swap_pause_s: float
    waited_s: float
    checkpoint: str | None


class TrainLoop:
    """Drives one learner from `version` on."""

    def __init__(
        self,
        config: LearnerConfig,
        learner: LearnerHandle,
        next_batch: Callable[[int, int], Awaitable[BatchLike]],
        publish: Callable[[int], Awaitable[float]],
        on_update: Callable[[Update], Awaitable[None]],
        checkpoints: Path,
        timeline: Timeline,
    ) -> None:
        self._config = config
        self._learner = learner
        self._next_batch = next_batch
        self._publish = publish
        self._on_update = on_update
        self._checkpoints = checkpoints
        self._timeline = timeline

    async def run(self, version: int, steps: int) -> None:
        """Update until the weights' version is `steps`."""
        while version < steps:
            waited_from_s = time.time()
            batch = await self._next_batch(version, version)
            waited_s = time.time() - waited_from_s
            self._timeline.add("train", "wait", waited_from_s, waited_from_s + waited_s)
            version = await self._update(batch, version, waited_s, last=version + 1 == steps)

    async def _update(self, batch: BatchLike, version: int, waited_s: float, last: bool) -> int:
        stats: StepStats | None = None
        pause_s = 0.0
        new = version + 1
        if batch.samples:
            with self._timeline.span("train", "step", version=new, samples=len(batch.samples)):
                stats = await self._learner.step(batch.samples, version)
        with self._timeline.span("serve", "swap", version=new):
            pause_s = await self._publish(new)
        checkpoint = None
        if last or new % self._config.checkpoint_every == 0:
            checkpoint = str(self._checkpoints / f"{new:06d}")
            with self._timeline.span("train", "checkpoint", version=new):
                await self._learner.save_checkpoint(checkpoint)
        update = Update(new, batch, stats, pause_s, waited_s, checkpoint)
        await asyncio.shield(self._on_update(update))
        if checkpoint is not None:
            await asyncio.to_thread(self._prune)
        return new

    def _prune(self) -> None:
        """Keep the newest checkpoints only; called once the newest one is recorded."""
        kept = sorted(path for path in self._checkpoints.glob("[0-9]*") if path.is_dir())
        for old in kept[: -self._config.keep_checkpoints]:
            shutil.rmtree(old, ignore_errors=True)
