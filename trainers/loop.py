"""The training loop: batch, step, publish, record; then the next batch.

It knows no environment and no model: batches come in, a learner steps, weights go out. An update
is recorded only after its weights serve or were refused; its samples count as trained only with a
checkpoint, and what did not serve has none. A learner whose process dies is started again from the
last checkpoint and repeats the update.

Versions only ever count up: weights that come back from an earlier version serve as the next one,
by an update without a batch.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Literal

from clawrl_gym.config import LearnerConfig
from clawrl_gym.core.errors import ConfigError, LearnerDied, PolicyError, TrainerError
from clawrl_gym.core.metrics import REFUSED, RETURNED_TO, Timeline
from clawrl_gym.core.types import Sample, StepStats
from clawrl_gym.store import UpdateRow
from clawrl_gym.trainers.batch_queue import Batch
from clawrl_gym.trainers.interface import LearnerHandle
from clawrl_gym.trainers.no_gradient import NoGradient, no_gradient
from clawrl_gym.trainers.sample_batch import SampleBatch
from clawrl_gym.trainers.updates.guard import Guard
from clawrl_gym.trainers.versions.kept_versions import KeptVersions

_MOST_REFUSALS = 3
"""Most publications refused in a row before the run ends, or rolls back."""
Refused = Literal["update", "publication"]
"""Refused by the guards, or by an engine that has other weights than the learner."""
_RESTARTS = 2
"""Most repetitions of one update because the learner's process died."""


