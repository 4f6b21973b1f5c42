"""Users with weights of their own: one learner, a line of versions for each, nothing shared."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from clawrl_gym.config import AdapterConfig, LearnerConfig, LiveConfig, TrainerConfig
from clawrl_gym.core.errors import ConfigError, LearnerDied, TrainerError
from clawrl_gym.core.metrics import Timeline
from clawrl_gym.core.types import Episode, Group, Sample, StepStats, StopReason, TaskRef
from clawrl_gym.inference.weights.adapter_files import ADAPTER, ADAPTER_WEIGHTS
from clawrl_gym.inference.weights.checkpoints import CHECKPOINTS, list_checkpoints
from clawrl_gym.inference.weights.probe import Reading
from clawrl_gym.run_folder.folder import RunFolder
from clawrl_gym.serving.user_training import UserTraining
from clawrl_gym.serving.users import user_folder
from clawrl_gym.store import SessionRow, Store
from clawrl_gym.store.users import Users
from clawrl_gym.trainers.batch_queue import BatchQueue
from clawrl_gym.trainers.loop import Publication
from clawrl_gym.trainers.published_version import PublishedVersion, Way
from clawrl_gym.trainers.sample_batch import SampleBatch
from clawrl_gym.trainers.updates.guard import Review
from clawrl_gym.trainers.updates.learner import Learner
from clawrl_gym.trainers.user_learners import UserLearner, UserLearners
from clawrl_gym.trainers.user_queues import UserQueues
from tests.reference.tiny_model import make_samples, write_tiny_qwen3
from tests.support.waiting import until
from tests.trainers.test_adapter import logprobs, make_learner, rewarded

_TASK = TaskRef(None, 0, "train")
LENGTHS = [5, 30, 17]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_tiny_qwen3(tmp_path_factory.mktemp("model"))


# The learner.


def train_once(learner: Learner, seed: int, version: int) -> None:
    samples = make_samples(LENGTHS, seed=seed)
    learner.step(rewarded(samples, learner), version)


def words(learner: Learner) -> torch.Tensor:
    return logprobs(learner.model, make_samples(LENGTHS))


@pytest.mark.parametrize("way", ["memory", "checkpoint"])
def test_users_who_take_turns_learn_as_if_each_were_alone(
    model_dir: str, tmp_path: Path, way: str
) -> None:
    alone = {}
    for number, user in enumerate(("anna", "ben", "")):
        learner = make_learner(model_dir)
        for version in range(3):
            train_once(learner, number, version)
        alone[user] = words(learner)
    together = make_learner(model_dir)
    for version in range(3):
        for number, user in enumerate(("anna", "ben")):
            folder = tmp_path / user
            together.use(user, str(folder) if folder.exists() else None)
            train_once(together, number, version)
            together.save_checkpoint(str(folder))
            if way == "checkpoint":
                together.use("", None)
                together.forget(user)
    together.use("", None)
    for version in range(3):
        train_once(together, 2, version)
    assert torch.equal(words(together), alone[""])
    for user in ("anna", "ben"):
        together.use(user, str(tmp_path / user))
        assert torch.equal(words(together), alone[user])
    assert not torch.allclose(alone["anna"], alone["ben"], atol=1e-3)


def test_a_user_begins_as_the_runs_own_adapter_is_then(model_dir: str) -> None:
    learner = make_learner(model_dir)
    first = words(learner)
    train_once(learner, 1, 0)
    own = words(learner)
    learner.use("anna", None)
    assert torch.equal(words(learner), own)
    assert learner.updates == 0
    assert not learner.optimizer.state_dict()["state"]
    train_once(learner, 2, 0)
    learner.use("ben", None)  # not as anna is
    assert torch.equal(words(learner), own)
    assert not torch.equal(own, first)


def test_a_users_rate_is_as_old_as_their_own_updates(model_dir: str, tmp_path: Path) -> None:
    learner = make_learner(model_dir, schedule="inverse", warmup_steps=0, lr=1.0)
    samples = rewarded(make_samples(LENGTHS), learner)

    def rate(version: int) -> float:
        return learner.step(samples, version).metrics["learner/lr"]

    assert rate(version=8) == 1 / 2, "the run's own clock is its version"
    learner.use("anna", None)
    assert [rate(version=9), rate(version=10)] == [1, 8 / 9]
    learner.save_checkpoint(str(tmp_path / "anna"))
    learner.use("ben", None)
    assert rate(version=9) == 1
    learner.forget("anna")
    learner.use("anna", str(tmp_path / "anna"))
    assert rate(version=11) == pytest.approx(8 / 10), "which a checkpoint keeps"


def test_all_weights_are_nobodys_alone(model_dir: str) -> None:
    learner = Learner(TrainerConfig(), LearnerConfig(), model_dir, 0, "cpu")
    with pytest.raises(TrainerError, match=r"got the turn of anna .* \(learner=lora\)"):
        learner.use("anna", None)
    learner.use("", None)


def test_a_user_whose_checkpoint_cannot_be_taken_leaves_the_learner_to_whose_turn_it_was(
    model_dir: str, tmp_path: Path
) -> None:
    learner = make_learner(model_dir)
    learner.use("anna", None)
    train_once(learner, 1, 0)
    of_anna, of_owner = str(tmp_path / "anna"), str(tmp_path / "owner")
    learner.save_checkpoint(of_anna)
    learner.use("", None)
    train_once(learner, 2, 0)
    own = words(learner)
    for _ in range(2):  # the second time nobody's weights pass for ben's, either
        with pytest.raises(TrainerError, match="anna"):
            learner.use("ben", of_anna)
        assert torch.equal(words(learner), own)
    learner.save_checkpoint(of_owner)
    again = make_learner(model_dir)
    again.load_checkpoint(of_owner)
    for each in (learner, again):
        train_once(each, 3, 1)
    assert torch.equal(words(again), words(learner))


def test_the_checkpoint_of_another_rank_is_refused(model_dir: str, tmp_path: Path) -> None:
    larger = make_learner(model_dir)
    larger.use("anna", None)
    larger.save_checkpoint(str(tmp_path / "c"))
    learner = make_learner(model_dir, adapter=AdapterConfig(rank=2, alpha=8))
    with pytest.raises(TrainerError, match="rank"):
        learner.use("anna", str(tmp_path / "c"))


def test_the_checkpoint_of_another_user_is_refused(model_dir: str, tmp_path: Path) -> None:
    learner = make_learner(model_dir)
    learner.use("ben", None)
    learner.save_checkpoint(str(tmp_path / "c"))
    again = make_learner(model_dir)
    with pytest.raises(TrainerError, match=r"got a checkpoint of ben .*, expected one of anna"):
        again.use("anna", str(tmp_path / "c"))
    with pytest.raises(TrainerError, match="expected one of owner"):
        make_learner(model_dir).load_checkpoint(str(tmp_path / "c"))
    make_learner(model_dir).use("ben", str(tmp_path / "c"))


# Lines.


class Written:
    """An adapter's folder with nothing in it."""

    ways: tuple[Way, ...] = ("folder",)

    async def to_folder(self, folder: Path) -> None:
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)


