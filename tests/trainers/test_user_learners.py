"""Whose state the one learner has, call by call; `test_user_training.py` has it learn."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from clawrl_gym.core.errors import TrainerError
from clawrl_gym.core.types import Sample, StepStats
from clawrl_gym.inference.weights.probe import Reading
from clawrl_gym.trainers.published_version import PublishedVersion, Way
from clawrl_gym.trainers.sample_batch import SampleBatch
from clawrl_gym.trainers.updates.guard import Review
from clawrl_gym.trainers.user_learners import UserLearner, UserLearners

STATS = StepStats({"learner/loss": 0.5}, 2, 0.1)
REVIEW = Review(1.5, [])
READING = Reading([1, 2], [-0.5])
SAMPLE = Sample("s", 0, [1, 2], [False, True], [0.0, -1.0], [-1, 0], [0.0, 1.0], 1.0)
ONE, TWO = SampleBatch.of([SAMPLE]), SampleBatch.of([SAMPLE, SAMPLE])


class Nowhere:
    """A version that goes nowhere."""

    ways: tuple[Way, ...] = ()

    async def to_folder(self, folder: Path) -> None: ...


VERSION = Nowhere()


class NotingLearner:
    """Notes its calls, in words."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def step(self, batch: SampleBatch, version: int) -> StepStats:
        self.calls.append(f"step of {len(batch)} at {version}")
        return STATS

    async def review(self, batch: SampleBatch) -> Review:
        self.calls.append(f"review of {len(batch)}")
        return REVIEW

    async def ready(self) -> None: ...

    async def probe(self) -> Reading:
        self.calls.append("probe")
        return READING

    async def publish(self, *, as_adapter: bool) -> PublishedVersion:
        self.calls.append("adapter given out" if as_adapter else "weights given out")
        return VERSION

    async def save_checkpoint(self, folder: str) -> None:
        self.calls.append(f"checkpoint to {folder}")

    async def load_checkpoint(self, folder: str) -> None:
        self.calls.append(f"load {folder}")

    async def reset(self) -> None:
        self.calls.append("reset")

    async def restart(self, checkpoint: str | None) -> None:
        self.calls.append(f"restart {checkpoint}")

    async def use(self, user: str, checkpoint: str | None) -> None:
        self.calls.append(f"use {user!r} {checkpoint}")

    async def forget(self, user: str) -> None:
        self.calls.append(f"forget {user}")


def checkpoint_of(user: str) -> str | None:
    """Ben has none yet, and what serves carl was lost."""
    if user == "carl":
        raise TrainerError("carl has no checkpoint")
    return None if user == "ben" else f"newest of {user or 'the run'}"


@pytest.fixture
def learner() -> NotingLearner:
    return NotingLearner()


@pytest.fixture
def learners(learner: NotingLearner) -> UserLearners:
    return UserLearners(learner, checkpoint_of, asyncio.Lock())


async def all_calls(own: UserLearner) -> None:
    assert await own.step(ONE, 4) is STATS
    assert await own.review(TWO) is REVIEW
    assert await own.probe() is READING
    assert await own.publish(as_adapter=False) is VERSION
    assert await own.publish(as_adapter=True) is VERSION
    await own.save_checkpoint("c")
    await own.load_checkpoint("l")


CALLS = [
    "step of 1 at 4", "review of 2", "probe", "weights given out", "adapter given out",
    "checkpoint to c", "load l",
]  # fmt: skip


async def test_every_call_is_made_with_its_users_state_which_is_taken_once(
    learners: UserLearners, learner: NotingLearner
) -> None:
    await all_calls(learners.of(""))
    assert learner.calls == CALLS, "the run's own is there from the start"
    await all_calls(learners.of("ann"))
    await all_calls(learners.of("ben"))
    await all_calls(learners.of(""))
    assert learner.calls == [
        *CALLS, "use 'ann' newest of ann", *CALLS, "use 'ben' None", *CALLS, "use '' None", *CALLS,
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["step", "review", "save_checkpoint", "load_checkpoint", "probe"])
async def test_each_kind_of_call_takes_turns_by_itself(
    learners: UserLearners, learner: NotingLearner, name: str
) -> None:
    arguments: dict[str, tuple[object, ...]] = {
        "step": (ONE, 1), "review": (ONE,), "save_checkpoint": ("c",),
        "load_checkpoint": ("c",), "probe": (),
    }  # fmt: skip
    await getattr(learners.of("ann"), name)(*arguments[name])
    await getattr(learners.of("ben"), name)(*arguments[name])
    turns = [call for call in learner.calls if call.startswith("use")]
    assert turns == ["use 'ann' newest of ann", "use 'ben' None"]


async def test_a_user_whose_checkpoint_is_lost_takes_no_turn(
    learners: UserLearners, learner: NotingLearner
) -> None:
    await learners.of("ann").probe()
    with pytest.raises(TrainerError, match="carl has no checkpoint"):
        await learners.of("carl").probe()
    await learners.of("ann").probe()
    assert learner.calls == ["use 'ann' newest of ann", "probe", "probe"]


async def test_who_is_reset_begins_as_the_runs_own_are_now(
    learners: UserLearners, learner: NotingLearner
) -> None:
    await learners.of("ben").probe()
    await learners.of("ann").reset()
    await learners.of("ann").probe()
    assert learner.calls == [
        "use 'ben' None", "probe", "use '' None", "forget ann", "use 'ann' None", "probe",
    ]  # fmt: skip
    learner.calls.clear()
    await learners.of("").reset()
    await learners.of("").probe()
    assert learner.calls == ["use '' None", "reset", "probe"]


async def test_a_restarted_process_has_the_runs_own_state_first(
    learners: UserLearners, learner: NotingLearner
) -> None:
    await learners.of("ann").restart("second of ann")
    await learners.of("ann").probe()
    assert learner.calls == ["restart newest of the run", "use 'ann' second of ann", "probe"]
    learner.calls.clear()
    await learners.of("").restart("second of the run")
    await learners.of("").probe()
    assert learner.calls == ["restart second of the run", "probe"]
    learner.calls.clear()
    await learners.of("").restart(None)
    assert learner.calls == ["restart None"]


async def test_who_is_removed_leaves_nothing_and_the_learner_to_the_run(
    learners: UserLearners, learner: NotingLearner
) -> None:
    await learners.of("ann").probe()
    await learners.forget("ben")
    assert learner.calls == ["use 'ann' newest of ann", "probe", "forget ben"]
    await learners.forget("ann")
    await learners.of("").probe()
    assert learner.calls[3:] == ["use '' None", "forget ann", "probe"]
