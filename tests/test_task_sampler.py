"""Which tasks a run draws: training and held-out ones have none in common."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.rollout.task_sampler import TaskSampler


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


def env(train: Sequence[str], heldout: Sequence[str]) -> Any:
    ids = {"train": train, "heldout": heldout}
    return SimpleNamespace(type="mine", task_ids=lambda split: ids[split])


def test_ids_that_know_what_they_hold_are_not_looked_through() -> None:
    train = Knowing()
    TaskSampler.of(env(train, ["h-1", "h-2"]), 0)
    assert train.looked_at < 10


@pytest.mark.parametrize("train", [Knowing(), Listed(), ["t-1", "t-7"]])
def test_a_task_of_both_splits_is_refused_however_it_is_listed(train: Sequence[str]) -> None:
    with pytest.raises(ConfigError, match=r"'t-7'; expected .* to have none in common"):
        TaskSampler.of(env(train, ["h-1", "t-7"]), 0)