@dataclass
class FakeShared:
    """A learner that knows whose state it has; dies in steps of `dies_for`, once each."""

    user: str = ""
    calls: list[str] = field(default_factory=list)
    dies_for: list[str] = field(default_factory=list)
    fails_for: str = "nobody"
    going: asyncio.Event = field(default_factory=asyncio.Event)

    async def use(self, user: str, checkpoint: str | None) -> None:
        self.user = user
        self.calls.append(f"use {user or 'own'} {Path(checkpoint).name if checkpoint else '-'}")

    async def forget(self, user: str) -> None:
        self.calls.append(f"forget {user}")

    async def step(self, batch: SampleBatch, version: int) -> StepStats:
        users = {sample.session_id.partition("/")[0] for sample in batch.samples()}
        self.calls.append(f"step {self.user} {version}")
        assert users == {self.user}
        await self.going.wait()
        if self.user == self.fails_for:
            raise TrainerError("nothing but NaN")
        if self.user in self.dies_for:
            self.dies_for.remove(self.user)
            raise LearnerDied("died")
        return StepStats({}, 1, 0.1)

    async def review(self, batch: SampleBatch) -> Review:
        raise AssertionError("every update serves")

    async def ready(self) -> None: ...

    async def probe(self) -> Reading:
        raise AssertionError("nothing is verified")

    async def publish(self, *, as_adapter: bool) -> PublishedVersion:
        assert as_adapter
        return Written()

    async def save_checkpoint(self, folder: str) -> None:
        weights = Path(folder) / ADAPTER / ADAPTER_WEIGHTS
        await asyncio.to_thread(weights.parent.mkdir, parents=True)
        weights.write_bytes(b"weights")

    async def load_checkpoint(self, folder: str) -> None:
        self.calls.append("load")

    async def reset(self) -> None:
        raise AssertionError("the run's own line does not go back here")

    async def restart(self, checkpoint: str | None) -> None:
        self.user = ""
        self.calls.append(f"restart {Path(checkpoint).name if checkpoint else '-'}")


