"""The training loop: order of an update, and a learner that dies in the middle of one."""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from clawrl_gym.config import LearnerConfig
from clawrl_gym.core.errors import ConfigError, LearnerDied, PolicyError, TrainerError
from clawrl_gym.core.metrics import Timeline
from clawrl_gym.core.types import Sample, StepStats
from clawrl_gym.inference.weights.checkpoints import list_checkpoints
from clawrl_gym.trainers.batch_queue import Batch
from clawrl_gym.trainers.loop import Publication, Refused, TrainLoop, Update
from clawrl_gym.trainers.sample_batch import SampleBatch
from clawrl_gym.trainers.updates.guard import Decision, Guard
from clawrl_gym.trainers.versions.kept_versions import KeptVersions
from clawrl_gym.trainers.versions.retention import Retention
from tests.support.waiting import until


def sample() -> Sample:
    return Sample("s", 0, [1, 2], [False, True], [0.0, -1.0], [-1, 0], [0.0, 1.0], 1.0)


class FakeLearner:
    """Notes its calls; dies at the calls that `deaths` names, each once."""

    def __init__(self, deaths: list[str]) -> None:
        self.deaths = deaths
        self.calls: list[str] = []

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name in self.deaths:
            self.deaths.remove(name)
            raise LearnerDied(f"died in {name}")

    async def step(self, batch: SampleBatch, version: int) -> StepStats:
        self._call(f"step {version}")
        return StepStats({"learner/loss": 0.5}, 2, 0.1)

    async def save_weights(self, folder: str) -> None:
        self._call("weights")

    async def save_checkpoint(self, folder: str) -> None:
        self._call(f"checkpoint {Path(folder).name}")
        await asyncio.to_thread(Path(folder).mkdir, parents=True)

    async def load_checkpoint(self, folder: str) -> None:
        self._call(f"load {Path(folder).name}")

    async def reset(self) -> None:
        self._call("reset")

    async def restart(self, checkpoint: str | None) -> None:
        self._call(f"restart {Path(checkpoint).name if checkpoint else 'first weights'}")


async def run(
    folder: Path,
    learner: FakeLearner,
    steps: int,
    config: LearnerConfig | None = None,
    best: int | None = None,
    guard: Guard | None = None,
    refused: Collection[int] = (),
    ended_by: Collection[Refused] = ("update", "publication"),
) -> tuple[list[Update], list[int]]:
    published: list[int] = []
    updates: list[Update] = []

    async def next_batch(number: int, version: int) -> Batch:
        return Batch(number, 1, [sample()], 1)

    async def publish(version: int) -> Publication:
        await learner.save_weights(str(folder))
        published.append(version)
        refusal = "it has not arrived" if version in refused else None
        return Publication(0.1, {"learner/refused": float(version in refused)}, refusal)

    config = config or LearnerConfig()
    retention = Retention(config, folder / "c")

    async def on_update(update: Update) -> None:
        updates.append(update)
        await retention.recorded(
            update.checkpoint, lambda kept: [one for one in kept if one == best]
        )

    timeline = Timeline(folder)
    loop = TrainLoop(
        config,
        learner,
        next_batch,
        publish,
        on_update,
        KeptVersions(config, folder / "c"),
        timeline,
        learner.calls.append,
        guard=guard,
        ended_by=ended_by,
    )
    with closing(timeline):
        await loop.run(0, steps)
    return updates, published


async def test_an_update_is_stepped_published_checkpointed_and_told_in_this_order(
    tmp_path: Path,
) -> None:
    learner = FakeLearner([])
    updates, published = await run(tmp_path, learner, 2)
    assert learner.calls == [
        "step 0", "weights", "checkpoint 000001", "step 1", "weights", "checkpoint 000002",
    ]  # fmt: skip
    assert published == [update.version for update in updates] == [1, 2]


@pytest.mark.parametrize(
    ("death", "version"), [("step 1", 1), ("weights", 0), ("checkpoint 000002", 1)]
)
async def test_a_learner_that_dies_goes_on_from_the_last_checkpoint_and_repeats_the_update(
    tmp_path: Path, death: str, version: int
) -> None:
    learner = FakeLearner([death])
    updates, published = await run(tmp_path, learner, 3)
    assert published == [1, 2, 3], "nothing is published twice"
    assert [update.version for update in updates] == [1, 2, 3]
    restarted = f"restart {version:06d}" if version else "restart first weights"
    assert restarted in learner.calls
    assert learner.calls.count(f"step {version}") == 2, "the same batch is stepped again"


