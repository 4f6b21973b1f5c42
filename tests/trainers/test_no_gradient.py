"""Updates without a gradient: their cause, their line, and the end of a run that makes no other."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from clawrl_gym.config import LearnerConfig, RolloutConfig
from clawrl_gym.core.metrics import NO_GRADIENT, Timeline
from clawrl_gym.core.types import Episode, Group, Sample, StepStats, StopReason, TaskRef, Verdict
from clawrl_gym.dialogue.merging import Segment
from clawrl_gym.store import Store
from clawrl_gym.trainers.algorithms.algorithm import Algorithm
from clawrl_gym.trainers.algorithms.binary import Binary
from clawrl_gym.trainers.algorithms.grpo import Grpo
from clawrl_gym.trainers.algorithms.hybrid import Hybrid
from clawrl_gym.trainers.algorithms.opd import Opd
from clawrl_gym.trainers.batch_queue import Batch, BatchQueue, has_signal
from clawrl_gym.trainers.loop import Publication, TrainLoop, Update
from clawrl_gym.trainers.no_gradient import REMEDIES, idle_cause, no_gradient
from clawrl_gym.trainers.sample_batch import SampleBatch
from clawrl_gym.trainers.versions.kept_versions import KeptVersions


def sample(advantage: float = 1.0, version: int = 0) -> Sample:
    streams = [0.0, -1.0], [-1, version], [0.0, advantage]
    return Sample("s", 0, [1, 2], [False, True], *streams, reward=1.0)


def stats(**metrics: float) -> StepStats:
    return StepStats({name.replace("__", "/"): value for name, value in metrics.items()}, 2, 0.1)


CASES: dict[str, tuple[Batch, StepStats | None, str | None]] = {
    "a sample with an advantage": (Batch(0, 1, [sample()], 1), stats(), None),
    "a hint alone": (
        Batch(0, 1, [replace(sample(0.0), distill_T=[0.0, 1.0])], 1), stats(), None,
    ),
    "a small gradient": (Batch(0, 1, [sample()], 1), stats(learner__grad_norm=1e-9), None),
    "half of the tokens masked": (
        Batch(0, 1, [sample()], 1), stats(learner__masked_share=0.5), None,
    ),
    "equal groups": (Batch(0, 4, [], 4, equal_groups=4), None, "equal"),
    "equal groups, one of them solved": (
        Batch(0, 4, [], 4, equal_groups=4, solved_groups=1), None, "equal",
    ),
    "samples whose advantages are all 0": (
        Batch(0, 2, [sample(0.0), sample(0.0)], 2, equal_groups=2), stats(), "equal",
    ),
    "all solved": (Batch(0, 4, [], 4, equal_groups=4, solved_groups=4), None, "solved"),
    "all stale": (Batch(0, 4, [], 4), None, "lost"),
    "more stale than equal": (Batch(0, 4, [], 4, equal_groups=1, solved_groups=1), None, "lost"),
    "all masked": (
        Batch(0, 1, [sample()], 1), stats(learner__masked_share=1.0, learner__grad_norm=0.0),
        "masked",
    ),
    "no hints": (Batch(0, 3, [], 3, idle_groups={"no_hints": 3}), None, "no_hints"),
    "abstentions": (Batch(0, 3, [], 3, idle_groups={"abstained": 3}), None, "abstained"),
    "failures": (Batch(0, 3, [], 3, idle_groups={"failed": 3}), None, "failed"),
    "untrainable turns, and an equal group": (
        Batch(0, 3, [], 3, equal_groups=1, idle_groups={"untrainable": 2}), None, "untrainable",
    ),
    "equal groups, and one without a hint": (
        Batch(0, 4, [], 4, equal_groups=3, idle_groups={"no_hints": 1}), None, "equal",
    ),
    "stale groups, and one without a hint": (
        Batch(0, 4, [], 4, idle_groups={"no_hints": 1}), None, "lost",
    ),
    "weights of 0": (
        Batch(0, 1, [sample(0.0)], 1, idle_groups={"zero_weights": 1}), stats(), "zero_weights",
    ),
    "a rate of 0": (
        Batch(0, 1, [sample()], 1), stats(learner__lr=0.0, learner__grad_norm=0.5), "no_rate",
    ),
    "a small rate": (Batch(0, 1, [sample()], 1), stats(learner__lr=1e-12), None),
    "a teacher that agrees": (
        Batch(0, 1, [replace(sample(0.0), distill_T=[0.0, 1.0])], 1),
        stats(learner__grad_norm=0.0), "no_gap",
    ),
    "a gradient of 0": (Batch(0, 1, [sample()], 1), stats(learner__grad_norm=0.0), "zero"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_cause_is_named(case: str) -> None:
    batch, told, cause = CASES[case]
    found = no_gradient(batch, told)
    assert (found.cause if found else None) == cause
    if found is not None:
        assert found.metrics() == {NO_GRADIENT: 1.0, f"no_gradient/{cause}": 1.0}
        line = found.line(3)
        assert line.startswith("update 3 has no gradient: ")
        assert REMEDIES[found.cause] in line
        assert "\n" not in line


class Learner:
    """Makes steps of the size that it is given."""

    def __init__(self, norm: float) -> None:
        self.norm = norm

    async def step(self, batch: SampleBatch, version: int) -> StepStats:
        return stats(learner__grad_norm=self.norm)

    async def save_checkpoint(self, folder: str) -> None:
        await asyncio.to_thread(Path(folder).mkdir, parents=True)

    async def load_checkpoint(self, folder: str) -> None: ...

    async def reset(self) -> None: ...

    async def restart(self, checkpoint: str | None) -> None: ...


async def run(
    folder: Path, batch_of: Callable[[int], Batch], most: int | None, steps: int = 6
) -> tuple[list[Update], list[str], str | None]:
    updates: list[Update] = []
    said: list[str] = []

    async def next_batch(number: int, version: int) -> Batch:
        return batch_of(number)

    async def publish(version: int) -> Publication:
        return Publication()

    async def on_update(update: Update) -> None:
        updates.append(update)

    with closing(Timeline(folder)) as timeline:
        loop = TrainLoop(
            LearnerConfig(), Learner(0.5), next_batch, publish, on_update,
            KeptVersions(LearnerConfig(), folder / "c"), timeline, say=said.append,
        )  # fmt: skip
        stopped = await loop.run(0, steps, most)
    return updates, said, stopped.cause if stopped else None


EQUAL = Batch(0, 2, [], 2, equal_groups=2)


async def test_each_update_without_a_gradient_is_told_and_counted(tmp_path: Path) -> None:
    updates, said, stopped = await run(
        tmp_path, lambda number: EQUAL if number % 2 else Batch(number, 1, [sample()], 1), most=2
    )
    assert [update.version for update in updates if NO_GRADIENT in update.row.metrics] == [2, 4, 6]
    assert len(said) == 3
    assert stopped is None, "there were never two in a row"


async def test_a_run_ends_after_so_many_in_a_row(tmp_path: Path) -> None:
    updates, said, stopped = await run(
        tmp_path, lambda number: EQUAL if number else Batch(number, 1, [sample()], 1), most=3
    )
    assert len(updates) == 4
    assert len(said) == 3
    assert stopped == "equal"


async def test_without_a_bound_it_goes_on(tmp_path: Path) -> None:
    updates, said, stopped = await run(tmp_path, lambda number: EQUAL, most=None)
    assert len(updates) == len(said) == 6
    assert stopped is None


def group(number: int, rewards: list[float]) -> Group:
    episodes = [
        Episode(f"g{number}-{at}", number, TaskRef("t", 0, "train"), StopReason.TERMINATED, r, 1)
        for at, r in enumerate(rewards)
    ]
    return Group(number, TaskRef("t", 0, "train"), episodes, 0)


def segment(*, known: bool = True) -> Segment:
    return Segment(
        [1, 2], [False, known], [0.0, -1.0], [-1, 0], turn_indices=[0], turns_T=[-1, 0],
        spans={0: (1, 1)},
    )  # fmt: skip


def verdict(value: Literal[-1, 0, 1] | None) -> Verdict:
    return Verdict(1, "rule", value, None if value is None else float(value), {}, 0.0)


GROUPS: dict[str, tuple[Algorithm, list[float | None], bool, Verdict | None, str]] = {
    "outcomes alike": (Grpo(), [1.0, 1.0], True, None, "equal"),
    "outcomes alike, and the judge abstained": (Grpo(), [0.0, 0.0], True, verdict(None), "equal"),
    "one outcome of two": (Grpo(), [1.0, None], True, None, "failed"),
    "no outcome": (Grpo(), [None, None], True, None, "failed"),
    "turns that may not be trained on": (Grpo(), [0.0, 1.0], False, None, "untrainable"),
    "no hints": (Opd(), [0.0, 1.0], True, None, "no_hints"),
    "no hints, and turns that may not be trained on": (Opd(), [0, 1], False, None, "untrainable"),
    "hints of no weight": (Opd(0.0), [0.0, 1.0], True, None, "no_hints"),
    "hybrid, alike and without hints": (Hybrid(Grpo(), Opd()), [0, 0], True, None, "equal"),
    "hybrid, hints alone, and none": (Hybrid(Grpo(), Opd(), 0.0), [0, 1], True, None, "no_hints"),
    "judged turns, without a verdict": (Binary(), [1.0, 1.0], True, verdict(None), "abstained"),
    "judged turns, all neutral": (Binary(), [1.0, 0.0], True, verdict(0), "abstained"),
    "judged turns, all failed": (Binary(), [None, None], True, None, "failed"),
}


@pytest.mark.parametrize("case", GROUPS)
def test_why_a_group_teaches_nothing(case: str) -> None:
    algorithm, rewards, known, judged, cause = GROUPS[case]
    played = group(0, [0.0] * len(rewards))
    episodes = [
        replace(episode, reward=reward)
        for episode, reward in zip(played.episodes_G, rewards, strict=True)
    ]
    played = replace(played, episodes_G=episodes)
    segments_G = [[segment(known=known)] for _ in rewards]
    verdicts_G = [{0: judged} if judged else {} for _ in rewards]
    samples = algorithm.make_samples(played, segments_G, verdicts_G)
    assert not any(map(has_signal, samples))
    assert idle_cause(played, segments_G, verdicts_G, samples, algorithm) == cause


async def test_a_batch_counts_the_causes_of_its_groups(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    try:
        queue = BatchQueue.training(RolloutConfig(groups=3), store)
        for number, idle in enumerate(["no_hints", "equal", "no_hints"]):
            await queue.accept(group(number, [0.0, 1.0]), [], (), idle)
        found = no_gradient(await queue.batch(0, 0), None)
        assert found is not None
        assert found.cause == "no_hints"
        assert (
            found.why == "in 2 of its 3 groups no hint came, and this trainer learns of hints alone"
        )
    finally:
        await store.close()


async def test_a_batch_counts_the_groups_that_taught_nothing(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    try:
        queue = BatchQueue.training(RolloutConfig(groups=3), store)
        for number, rewards in enumerate(([1.0, 1.0], [0.0, 0.0], [0.0, 1.0])):
            samples = [sample()] if len(set(rewards)) > 1 else []
            await queue.accept(group(number, rewards), samples)
        batch = await queue.batch(0, 0)
        assert (batch.equal_groups, batch.solved_groups, len(batch.samples)) == (2, 1, 1)
        assert no_gradient(batch, None) is None
    finally:
        await store.close()


async def test_what_to_do_is_said_once_in_a_row(tmp_path: Path) -> None:
    _, said, _ = await run(tmp_path, lambda number: EQUAL, most=3)
    assert [REMEDIES["equal"] in line for line in said] == [True, False, False]