@dataclass
class FakePolicy:
    """Notes what is published."""

    store: Store
    version: int = 0
    adapter: AdapterConfig | None = field(default_factory=AdapterConfig)
    adapters_of_users: dict[str, tuple[int, Path]] = field(default_factory=dict)
    published: list[str] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)

    async def publish_adapter(
        self, folder: Path | str, version: int, take: str = "copy", user: str = ""
    ) -> None:
        self.published.append(f"{user}@{version}")

    async def withdraw_adapters(self, user: str) -> None:
        self.published.append(f"-{user}")


@dataclass
class House:
    """Lines of a serving folder, going on."""

    user_training: UserTraining
    queues: UserQueues
    policy: FakePolicy
    learner: FakeShared
    learners: UserLearners
    said: list[str] = field(default_factory=list)

    async def teach(self, user: str, number: int) -> None:
        session_id = f"{user}/one" if user else "one"
        row = SessionRow(session_id, None, None, "train", "live", 10.0)
        await self.policy.store.add_session(row)
        episode = Episode(session_id, number, _TASK, StopReason.TERMINATED, 1.0, turns=1)
        group = Group(number, _TASK, [episode], version=0)
        await self.queues.accept(group, [signal_sample(session_id, number)], [])

    async def until(self, *published: str) -> None:
        await until(lambda: self.policy.published == list(published))

    async def recorded(self, **versions: int) -> None:
        newest = {}
        for _ in range(500):
            rows = await self.policy.store.newest_of_users()
            newest = {user: row.version for user, row in rows.items()}
            if newest == versions:
                return
            await asyncio.sleep(0.01)
        assert newest == versions


def signal_sample(session_id: str, number: int) -> Sample:
    return Sample(session_id, number, [1, 2], [False, True], [0.0, -1.0], [-1, 0], [0.0, 1.0], 1.0)


@asynccontextmanager
async def living(folder: Path, learner: FakeShared) -> AsyncIterator[House]:
    users = Users(folder)
    for name in ("anna", "ben"):
        if users.get(name) is None:
            users.add(name)
    store = Store.open(folder)
    policy = FakePolicy(store)
    said: list[str] = []
    with closing(Timeline(folder)) as timeline:

        async def publish(learner: UserLearner, version: int, user: str) -> Publication:
            await (await learner.publish(as_adapter=True)).to_folder(folder / "next")
            await policy.publish_adapter(folder / "next", version, "move", user)
            is_refused = f"{user}@{version}" in policy.refused
            return Publication(refusal="it has not arrived" if is_refused else None)

        user_training = UserTraining(
            LearnerConfig(keep_checkpoints="auto"), RunFolder(folder), policy, users, timeline,
            said.append, publish,
        )  # fmt: skip
        live = LiveConfig(batch_turns=1)
        queues = UserQueues(
            lambda user: BatchQueue.live(live, store, user),
            separate=True,
            on_new=user_training.begin,
        )
        try:
            await store.rollback_to_checkpoint()
            await user_training.restore(queues)
        except TrainerError:
            await store.close()
            raise
        queues.restore(await store.untrained_groups())
        learners = user_training.learners(learner)
        running = asyncio.create_task(user_training.run(queues, BatchQueue.batch))
        try:
            yield House(user_training, queues, policy, learner, learners, said)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await store.close()


async def test_each_user_has_versions_and_checkpoints_of_their_own(tmp_path: Path) -> None:
    learner = FakeShared()
    learner.going.set()
    async with living(tmp_path, learner) as house:
        house.policy.version = 3  # the run's own, with which a line begins
        await house.teach("anna", 1)
        await house.until("anna@4")
        await house.teach("ben", 2)
        await house.until("anna@4", "ben@4")
        await house.teach("anna", 3)
        await house.until("anna@4", "ben@4", "anna@5")
        own = user_folder(tmp_path, "anna") / "checkpoints"
        for _ in range(100):
            newest = await house.policy.store.newest_of_users()
            if newest["anna"].version == 5:
                break
        assert (own / "000005" / ADAPTER).is_dir()
        assert await house.policy.store.updates() == []
        assert house.queues.own.waiting_groups == 0
    again = FakeShared()
    again.going.set()
    async with living(tmp_path, again) as house:
        assert {user: version for user, (version, _) in house.policy.adapters_of_users.items()} == {
            "anna": 5, "ben": 4,
        }  # fmt: skip
        await house.teach("anna", 4)
        await house.until("anna@6")
        assert again.calls[:2] == ["use anna 000005", "step anna 5"]