async def test_a_publication_that_is_refused_is_told_and_the_next_one_is_tried(
    tmp_path: Path,
) -> None:
    learner = FakeLearner([])
    updates, published = await run(tmp_path, learner, 5, refused=[1, 2, 4])
    assert published == [update.version for update in updates] == [1, 2, 3, 4, 5]
    assert [update.events["learner/refused"] for update in updates] == [1, 1, 0, 1, 0]
    told = "version 2 is neither served nor kept, the one before keeps serving: it has not arrived"
    assert learner.calls.count(told) == 1
    assert not any(call.startswith("restart") for call in learner.calls)
    assert [update.is_served for update in updates] == [False, False, True, False, True]


async def test_what_was_not_served_has_no_checkpoint_that_a_resume_or_an_export_could_take(
    tmp_path: Path,
) -> None:
    every = LearnerConfig(checkpoint_every=2, keep_checkpoints=9)
    updates, _ = await run(tmp_path, FakeLearner([]), 6, every, refused=[2, 6])
    assert [update.version for update in updates if update.checkpoint] == [3, 4], "2 is made up for"
    assert list(list_checkpoints(tmp_path / "c")) == [3, 4]
    config = LearnerConfig(publish="if_not_worse")
    learner, guard = FakeLearner([]), Refusing(config, [2])
    updates, _ = await run(tmp_path / "b", learner, 3, config, guard=guard, refused=[2])
    assert "update 3 is undone, version 1 keeps serving as 3: it is worse" in learner.calls
    assert "load 000001" in learner.calls
    assert list(list_checkpoints(tmp_path / "b" / "c")) == [1, 3]


async def test_publications_that_are_refused_in_a_row_end_the_run(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"3 publications in a row were refused, .* not arrived"):
        await run(tmp_path, FakeLearner([]), 9, refused=range(2, 9))


async def test_an_earlier_version_that_is_refused_leaves_learner_and_service_as_they_are(
    tmp_path: Path,
) -> None:
    async with Serving(tmp_path, FakeLearner([])) as serving:
        await serving.update()
        await serving.update()
        serving.refused.add(3)
        with pytest.raises(ConfigError, match="version 1 cannot come back: it has not arrived"):
            await serving.loop.rollback(1)
        assert serving.learner.calls[-1] == "restart 000002"
        serving.refused.clear()
        assert (await serving.update()).version == 3


async def test_a_death_and_a_restart_are_told_and_one_that_dies_in_it_is_restarted_again(
    tmp_path: Path,
) -> None:
    learner = FakeLearner(["step 1", "restart 000001"])
    _, published = await run(tmp_path, learner, 2)
    assert published == [1, 2]
    death = learner.calls.index("died in step 1; starting it again from version 1")
    assert learner.calls[death + 1 :][:3] == [
        "restart 000001",
        "died in restart 000001; starting it again from version 1",
        "restart 000001",
    ]
    assert any(call.startswith("the learner works again after") for call in learner.calls)


async def test_a_learner_that_dies_again_and_again_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(LearnerDied):
        await run(tmp_path, FakeLearner(["step 0"] * 5), 1)


async def test_without_a_checkpoint_of_the_serving_weights_a_death_is_told(tmp_path: Path) -> None:
    config = LearnerConfig(checkpoint_every=5)
    with pytest.raises(TrainerError, match=r"version 1, which has no checkpoint.*resume="):
        await run(tmp_path, FakeLearner(["step 1"]), 3, config)


@pytest.mark.parametrize(("best", "kept"), [(None, [5, 6]), (2, [2, 5, 6]), (6, [5, 6])])
async def test_the_newest_checkpoints_and_the_best_are_kept(
    tmp_path: Path, best: int | None, kept: list[int]
) -> None:
    (tmp_path / "c" / ".000001.pruned" / "left by a kill").mkdir(parents=True)
    await run(tmp_path, FakeLearner([]), 6, LearnerConfig(keep_checkpoints=2), best)
    assert list(list_checkpoints(tmp_path / "c")) == kept
    assert len(list((tmp_path / "c").iterdir())) == len(kept), "nothing half deleted is left"


