"""Which tasks a run draws: training and held-out ones have none in common."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from clawrl_gym.core.errors import ConfigError, EnvError
from clawrl_gym.rollout.collection.task_sampler import TaskSampler


class Listed(Sequence[str]):
    """Ids by number; counts those that were looked at."""

    looked_at = 0

    def __len__(self) -> int:
        return 50_000

    def __getitem__(self, number: Any) -> Any:
        if number >= len(self):
            raise IndexError(number)
        self.looked_at += 1
        return f"t-{number}"


class Knowing(Listed):
    def __contains__(self, name: object) -> bool:
        return name == "t-7"


def env(train: Sequence[str], heldout: Sequence[str], broken: dict[str, str] | None = None) -> Any:
    ids = {"train": train, "heldout": heldout}
    return SimpleNamespace(
        type="mine", task_ids=lambda split: ids[split], broken_tasks=lambda: broken or {}
    )


def test_ids_that_know_what_they_hold_are_not_looked_through() -> None:
    train = Knowing()
    TaskSampler.of(env(train, ["h-1", "h-2"]), 0)
    assert train.looked_at < 10


@pytest.mark.parametrize("train", [Knowing(), Listed(), ["t-1", "t-7"]])
def test_a_task_of_both_splits_is_refused_however_it_is_listed(train: Sequence[str]) -> None:
    with pytest.raises(ConfigError, match=r"'t-7'; expected .* to have none in common"):
        TaskSampler.of(env(train, ["h-1", "t-7"]), 0)


def test_a_task_that_is_left_out_is_replaced_and_all_other_draws_stay() -> None:
    names = [f"t-{number}" for number in range(10)]
    whole = TaskSampler({"train": names, "heldout": ["h", "i", "j"]}, 3)
    short = TaskSampler({"train": names, "heldout": ["h", "i", "j"]}, 3, {"t-4": "silent"})
    pairs = [(whole.train(number), short.train(number)) for number in range(200)]
    assert {one.id for _, one in pairs} == {*names} - {"t-4"}
    assert all(a == b for a, b in pairs if a.id != "t-4")
    before = whole.heldout(3)
    whole.leave_out(str(before[0].id), "silent")
    assert whole.heldout(3) == before[1:]


def test_when_every_training_task_is_left_out_the_reasons_are_told() -> None:
    sampler = TaskSampler({"train": ["a"], "heldout": ["h"]}, 3)
    sampler.leave_out("a", "it left no reward")
    assert not sampler.can_train
    with pytest.raises(EnvError, match=r"nothing is left to train on.*a: it left no reward"):
        sampler.train(0)
    with pytest.raises(ConfigError, match=r"every task is broken.*a: silent"):
        TaskSampler.of(env(["a"], [], {"a": "silent"}), 0)
    assert TaskSampler.of(env(["a", "b"], [], {"a": "silent"}), 0).train(3).id == "b"