async def test_a_version_that_was_refused_is_trained_again_after_a_restart(tmp_path: Path) -> None:
    learner = FakeShared()
    learner.going.set()
    async with living(tmp_path, learner) as house:
        house.policy.refused = {"anna@2", "ben@1"}
        await house.teach("anna", 1)
        await house.until("anna@1")
        await house.teach("anna", 2)
        await house.until("anna@1", "anna@2")
        await house.teach("ben", 3)
        await house.until("anna@1", "anna@2", "ben@1")
        await house.recorded(anna=2, ben=1)
    assert list(list_checkpoints(user_folder(tmp_path, "anna") / CHECKPOINTS)) == [1]
    async with living(tmp_path, learner) as house:
        assert list(house.policy.adapters_of_users) == ["anna"]
        assert house.policy.adapters_of_users["anna"][0] == 1
        await house.until("anna@2", "ben@1")
        assert learner.calls[-2:] == ["use ben -", "step ben 0"]
        await house.recorded(anna=2, ben=1)
        assert await house.policy.store.untrained_samples() == []


async def test_turns_come_in_the_order_in_which_batches_were_ready(tmp_path: Path) -> None:
    learner = FakeShared()
    async with living(tmp_path, learner) as house:
        for number, user in enumerate(["anna", "anna", "ben", "anna"]):
            await house.teach(user, number)
            await asyncio.sleep(0.02)
        learner.going.set()
        await house.until("anna@1", "ben@1", "anna@2", "anna@3")


async def test_a_learner_that_dies_comes_back_with_whose_turn_it_is(tmp_path: Path) -> None:
    learner = FakeShared(dies_for=["anna"])
    learner.going.set()
    async with living(tmp_path, learner) as house:
        own = tmp_path / "checkpoints" / "000003"
        await asyncio.to_thread(own.mkdir, parents=True)
        house.policy.version = 3
        await house.teach("anna", 1)
        await house.until("anna@4")
        assert learner.calls == [
            "use anna -", "step anna 3", "restart 000003", "use anna -", "step anna 3",
        ]  # fmt: skip
        learner.dies_for.append("anna")
        await house.teach("anna", 2)
        await house.until("anna@4", "anna@5")
        assert learner.calls[-3:] == ["restart 000003", "use anna 000004", "step anna 4"]


async def test_one_users_trouble_is_not_anothers(tmp_path: Path) -> None:
    learner = FakeShared(fails_for="anna")
    learner.going.set()
    async with living(tmp_path, learner) as house:
        await house.teach("anna", 1)
        await until(lambda: house.said)
        assert house.said == [
            "anna's weights learn no more until serve is started again, the run's own adapter "
            "answers them: nothing but NaN"
        ]
        await house.teach("ben", 2)
        await house.teach("anna", 3)
        await house.until("ben@1")


async def test_a_user_goes_back_to_an_earlier_version_of_their_own(tmp_path: Path) -> None:
    learner = FakeShared()
    learner.going.set()
    async with living(tmp_path, learner) as house:
        user_training = house.user_training
        assert user_training.kept_versions("anna") == []
        with pytest.raises(ConfigError, match=r"expected one of anna's .* there is none yet"):
            await user_training.rollback(0, "anna")
        for number, user in enumerate(["anna", "ben", "anna"]):
            await house.teach(user, number)
            await house.until(*["anna@1", "ben@1", "anna@2"][: number + 1])
        await house.recorded(anna=2, ben=1)
        assert (user_training.kept_versions("anna"), user_training.kept_versions("ben")) == (
            [0, 1, 2],
            [0, 1],
        )
        assert await user_training.rollback(1, "anna") == 3
        assert house.policy.published[-1] == "anna@3"
        assert learner.calls[-1] == "load"
        with pytest.raises(ConfigError, match=r"got version 7, expected .* of ben's .*: 0, 1$"):
            await user_training.rollback(7, "ben")
        with pytest.raises(ConfigError, match="no user 'zoe'"):
            user_training.kept_versions("zoe")
        house.policy.adapter = None
        with pytest.raises(ConfigError, match="all users share one set of weights"):
            user_training.kept_versions("anna")
    async with living(tmp_path, learner) as house:
        assert house.policy.adapters_of_users["anna"][0] == 3
        assert await house.user_training.rollback(0, "ben") == 2, (
            "before anything of theirs is learned"
        )
        assert learner.calls[-2:] == ["forget ben", "use ben -"], "and nobody else notices"