class LargeLearner(FakeLearner):
    """Its checkpoints have 2.5 GiB, of which the disk holds nothing."""

    async def save_checkpoint(self, folder: str) -> None:
        await super().save_checkpoint(folder)
        state = Path(folder) / "learner" / "state.pt"
        await asyncio.to_thread(state.parent.mkdir)
        with state.open("wb") as file:
            file.truncate(5 << 29)


async def test_large_checkpoints_are_rare_and_only_the_newest_keeps_the_optimizer(
    tmp_path: Path,
) -> None:
    learner = LargeLearner([])
    updates, _ = await run(tmp_path, learner, 8, LearnerConfig(keep_checkpoints=3))
    assert [u.version for u in updates if u.checkpoint] == [1, 4, 7, 8]
    folders = list_checkpoints(tmp_path / "c")
    assert list(folders) == [4, 7, 8]
    assert [(folder / "learner").is_dir() for folder in folders.values()] == [False, False, True]
    assert len(list((tmp_path / "c").iterdir())) == 3


@pytest.mark.parametrize(("keep", "kept"), [(2, [19, 20]), ("auto", list(range(5, 21)))])
async def test_small_checkpoints_are_kept_to_go_back_to(
    tmp_path: Path, keep: object, kept: list[int]
) -> None:
    config = LearnerConfig.model_validate({"keep_checkpoints": keep})
    await run(tmp_path, FakeLearner([]), 20, config)
    assert list(list_checkpoints(tmp_path / "c")) == kept


class Refusing(Guard):
    """Refuses the updates from some versions on."""

    def __init__(self, config: LearnerConfig, refused: list[int]) -> None:
        self.refused = refused
        self.version = -1

    async def before(self, samples: Sequence[Sample]) -> None:
        self.version += 1

    async def decide(self, samples: Sequence[Sample], stats: StepStats) -> Decision:
        why = ["it is worse"] if self.version in self.refused else []
        return Decision({"guard/replay": 0.5}, why)


async def guarded(folder: Path, learner: FakeLearner, refused: list[int]) -> list[Update]:
    config = LearnerConfig(publish="if_not_worse")
    updates, published = await run(folder, learner, 4, config, guard=Refusing(config, refused))
    assert published == [1, 2, 3, 4]
    return updates


async def test_an_update_that_is_worse_is_undone_and_its_batch_is_used(tmp_path: Path) -> None:
    learner = FakeLearner([])
    updates = await guarded(tmp_path, learner, [2])
    assert [update.events.get("guard/refused") for update in updates] == [None, None, 1.0, None]
    assert all(update.batch.groups == 1 and update.checkpoint for update in updates)
    at = learner.calls.index("step 2")
    said, *calls = learner.calls[at + 1 : at + 5]
    assert said == "update 3 is undone, version 2 keeps serving as 3: it is worse"
    assert calls == ["load 000002", "weights", "step 3"], "its checkpoint is that of version 2"


async def test_the_first_update_is_undone_too(tmp_path: Path) -> None:
    learner = FakeLearner([])
    await guarded(tmp_path, learner, [0])
    assert learner.calls[2:4] == ["reset", "weights"]


async def test_a_refused_update_is_not_made_again_once_what_was_before_it_serves(
    tmp_path: Path,
) -> None:
    learner = FakeLearner(["checkpoint 000001"])
    updates = await guarded(tmp_path, learner, [0])
    assert updates[0].events["guard/refused"] == 1.0
    assert learner.calls.count("step 0") == 1


async def test_an_update_that_is_made_again_may_serve_after_all(tmp_path: Path) -> None:
    class DiesLate(FakeLearner):
        """Once, when the second version is published."""

        weights = 0

        async def save_weights(self, folder: str) -> None:
            self.weights += 1
            if self.weights == 2:
                raise LearnerDied("died in weights")
            await super().save_weights(folder)

    learner = DiesLate([])
    updates = await guarded(tmp_path, learner, [1])
    assert "guard/refused" not in updates[1].events
    assert learner.calls.count("step 1") == 2
    assert "checkpoint 000002" in learner.calls, "not that of version 1 once more"


async def test_updates_that_are_refused_again_and_again_end_the_run(tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match=r"3 updates in a row were refused.*it is worse.*lr"):
        await guarded(tmp_path, FakeLearner([]), [1, 2, 3])
    await guarded(tmp_path / "b", FakeLearner([]), [0, 1, 3])