@dataclass(frozen=True, slots=True)
class Publication:
    """Result of publishing new weights."""

    pause_s: float = 0.0
    """Seconds for which requests waited."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    refusal: str | None = None
    """Why the older weights keep serving; None: the new ones serve."""


@dataclass(frozen=True, slots=True)
class Update:
    """One update that serves, or whose publication was refused."""

    version: int
    """Version of the new weights."""
    batch: Batch
    stats: StepStats | None
    """None when the batch held no signal: the weights stayed."""
    publish_pause_s: float
    waited_s: float
    checkpoint: str | None
    """Folder of the checkpoint; None: it was not due, or the weights do not serve."""
    events: Mapping[str, float] = field(default_factory=dict)
    """Other events, by metric name."""
    is_served: bool = True

    @property
    def row(self) -> UpdateRow:
        """The row that the store keeps."""
        stats = self.stats
        return UpdateRow(
            self.version,
            tokens=stats.tokens if stats else 0,
            duration_s=stats.duration_s if stats else 0.0,
            groups=self.batch.groups,
            metrics=(stats.metrics if stats else {}) | dict(self.events),
            group_ids=self.batch.group_ids,
        )


@dataclass(frozen=True, slots=True)
class _RollbackRequest:
    """A request for the weights of an earlier version."""

    version: int
    served_as: asyncio.Future[int]


@dataclass(slots=True)
class _Progress:
    """Progress of an update."""

    stats: StepStats | None = None
    publication: Publication | None = None
    checkpoint: str | None = None
    events: dict[str, float] = field(default_factory=dict)
    is_refused: bool = False
    """The guards refused it: the learner is as it was."""


class TrainLoop:
    """Drives one learner from `version` on."""

    def __init__(
        self,
        config: LearnerConfig,
        learner: LearnerHandle,
        next_batch: Callable[[int, int], Awaitable[Batch]],
        publish: Callable[[int], Awaitable[Publication]],
        on_update: Callable[[Update], Awaitable[None]],
        kept: KeptVersions,
        timeline: Timeline,
        say: Callable[[str], None] = lambda _: None,
        lock: AbstractAsyncContextManager[object] | None = None,
        guard: Guard | None = None,
        ended_by: Collection[Refused] = ("update", "publication"),
    ) -> None:
        """`say` gets a line for a learner that is restarted. `lock` is held through each update,
        where several loops share a learner; `guard` decides which updates serve, None: all do.
        `ended_by`: what ends it when it is refused again and again."""
        self._lock: AbstractAsyncContextManager[object] = nullcontext() if lock is None else lock
        self._config = config
        self._learner = learner
        self._next_batch = next_batch
        self._publish = publish
        self._on_update = on_update
        self._kept = kept
        self._timeline = timeline
        self._say = say
        self._guard = guard
        self._ended_by = ended_by
        self._refusals = 0
        """Refusals by the guard in a row."""
        self._unserved = 0
        """Refused publications in a row."""
        self._no_gradient: NoGradient | None = None
        """Why the last update had no gradient; None: it had one."""
        self._without_gradient = 0
        """Updates without a gradient, in a row."""
        self._owes_checkpoint = False
        """A checkpoint was due, and the weights that it would have held did not serve."""
        self._rollback_requests: asyncio.Queue[_RollbackRequest] = asyncio.Queue()

    async def run(
        self, version: int, steps: int, most_without_gradient: int | None = None
    ) -> NoGradient | None:
        """Update until the weights' version is `steps`, or until this many updates in a row had no
        gradient; then returns why the last one had none. None: there is no such limit."""
        most = math.inf if most_without_gradient is None else most_without_gradient
        try:
            while version < steps:
                version = await self._once(version, steps)
                if self._without_gradient >= most:
                    return self._no_gradient
            return None
        finally:
            while not self._rollback_requests.empty():
                _fail(self._rollback_requests.get_nowait(), TrainerError("the run ended"))

    async def _once(self, version: int, steps: int) -> int:
        """Make one update, or roll back to an earlier version; returns the version from then on."""
        waited_from_s = time.time()
        batch = await self._batch_or_rollback(version)
        if isinstance(batch, _RollbackRequest):
            return await self._rollback(batch, version)
        async with self._lock:
            waited_s = time.time() - waited_from_s
            self._timeline.add("train", "wait", waited_from_s, waited_from_s + waited_s)
            return await self._update(batch, version, waited_s, last=version + 1 == steps)

    async def rollback(self, version: int) -> int:
        """Have the weights of an earlier version serve again, once the current update is done;
        learning resumes from them. Returns the version that they serve as.

        Raises ConfigError for a version that is not kept, and what loading or publishing it raises.
        """
        request = _RollbackRequest(version, asyncio.get_running_loop().create_future())
        self._rollback_requests.put_nowait(request)
        return await request.served_as

    async def _batch_or_rollback(self, version: int) -> Batch | _RollbackRequest:
        """Whichever comes first; an incomplete batch keeps waiting in its queue.

        Who wants to go back waits for one update at most, however many batches there are.
        """
        if not self._rollback_requests.empty():
            return self._rollback_requests.get_nowait()
        batching = asyncio.ensure_future(self._next_batch(version, version))
        rolling_back = asyncio.ensure_future(self._rollback_requests.get())
        try:
            await asyncio.wait({batching, rolling_back}, return_when=asyncio.FIRST_COMPLETED)
            if batching.done():
                if rolling_back.done():  # it is the next one
                    self._rollback_requests.put_nowait(rolling_back.result())
                return await batching
            return await rolling_back
        finally:
            for task in (batching, rolling_back):
                task.cancel()
            await asyncio.gather(batching, rolling_back, return_exceptions=True)

    async def _rollback(self, request: _RollbackRequest, version: int) -> int:
        """Serve and learn from an earlier version; returns the version from then on."""
        try:
            async with self._lock:
                if request.served_as.cancelled():
                    return version
                kept = self.kept_versions()
                if request.version not in kept or request.version > version:
                    raise ConfigError(
                        f"got version {request.version}, expected one that is kept: "
                        f"{', '.join(map(str, kept))}"
                    )
                update = await self._publish_earlier(version, request.version)
                await asyncio.shield(self._on_update(update))
        except ConfigError as error:
            _fail(request, error)
            return version
        except BaseException as error:
            _fail(request, error if isinstance(error, Exception) else TrainerError("the run ended"))
            raise
        if not request.served_as.done():
            request.served_as.set_result(update.version)
        return update.version

    def kept_versions(self) -> list[int]:
        """Versions whose weights can serve again; 0 is what the run began with."""
        return self._kept.all()

    async def _publish_earlier(self, version: int, earlier: int) -> Update:
        new = version + 1
        with self._timeline.span("train", "return", version=new, to=earlier):
            if self._kept.needs_checkpoint(version):  # where it resumes if that fails
                await self._learner.save_checkpoint(str(self._kept.folder(version)))
            await self._load(earlier, version)
            publication, folder = await self._serve_again(earlier, new)
            if publication.refusal is not None:
                await self._learner.restart(self._kept.to_restart_at(version))
                raise ConfigError(f"version {earlier} cannot come back: {publication.refusal}")
        self._say(f"the weights of version {earlier} are back, as version {new}")
        nothing = Batch(version, 0, [], 0)
        events = {**publication.metrics, RETURNED_TO: float(earlier)}
        return Update(new, nothing, None, publication.pause_s, 0.0, folder, events)

    async def _serve_again(self, earlier: int, new: int) -> tuple[Publication, str]:
        """Publish and keep what the learner has loaded; one that dies meanwhile loads it again."""
        publication, folder = None, ""
        for attempt in range(_RESTARTS + 1):
            try:
                if attempt:
                    await self._learner.restart(self._kept.checkpoint(earlier))
                publication = publication or await self._publish_version(new)
                if publication.refusal is None:
                    folder = await self._keep_again(earlier, new)
                break
            except LearnerDied as error:
                if attempt == _RESTARTS:
                    raise
                self._say(f"{error}; starting it again at version {earlier}")
        assert publication is not None
        return publication, folder

    async def _load(self, earlier: int, version: int) -> None:
        """Put the learner into its state at a kept version.

        Raises ConfigError for one that it cannot read: it is as it was at `version` then.
        """
        checkpoint = self._kept.checkpoint(earlier)
        try:
            if checkpoint is None:
                await self._learner.reset()
            else:
                await self._learner.load_checkpoint(checkpoint)
        except LearnerDied as error:
            self._say(f"{error}; starting it again at version {earlier}")
            await self._learner.restart(checkpoint)
        except TrainerError as error:
            await self._learner.restart(self._kept.to_restart_at(version))
            raise ConfigError(f"version {earlier} cannot come back: {error}") from error

    async def _keep_again(self, earlier: int, new: int) -> str:
        """Checkpoint of a version that repeats an earlier one; it takes no room."""
        folder = str(self._kept.folder(new))
        if not await asyncio.to_thread(self._kept.keep_again, earlier, new):
            await self._learner.save_checkpoint(folder)
        return folder

    async def _update(self, batch: Batch, version: int, waited_s: float, last: bool) -> int:
        new = version + 1
        progress = _Progress()
        for attempt in range(_RESTARTS + 1):
            try:
                if attempt:
                    await self._restart(version)
                await self._advance(progress, batch, version, last)
                break
            except LearnerDied as error:
                if attempt == _RESTARTS:
                    raise
                self._say(f"{error}; starting it again from version {version}")
        publication = progress.publication or Publication()
        progress.events |= self._note_gradient(batch, progress.stats, new)
        update = Update(
            new,
            batch,
            progress.stats,
            publication.pause_s,
            waited_s,
            progress.checkpoint,
            {**progress.events, **publication.metrics},
            is_served=publication.refusal is None,
        )
        await asyncio.shield(self._on_update(update))
        return new

    def _note_gradient(
        self, batch: Batch, stats: StepStats | None, version: int
    ) -> Mapping[str, float]:
        """Report why an update had no gradient, and count those in a row; returns its metrics."""
        before, found = self._no_gradient, no_gradient(batch, stats)
        self._no_gradient = found
        if found is None:
            self._without_gradient = 0
            return {}
        self._without_gradient += 1
        again = before is not None and before.cause == found.cause
        self._say(found.line(version, again=again))
        return found.metrics()

    async def _restart(self, version: int) -> None:
        began_s = time.monotonic()
        with self._timeline.span("train", "revive", version=version):
            await self._learner.restart(self._kept.to_restart_at(version))
        self._say(f"the learner works again after {time.monotonic() - began_s:.1f} s")

    async def _advance(self, progress: _Progress, batch: Batch, version: int, last: bool) -> None:
        """Step, publish, checkpoint; what a learner that died had published is not repeated."""
        new = version + 1
        if batch.samples:
            await self._step(progress, batch.samples, version)
        if progress.publication is None:
            progress.publication = await self._publish_version(new)
        # what a guard refuses goes back to the checkpoint before
        is_due = last or self._guard is not None
        if is_due or await asyncio.to_thread(self._kept.is_due, new):
            self._owes_checkpoint = True
        if self._is_accepted(progress):
            assert self._guard is not None
            await self._guard.serves(new, batch.samples)
        if not self._owes_checkpoint or progress.publication.refusal is not None:
            return
        folder = str(self._kept.folder(new))
        with self._timeline.span("train", "checkpoint", version=new):
            if progress.is_refused:
                await self._keep_again(self._kept.newest(version), new)
            else:
                await self._learner.save_checkpoint(folder)
        progress.checkpoint = folder
        self._owes_checkpoint = False

    def _is_accepted(self, progress: _Progress) -> bool:
        """Whether the weights that the guard decided on serve now."""
        publication = progress.publication
        is_served = publication is not None and publication.refusal is None
        return (
            self._guard is not None
            and progress.stats is not None
            and is_served
            and not progress.is_refused
        )

    async def _step(self, progress: _Progress, samples: list[Sample], version: int) -> None:
        """Update the learner, and undo it where the guards refuse it. Raises TrainerError when they
        do so again and again, where that ends it."""
        new, guard = version + 1, self._guard
        if progress.publication is not None:  # the learner died: what serves is made once more
            if progress.is_refused:
                return
            guard = None
        progress.is_refused = False
        if guard is not None:
            await guard.serving(version)
            await guard.before(samples)
        with self._timeline.span("train", "step", version=new, samples=len(samples)):
            progress.stats = await self._learner.step(SampleBatch.of(samples), version)
        if guard is None:
            return
        decision = await guard.decide(samples, progress.stats)
        progress.events = decision.metrics
        if not decision.refusals:
            self._refusals = 0
            return
        self._refusals += 1
        why = "; ".join(decision.refusals)
        if self._refusals % self._config.guards.most_refusals == 0:
            if "update" in self._ended_by:
                raise TrainerError(
                    f"{self._refusals} updates in a row were refused, the last one because {why}: "
                    "look at what the policy learns from, lower learner.lr, raise the threshold, "
                    "or take learner.publish=always"
                )
            self._say(
                f"WARNING: {self._refusals} updates in a row were refused and undone; the last "
                "good weights keep serving. Look at what the policy learns from "
                "(metrics.jsonl: guard/*), lower learner.lr, or raise the threshold"
            )
        kept = self._kept.newest(version)
        self._say(f"update {new} is undone, version {kept} keeps serving as {new}: {why}")
        await self._load(kept, version)
        progress.is_refused = True
        progress.events |= {REFUSED: 1.0} | {f"{REFUSED}/{name}": 1.0 for name in decision.guards}

    async def _publish_version(self, version: int) -> Publication:
        """Publish the weights. A refused version leaves the older weights in service and gets no
        checkpoint: whoever resumes the run, or a version of it, takes one that served. Learning
        continues, and the next version is published again. Raises PolicyError when that happens
        again and again, or resumes from the last weights that served."""
        with self._timeline.span("serve", "swap", version=version):
            publication = await self._publish(version)
        if publication.refusal is None:
            self._unserved = 0
            return publication
        self._unserved += 1
        self._say(
            f"version {version} is neither served nor kept, the one before keeps serving: "
            f"{publication.refusal}"
        )
        if self._unserved % _MOST_REFUSALS == 0:
            if "publication" in self._ended_by:
                raise PolicyError(
                    f"{self._unserved} publications in a row were refused, the last one because "
                    f"{publication.refusal}"
                )
            kept = self._kept.newest(version)
            self._say(
                f"WARNING: {self._unserved} publications in a row were refused; the weights of "
                f"version {kept} keep serving, and learning resumes from them"
            )
            await self._load(kept, kept)
        return publication


def _fail(request: _RollbackRequest, error: Exception) -> None:
    if not request.served_as.done():
        request.served_as.set_exception(error)
