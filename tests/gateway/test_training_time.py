"""When a served policy learns: between hours, while nobody asks it, or always."""

from __future__ import annotations

import asyncio
from datetime import datetime

import pytest
from pydantic import ValidationError

from clawrl_gym.config import LiveConfig
from clawrl_gym.gateway.prometheus import GatewayStats
from clawrl_gym.rollout.episodes.training_time import TrainingTime


def at(clock: str) -> datetime:
    return datetime.fromisoformat(f"2026-03-29T{clock}")


async def waits(when: str, clock: str) -> str | None:
    """What is waited for at a time of the day; None when nothing is."""
    told: list[str | None] = []
    times = iter([at(clock), at(clock)])
    training_time = TrainingTime(
        LiveConfig(train_when=when), GatewayStats().quiet_for_s, told.append,
        now=lambda: next(times, at(when[:5])), look_every_s=0.0,
    )  # fmt: skip
    waited = await training_time.come()
    assert waited == bool(told)
    assert told in ([], [told[0] if told else None, None])
    return told[0] if told else None


@pytest.mark.parametrize(
    ("when", "clock", "awaited"),
    [
        ("09:00-17:00", "09:00", None),
        ("09:00-17:00", "16:59:59", None),
        ("09:00-17:00", "17:00", "waits for 09:00"),
        ("09:00-17:00", "08:59:59", "waits for 09:00"),
        ("22:30-06:15", "22:30", None),
        ("22:30-06:15", "23:59:59", None),
        ("22:30-06:15", "00:00", None),
        ("22:30-06:15", "06:14:59", None),
        ("22:30-06:15", "06:15", "waits for 22:30"),
        ("22:30-06:15", "12:00", "waits for 22:30"),
    ],
)
async def test_hours_may_go_over_midnight(when: str, clock: str, awaited: str | None) -> None:
    assert await waits(when, clock) == awaited


async def test_idle_is_so_long_without_a_request() -> None:
    stats, told = GatewayStats(), list[str | None]()
    config = LiveConfig(train_when="idle", train_idle_s=100.0)
    training_time = TrainingTime(config, stats.quiet_for_s, told.append, look_every_s=0.0)
    stats.last_asked_s -= 1000.0
    assert not await training_time.come()
    stats.asking = 1
    coming = asyncio.create_task(training_time.come())
    await asyncio.sleep(0)
    assert told == ["waits for 100 s without a request"]
    stats.asking = 0
    stats.last_asked_s += 1000.0
    await asyncio.sleep(0)
    assert not coming.done(), "it was just asked"
    stats.last_asked_s -= 1000.0
    assert await coming
    assert told[-1] is None


async def test_always_waits_for_nothing() -> None:
    assert not await TrainingTime(LiveConfig(), lambda _: 0.0, lambda _: None).come()


@pytest.mark.parametrize(
    "when",
    ["", "never", "9-17", "09:00", "09:00-09:00", "24:00-06:00", "22:00-06:60", "22:00 06:00"],
)
def test_other_words_are_refused(when: str) -> None:
    with pytest.raises(ValidationError, match="expected always, idle, or hours"):
        LiveConfig(train_when=when)
