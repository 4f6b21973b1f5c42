"""Whoever runs `serve` is told whose samples wait for others', once for each cause."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clawrl_gym.config import LiveConfig
from clawrl_gym.core.types import Group, TaskRef
from clawrl_gym.serving.held_samples import HeldSamples
from clawrl_gym.store import Store
from clawrl_gym.trainers.batch_queue import BatchQueue
from clawrl_gym.trainers.user_queues import UserQueues
from clawrl_gym.trainers.user_share import UserShare
from tests.trainers.test_user_share import by

FLUSH_S = 900.0


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = Store.open(tmp_path)
    yield store
    await store.close()


class Waiting:
    """Samples of several people, and what is told of them."""

    def __init__(self, store: Store, **live: object) -> None:
        config = LiveConfig.model_validate({"flush_s": FLUSH_S} | live)
        share = UserShare.of(config, lambda: 5)
        self.queues = UserQueues(lambda user: BatchQueue.live(config, store, user, share))
        self.said: list[str] = []
        self.held = HeldSamples(config, self.queues, self.said.append)
        self.number = 0

    async def send(self, user: str, count: int) -> None:
        for _ in range(count):
            self.number += 1
            group = Group(self.number, TaskRef(None, 0, "train"), [], 0)
            await self.queues.own.accept(group, [by(user, self.number)])

    def told(self, *moments_s: float) -> list[str]:
        for now_s in moments_s:
            self.held.look(now_s)
        return self.said


@pytest.mark.parametrize("counts", [{"eve": 1}, {"eve": 70}, {"anna": 3, "eve": 5}, {"eve": 8}])
async def test_bounded_users_alone_are_told_to_teach_nothing(
    store: Store, counts: dict[str, int]
) -> None:
    waiting = Waiting(store)
    for user, count in counts.items():
        await waiting.send(user, count)
    assert waiting.told(0.0, FLUSH_S - 1) == []
    (line,) = waiting.told(FLUSH_S, FLUSH_S + 60, 10 * FLUSH_S)
    assert line.startswith("nothing is learned")
    assert all(f"{user} {min(64, count)}" in line for user, count in counts.items())
    assert f"live.trusted_users=[{','.join(sorted(counts))}]" in line
    assert len(waiting.told(FLUSH_S + 86_400, FLUSH_S + 86_500)) == 2


async def test_one_user_above_their_share_is_told_by_name(store: Store) -> None:
    waiting = Waiting(store, trusted_users=["cleo"])
    await waiting.send("", 3)
    await waiting.send("eve", 9)
    waiting.told(0.0)
    (line,) = waiting.told(FLUSH_S, 2 * FLUSH_S)
    assert line.startswith("8 samples of eve wait")
    assert "live.user_share=0.25" in line
    assert "live.trusted_users=[cleo,eve]" in line


@pytest.mark.parametrize(
    ("users", "live"),
    [(["", "", ""], {}), ([], {}), (["eve"] * 8, {"user_share": None}),
     (["eve"] * 8, {"trusted_users": ["eve"]}), (["", "anna", "ben", "cleo"], {})],
)  # fmt: skip
async def test_nothing_is_told_where_nobody_is_held_back(
    store: Store, users: list[str], live: dict[str, object]
) -> None:
    waiting = Waiting(store, **live)
    for user in users:
        await waiting.send(user, 1)
    assert waiting.told(0.0, FLUSH_S, 10 * FLUSH_S) == []


async def test_a_wait_that_ends_in_time_is_not_told(store: Store) -> None:
    waiting = Waiting(store)
    await waiting.send("eve", 2)
    waiting.told(0.0)
    await waiting.send("", 6)
    assert waiting.told(60.0, FLUSH_S, 5 * FLUSH_S) == []
