"""A service whose new weights are worse goes back by itself, says so, and learns nothing of them.

Real are the store, the collector, the queue with its shares, the loop, the guard with its canaries
and the watch over complaints; the learner's weights are one number, how good replies are.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.config import LearnerConfig, LiveConfig
from clawrl_gym.core.metrics import REFUSED, RETURNED_TO, Timeline
from clawrl_gym.core.types import Sample, StepStats, Turn, Verdict
from clawrl_gym.rollout.collection.live_collector import LiveCollector
from clawrl_gym.serving.complaint_watch import COMPLAINTS_FILE, ComplaintWatch
from clawrl_gym.store import JudgedTurn, SessionRow, Store
from clawrl_gym.trainers.algorithms.binary import Binary
from clawrl_gym.trainers.batch_queue import Batch, BatchQueue
from clawrl_gym.trainers.loop import Publication, TrainLoop, Update
from clawrl_gym.trainers.sample_batch import SampleBatch
from clawrl_gym.trainers.updates.canaries import CANARIES_FILE, Canaries, Exchange
from clawrl_gym.trainers.updates.guard import Guard, Review
from clawrl_gym.trainers.user_queues import UserQueues
from clawrl_gym.trainers.user_share import UserShare
from clawrl_gym.trainers.versions.complaints import Complaints
from clawrl_gym.trainers.versions.kept_versions import KeptVersions
from clawrl_gym.trainers.versions.retention import Retention
from tests.support.waiting import until

PEOPLE = ("", "anna", "ben", "cleo")
LIVE = LiveConfig(batch_turns=8, flush_s=3600.0)
SHARE = UserShare(0.25, lambda: len(PEOPLE))


@dataclass
class NumberLearner:
    """Weights are how good replies are; each step changes that by what `changes` says, else not."""

    changes: dict[int, float] = field(default_factory=dict)
    seen_by_canaries: bool = True
    weights: float = 1.0
    trained: list[Sample] = field(default_factory=list)
    read: list[int | None] = field(default_factory=list)
    """Turns whose replies were read."""

    async def step(self, batch: SampleBatch, version: int) -> StepStats:
        self.weights += self.changes.get(version + 1, 0.0)
        self.trained += batch.samples()
        return StepStats({"learner/loss": 0.5, "learner/grad_norm": 1.0}, 2, 0.1)

    async def review(self, batch: SampleBatch) -> Review:
        samples = batch.samples()
        self.read += [sample.turn_id for sample in samples]
        likely = self.weights - 2.0 if self.seen_by_canaries else -1.0
        return Review(0.5, [[likely] * sum(sample.mask_T) for sample in samples])

    async def save_checkpoint(self, folder: str) -> None:
        await asyncio.to_thread(Path(folder).mkdir, parents=True)
        await asyncio.to_thread(Path(folder, "weights").write_text, str(self.weights))

    async def load_checkpoint(self, folder: str) -> None:
        self.weights = float(await asyncio.to_thread(Path(folder, "weights").read_text))

    async def reset(self) -> None:
        self.weights = 1.0

    async def restart(self, checkpoint: str | None) -> None:
        raise AssertionError("it does not die")


async def one_canary(known: Collection[str]) -> list[Exchange]:
    return [] if "hello" in known else [Exchange("hello", [1], [2, 3])]


class Service:
    """One process of a service, without vLLM and gateway."""

    def __init__(self, folder: Path, store: Store, learner: NumberLearner) -> None:
        self.folder, self.store, self.learner = folder, store, learner
        self.said: list[str] = []
        self.version, self.serving = 0, learner.weights
        self.returns = self.turns = 0
        queues = UserQueues(lambda user: BatchQueue.live(LIVE, store, user, SHARE))
        self.queue = queues.own
        self.watch = ComplaintWatch(Complaints(0.1, share=SHARE), folder, self.said.append)
        self.collector = LiveCollector(
            LIVE, store, Binary(0.95), queues, judged=False, on_judged=self._judged
        )
        canaries = Canaries(learner.review, one_canary, folder / CANARIES_FILE, share=SHARE)
        config = LearnerConfig(publish="if_not_worse")
        self.guard = Guard(config.guards, learner, canaries)
        self.timeline = Timeline(folder)
        self.retention = Retention(config, folder / "checkpoints")
        self.loop = TrainLoop(
            config, learner, self._next_batch, self._publish, self._recorded,
            KeptVersions(config, folder / "checkpoints"), self.timeline, say=self.said.append,
            guard=self.guard, ended_by=(),
        )  # fmt: skip
        self.updates: list[Update] = []

    def _judged(self, turn: Turn, verdict: Verdict) -> None:
        self.watch.judged(JudgedTurn(turn.session_id, max(turn.versions_T), verdict))

    async def _next_batch(self, number: int, version: int) -> Batch:
        return await self.queue.batch(number, version)

    async def _publish(self, version: int) -> Publication:
        self.version, self.serving = version, self.learner.weights
        return Publication()

    async def _recorded(self, update: Update) -> None:
        ids = [sample.id for sample in update.batch.samples if sample.id is not None]
        await self.store.add_update(update.row, ids, update.checkpoint)
        self._take_back(update.row)
        self.updates.append(update)
        await self.retention.recorded(update.checkpoint)

    def _take_back(self, row: Any) -> None:
        if RETURNED_TO in row.metrics:
            self.queue.take_back(range(int(row.metrics[RETURNED_TO]) + 1, row.version))
        self.watch.updated(row)

    def _on_rollback(self) -> None:
        self.returns += 1

    async def begin(self) -> list[asyncio.Task[Any]]:
        updates = await self.store.updates()
        self.version = updates[-1].version if updates else 0
        for row in updates:
            self._take_back(row)
        await self.watch.restore(self.store, updates, self.version)
        self.guard.restore(await self.store.praised_samples(100))
        await self.collector.restore()
        return [
            asyncio.create_task(self.collector.run()),
            asyncio.create_task(self.loop.run(self.version, 10_000)),
            asyncio.create_task(self.watch.run(self.loop, lambda: self.version, self._on_rollback)),
        ]

    async def talk(self, turns: int, users: Collection[str] = PEOPLE) -> None:
        """Each user in turn says what the reply was worth: every fifth good one is complained of,
        and all bad ones are."""
        for number in range(turns):
            user = list(users)[number % len(users)]
            self.turns += 1
            name = f"{time.time_ns()}-{self.turns}"
            session = f"{user}/{name}" if user else name
            now_s = time.time()
            await self.store.add_session(SessionRow(session, None, None, "train", "live", now_s))
            turn = Turn(
                session, 0, "main", [1, 2], [4, 5], [-0.5, -0.5], [self.version] * 2, "stop",
                [{"role": "user", "content": "Hello"}], {"role": "assistant", "content": "Hi"},
                now_s,
            )  # fmt: skip
            turn = replace(turn, id=await self.store.add_turn(turn))
            value: Any = -1 if self.serving < 0.5 or self.turns % 5 == 0 else 1
            verdict = Verdict(turn.id or 0, "feedback", value, float(value), {}, now_s)
            verdict = replace(verdict, id=await self.store.add_verdict(verdict))
            self.collector.verdict(verdict)
            await self.collector.settled()
            for _ in range(20):  # what is due is learned, and what is worse goes back
                await asyncio.sleep(0.001)


@asynccontextmanager
async def serving(folder: Path, learner: NumberLearner) -> AsyncIterator[Service]:
    store = Store.open(folder)
    service = Service(folder, store, learner)
    with closing(service.timeline):
        running = await service.begin()
        try:
            yield service
            for task in running:
                if task.done():
                    task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await store.close()


def ways_back(service: Service) -> list[tuple[int, int]]:
    return [
        (update.version, int(update.events[RETURNED_TO]))
        for update in service.updates
        if RETURNED_TO in update.events
    ]


@pytest.mark.parametrize("bad_version", [6, 7, 9])
async def test_a_version_that_people_complain_about_is_taken_back_and_not_learned_from(
    tmp_path: Path, bad_version: int
) -> None:
    learner = NumberLearner({bad_version: -1.0}, seen_by_canaries=False)
    async with serving(tmp_path, learner) as service:
        await service.talk(8 * (bad_version + 8))
        await until(lambda: service.returns == 1)
        ((back, to),) = ways_back(service)
        assert to < bad_version < back
        assert service.serving == learner.weights == 1.0
        (line,) = [line for line in service.said if "are complained about" in line]
        assert line.startswith("WARNING:")
        assert f"version {to} is put back into service" in line
        before = len(service.updates)
        await service.talk(32)
        assert len(service.updates) > before, "it learns on"
        later = [u for u in service.updates if u.version > back]
        between = range(to + 1, back)
        sampled = {v for update in later for s in update.batch.samples for v in s.versions_T}
        assert sampled.isdisjoint(between)
        assert service.returns == 1
        assert json.loads((tmp_path / COMPLAINTS_FILE).read_text())["good"] >= back


async def test_one_user_alone_takes_no_version_back(tmp_path: Path) -> None:
    learner = NumberLearner(seen_by_canaries=False)
    async with serving(tmp_path, learner) as service:
        await service.talk(64)
        for _ in range(8):
            await service.talk(6, ["", "ben", "cleo"])
            service.serving = 0.0
            await service.talk(10, ["anna"])
            service.serving = learner.weights
        assert service.returns == 0
        assert not any("complained" in line for line in service.said)


async def test_a_version_on_trial_stays_on_trial_after_a_restart(tmp_path: Path) -> None:
    learner = NumberLearner({7: -1.0}, seen_by_canaries=False)
    async with serving(tmp_path, learner) as service:
        while service.version < 7:
            await service.talk(4)
        await service.talk(8)
        assert service.returns == 0, "there are too few complaints yet"
    async with serving(tmp_path, learner) as again:
        again.serving = learner.weights
        await again.talk(48)
        await until(lambda: again.returns == 1)
        ((_, to),) = ways_back(again)
        assert to < 7
        assert learner.weights == 1.0
    async with serving(tmp_path, learner) as third:
        third.serving = learner.weights
        await third.talk(48)
        assert third.returns == 0, "what was taken back is no measure any more"


async def test_an_update_that_canaries_lose_by_never_serves_and_is_undone(tmp_path: Path) -> None:
    learner = NumberLearner({4: -0.5})
    async with serving(tmp_path, learner) as service:
        await service.talk(8 * 6)
        await until(lambda: service.version >= 5)
        refused = [update for update in service.updates if REFUSED in update.events]
        assert [update.version for update in refused] == [4]
        assert refused[0].events[f"{REFUSED}/canary"] == 1.0
        assert service.serving == learner.weights == 1.0
        (line,) = [line for line in service.said if "is undone" in line]
        assert "version 3 keeps serving as 4" in line
        assert "learner.guards.canary" in line
        gone = {sample.id for sample in refused[0].batch.samples}
        others = [u for u in service.updates if REFUSED not in u.events]
        assert gone.isdisjoint({sample.id for u in others for sample in u.batch.samples})


async def test_praised_turns_are_canaries_again_after_a_restart(tmp_path: Path) -> None:
    learner = NumberLearner()
    async with serving(tmp_path, learner) as service:
        await service.talk(24)
        await until(lambda: service.version >= 2)
        praised = {sample.turn_id for sample in learner.trained if sample.reward > 0}
    learner.read.clear()
    async with serving(tmp_path, learner) as again:
        await again.talk(12)
        await until(lambda: bool(again.updates))
        now = {sample.turn_id for update in again.updates for sample in update.batch.samples}
        assert praised & (set(learner.read) - now)


async def test_what_a_refused_update_learned_of_is_no_canary(tmp_path: Path) -> None:
    learner = NumberLearner({1: -0.5})
    async with serving(tmp_path, learner) as service:
        await service.talk(12)
        await until(lambda: service.version >= 1)
        assert [u.version for u in service.updates if REFUSED in u.events] == [1]
        refused = {f"turn {s.turn_id}" for s in service.updates[0].batch.samples}
        assert {f"turn {s.turn_id}" for s in await service.store.praised_samples(100)}.isdisjoint(
            refused
        )


async def test_a_file_that_cannot_be_read_puts_all_versions_on_trial(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / COMPLAINTS_FILE).write_text("{")
    async with serving(tmp_path, NumberLearner()) as service:
        await service.talk(12)
        assert service.version == 1
    assert "cannot be read" in caplog.text