class Serving:
    """A loop whose batches come when they are given, as those of live conversations do."""

    def __init__(self, folder: Path, learner: FakeLearner) -> None:
        self.learner = learner
        self.batches: asyncio.Queue[Batch] = asyncio.Queue()
        self.updates: asyncio.Queue[Update] = asyncio.Queue()
        self.published: list[int] = []
        self.refused: set[int] = set()
        self.dies_in: set[int] = set()
        """Publications in which the learner dies, each once."""
        self.asked = 0
        self.timeline = Timeline(folder)
        config = LearnerConfig(keep_checkpoints=3)
        self.retention = Retention(config, folder / "c")
        self.loop = TrainLoop(
            config,
            learner,
            self._next_batch,
            self._publish,
            self._on_update,
            KeptVersions(config, folder / "c"),
            self.timeline,
        )

    async def _on_update(self, update: Update) -> None:
        await self.updates.put(update)
        await self.retention.recorded(update.checkpoint)

    async def _next_batch(self, number: int, version: int) -> Batch:
        self.asked += 1
        return await self.batches.get()

    async def _publish(self, version: int) -> Publication:
        self.published.append(version)
        if version in self.dies_in:
            self.dies_in.remove(version)
            raise LearnerDied("died in save_weights")
        if version in self.refused:
            return Publication(refusal="it has not arrived")
        return Publication(0.1)

    async def update(self) -> Update:
        self.batches.put_nowait(Batch(0, 1, [sample()], 1))
        return await self.updates.get()

    async def __aenter__(self) -> "Serving":
        self._running = asyncio.create_task(self.loop.run(0, 10_000))
        return self

    def stop(self) -> None:
        self._running.cancel()

    async def __aexit__(self, *_: object) -> None:
        self.stop()
        with pytest.raises(asyncio.CancelledError):
            await self._running
        self.timeline.close()


async def test_weights_of_an_earlier_version_come_back_as_the_next_one(tmp_path: Path) -> None:
    async with Serving(tmp_path, FakeLearner([])) as serving:
        await serving.update()
        (tmp_path / "c" / "000001" / "weights").write_text("of version 1")
        await serving.update()
        served_as = await serving.loop.rollback(1)
        back = await serving.updates.get()
        assert served_as == back.version == 3
        assert (back.batch.groups, back.batch.samples, back.stats) == (0, [], None)
        assert back.events == {"learner/returned_to": 1.0}
        assert back.checkpoint == str(tmp_path / "c" / "000003")
        assert (tmp_path / "c" / "000003" / "weights").read_text() == "of version 1"
        assert serving.published == [1, 2, 3]
        assert serving.learner.calls[-1] == "load 000001", "it learns on from there"
        after = await serving.update()
        assert after.version == 4
        assert "step 3" in serving.learner.calls
        assert {0, 3, 4} <= set(serving.loop.kept_versions())


async def test_the_way_back_waits_for_one_update_at_most(tmp_path: Path) -> None:
    async with Serving(tmp_path, FakeLearner([])) as serving:
        await serving.update()
        for _ in range(50):
            serving.batches.put_nowait(Batch(0, 1, [sample()], 1))
        assert await serving.loop.rollback(1) <= 4
        while (await serving.updates.get()).version < 52:
            pass


async def test_who_wants_to_go_back_as_a_batch_comes_does_so_after_it(tmp_path: Path) -> None:
    async with Serving(tmp_path, FakeLearner([])) as serving:
        await serving.update()
        await until(lambda: serving.asked == 2)
        serving.batches.put_nowait(Batch(0, 1, [sample()], 1))
        assert await serving.loop.rollback(1) == 3
        assert [(await serving.updates.get()).batch.groups for _ in range(2)] == [1, 0]


async def test_who_waits_to_go_back_when_the_run_ends_is_told(tmp_path: Path) -> None:
    async with Serving(tmp_path, FakeLearner([])) as serving:
        await serving.update()
        serving.batches.put_nowait(Batch(0, 1, [sample()], 1))
        requests = [asyncio.create_task(serving.loop.rollback(1)) for _ in range(2)]
        await asyncio.sleep(0)
        serving.stop()
        ended = await asyncio.gather(*requests, return_exceptions=True)
    assert [(type(error), str(error)) for error in ended] == [(TrainerError, "the run ended")] * 2


async def test_what_a_run_began_with_comes_back(tmp_path: Path) -> None:
    async with Serving(tmp_path, FakeLearner([])) as serving:
        await serving.update()
        assert await serving.loop.rollback(0) == 2
        assert serving.learner.calls[-2:] == ["reset", "checkpoint 000002"]