async def test_a_line_that_could_not_go_on_goes_back_after_a_restart(tmp_path: Path) -> None:
    learner = FakeShared()
    learner.going.set()
    async with living(tmp_path, learner) as house:
        await house.teach("anna", 1)
        await house.until("anna@1")
        house.policy.refused = {"anna@2", "anna@3", "anna@4"}
        for number in (2, 3, 4):
            await house.teach("anna", number)
        await house.until(*(f"anna@{number}" for number in range(1, 5)))
        await house.recorded(anna=3)
        assert "anna@1 answers them: 3 publications in a row were refused" in house.said[-1]
        with pytest.raises(TrainerError, match="learn no more: start serve again"):
            await house.user_training.rollback(1, "anna")
    async with living(tmp_path, learner) as house:
        again = await house.user_training.rollback(1, "anna")
        assert again >= 2, "what was undone waits again, and may come before"
        assert any("anna: the weights of version 1 are back" in line for line in house.said)


async def test_a_way_back_that_waits_when_its_line_ends_is_told(tmp_path: Path) -> None:
    learner = FakeShared()
    learner.going.set()
    async with living(tmp_path, learner) as house:
        await house.teach("anna", 1)
        await house.until("anna@1")
        await house.recorded(anna=1)
        async with house.learners.lock:  # an update of another's
            returning = asyncio.create_task(house.user_training.rollback(1, "anna"))
            await asyncio.sleep(0.05)
            house.user_training._going["anna"].task.cancel()
            with pytest.raises(TrainerError, match="the run ended"):
                await returning


async def test_who_is_removed_leaves_the_learner_and_the_engine(tmp_path: Path) -> None:
    learner = FakeShared()
    async with living(tmp_path, learner) as house:
        await house.teach("anna", 1)
        await asyncio.sleep(0.05)
        await house.teach("anna", 2)
        Users(tmp_path).begin_removal("anna")
        ending = asyncio.create_task(house.user_training.end("anna"))
        await asyncio.sleep(0.05)
        assert not ending.done(), "the update under way ends first"
        learner.going.set()
        await ending
        assert house.policy.published == ["anna@1", "-anna"]
        assert learner.calls[-2:] == ["use own -", "forget anna"]
        await house.teach("anna", 3)  # a verdict that comes late
        await house.teach("ben", 4)
        await house.until("anna@1", "-anna", "ben@1")


async def test_a_checkpoint_that_is_gone_is_told_at_the_start(tmp_path: Path) -> None:
    learner = FakeShared()
    learner.going.set()
    async with living(tmp_path, learner) as house:
        await house.teach("anna", 1)
        await house.recorded(anna=1)
    (user_folder(tmp_path, "anna") / "checkpoints").rename(tmp_path / "elsewhere")
    with pytest.raises(TrainerError, match=r"anna's newest checkpoint .* is not there"):
        async with living(tmp_path, learner):
            pass


async def test_where_all_share_weights_there_is_one_queue(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    queues = UserQueues(lambda user: BatchQueue.live(LiveConfig(batch_turns=2), store, user))
    house = House(None, queues, FakePolicy(store), FakeShared(), None)  # type: ignore[arg-type]
    await house.teach("anna", 1)
    await house.teach("", 2)
    batch = await queues.own.batch(0, 0)
    assert [sample.session_id for sample in batch.samples] == ["anna/one", "one"]
    assert [group.user for group in await store.untrained_groups()] == ["", ""]
    await store.close()


async def test_a_session_that_is_deleted_before_its_turn_is_not_learned_from(
    tmp_path: Path,
) -> None:
    learner = FakeShared()
    async with living(tmp_path, learner) as house:
        await house.teach("ben", 1)  # it is his turn for long
        await asyncio.sleep(0.05)
        await house.teach("anna", 2)
        await asyncio.sleep(0.05)
        assert house.queues.of("anna").waiting_groups == 0, "her batch waits for its turn"
        house.queues.forget("anna/one")
        await house.policy.store.delete_session("anna/one")
        learner.going.set()
        await house.until("ben@1", "anna@1")
        assert [call for call in learner.calls if call.startswith("step")] == ["step ben 0"]