async def test_a_version_that_is_not_kept_is_refused_and_serving_goes_on(tmp_path: Path) -> None:
    async with Serving(tmp_path, FakeLearner([])) as serving:
        await serving.update()
        with pytest.raises(ConfigError, match="got version 7, expected one that is kept: 0, 1"):
            await serving.loop.rollback(7)
        assert (await serving.update()).version == 2


async def test_a_version_that_cannot_be_read_leaves_the_learner_as_it_was(tmp_path: Path) -> None:
    class Unreadable(FakeLearner):
        async def load_checkpoint(self, folder: str) -> None:
            raise TrainerError("its file is broken")

    async with Serving(tmp_path, Unreadable([])) as serving:
        await serving.update()
        await serving.update()
        with pytest.raises(ConfigError, match="version 1 cannot come back: its file is broken"):
            await serving.loop.rollback(1)
        assert serving.learner.calls[-1] == "restart 000002"
        assert (await serving.update()).version == 3


async def test_a_learner_that_dies_on_its_way_back_is_started_again_there(tmp_path: Path) -> None:
    async with Serving(tmp_path, FakeLearner(["load 000001"])) as serving:
        await serving.update()
        await serving.update()
        assert await serving.loop.rollback(1) == 3
        assert serving.learner.calls[-1] == "restart 000001"


async def test_a_learner_that_dies_as_an_earlier_version_is_published_loads_it_again(
    tmp_path: Path,
) -> None:
    async with Serving(tmp_path, FakeLearner([])) as serving:
        await serving.update()
        await serving.update()
        serving.dies_in = {3}
        assert await serving.loop.rollback(1) == 3
        assert serving.published == [1, 2, 3, 3]
        assert serving.learner.calls[-2:] == ["load 000001", "restart 000001"]
        assert (await serving.updates.get()).version == 3


async def test_what_has_no_checkpoint_gets_one_before_the_way_back(tmp_path: Path) -> None:
    async with Serving(tmp_path, FakeLearner([])) as serving:
        await serving.update()
        await serving.update()
        (tmp_path / "c" / "000002").rmdir()
        serving.refused = {3}
        with pytest.raises(ConfigError, match="version 1 cannot come back"):
            await serving.loop.rollback(1)
        wanted = ["checkpoint 000002", "load 000001", "restart 000002"]
        assert serving.learner.calls[-3:] == wanted
        serving.refused = set()
        assert (await serving.update()).version == 3


async def test_an_error_of_the_learner_itself_is_not_repeated(tmp_path: Path) -> None:
    class Wrong(FakeLearner):
        async def step(self, batch: SampleBatch, version: int) -> StepStats:
            self.calls.append("step")
            raise TrainerError("a wrong sample")

    learner = Wrong([])
    with pytest.raises(TrainerError, match="a wrong sample"):
        await run(tmp_path, learner, 1)
    assert learner.calls == ["step"]


async def test_a_service_goes_on_however_many_updates_are_refused_and_says_so(
    tmp_path: Path,
) -> None:
    learner = FakeLearner([])
    config = LearnerConfig(publish="if_not_worse")
    guard = Refusing(config, list(range(2, 10)))
    updates, published = await run(tmp_path, learner, 12, config, guard=guard, ended_by=())
    assert published == list(range(1, 13))
    refused = [u.version for u in updates if "guard/refused" in u.events]
    assert refused == list(range(3, 11))
    warnings = [call for call in learner.calls if call.startswith("WARNING")]
    assert len(warnings) == 2, "after the third and the sixth"
    assert all("the last good weights keep serving" in warning for warning in warnings)
    assert "step 10" in learner.calls, "learning goes on"


async def test_a_service_goes_back_where_publications_are_refused_again_and_again(
    tmp_path: Path,
) -> None:
    learner = FakeLearner([])
    updates, published = await run(tmp_path, learner, 8, refused=range(2, 7), ended_by=())
    assert published == list(range(1, 9))
    assert [u.version for u in updates if u.is_served] == [1, 7, 8]
    (warning,) = [call for call in learner.calls if call.startswith("WARNING")]
    assert "version 1 keep serving, and learning resumes from them" in warning
    assert learner.calls[learner.calls.index(warning) + 1] == "load 000001"
