from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

import pytest

from clawrl_gym.core.errors import PolicyError
from clawrl_gym.inference import fleet
from clawrl_gym.inference.fleet import Fleet


@dataclass(eq=False)
class Some:
    name: str
    running: float = 1.0
    down: bool = False
    silent: bool = False
    heard: asyncio.Event = field(default_factory=asyncio.Event)

    async def metrics(self) -> dict[str, float]:
        if self.silent:
            await self.heard.wait()
        if self.down:
            raise PolicyError("vLLM cannot be reached")
        return {"running": self.running, "kv_usage": 0.5}


@dataclass
class Clock:
    now_s: float = 100.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Three:
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.a, self.b, self.c = Some("a"), Some("b", 2.0), Some("c")
        self.fleet = Fleet([self.a, self.b, self.c], clock=self.clock, remembered=1000)


@pytest.fixture
def three() -> Three:
    return Three()


def test_a_session_stays_on_its_policy_and_sessions_are_spread(three: Three) -> None:
    homes = {f"s{i}": three.fleet.of(f"s{i}") for i in range(30)}
    assert Counter(policy.name for policy in homes.values()) == {"a": 10, "b": 10, "c": 10}
    assert all(three.fleet.of(session) is policy for session, policy in homes.items())


def test_a_policy_that_failed_is_left_out_and_its_sessions_stay_where_they_went(
    three: Three,
) -> None:
    sessions = [f"s{i}" for i in range(30)]
    before = {s: three.fleet.of(s) for s in sessions}
    three.fleet.failed(three.a)
    assert three.fleet.alive == 2
    during = {s: three.fleet.of(s) for s in sessions}
    assert three.a not in during.values()
    moved = [s for s in sessions if before[s] is three.a]
    assert all(during[s] is before[s] for s in sessions if s not in moved)
    assert Counter(during[s].name for s in moved) == {"b": 5, "c": 5}
    three.clock.now_s += 1
    assert three.fleet.alive == 3
    assert {s: three.fleet.of(s) for s in sessions} == during
    assert three.fleet.of("new") is three.a, "the one that is back has the fewest"


def test_each_failure_in_a_row_leaves_it_out_for_longer_and_time_forgives(three: Three) -> None:
    fleet, clock = three.fleet, three.clock

    def pause_s() -> float:
        fleet.failed(three.a)
        began_s = clock.now_s
        while fleet.alive < 3:
            clock.now_s += 0.25
        return clock.now_s - began_s

    assert [pause_s() for _ in range(7)] == [0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0]
    clock.now_s += 61
    assert pause_s() == 0.5


def test_requests_that_fail_together_count_once(three: Three) -> None:
    for _ in range(50):
        three.fleet.failed(three.a)
    three.clock.now_s += 0.5
    assert three.fleet.alive == 3


def test_when_all_are_left_out_a_session_stays_and_a_new_one_gets_the_first_to_be_back(
    three: Three,
) -> None:
    old = three.fleet.of("old")
    for policy in (three.b, three.a, three.c):
        three.fleet.failed(policy)
        three.clock.now_s += 0.1
    assert three.fleet.alive == 0
    assert three.fleet.of("old") is old
    assert three.fleet.of("new") is three.b


def test_sessions_that_ended_count_no_longer(three: Three) -> None:
    for i in range(3):
        three.fleet.of(f"s{i}")
    gone = three.fleet.of("s1")
    three.fleet.forget("s1")
    three.fleet.forget("s1")
    assert three.fleet.of("s9") is gone


def test_the_session_unused_for_longest_is_forgotten() -> None:
    a, b = Some("a"), Some("b")
    fleet = Fleet([a, b], remembered=2)
    assert [fleet.of("x"), fleet.of("y")] == [a, b]
    fleet.of("x")
    assert fleet.of("z") is a, "y was forgotten only after z was settled"
    assert fleet.of("x") is a
    assert fleet.of("y") is b


async def test_metrics_are_sums_and_the_cache_usage_a_mean(three: Three) -> None:
    assert await three.fleet.metrics() == {"running": 4.0, "kv_usage": 0.5, "engines": 3}
    three.b.down = True
    assert await three.fleet.metrics() == {"running": 2.0, "kv_usage": 0.5, "engines": 2}
    three.fleet.failed(three.a)
    assert await three.fleet.metrics() == {"running": 1.0, "kv_usage": 0.5, "engines": 1}


async def test_a_silent_policy_is_left_out_of_the_metrics_and_not_waited_for(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "_READING_S", 0.02)
    three.b.silent = True
    assert await three.fleet.metrics() == {"running": 2.0, "kv_usage": 0.5, "engines": 2}
    three.a.down = three.c.silent = True
    asking = asyncio.ensure_future(three.fleet.metrics())
    await asyncio.sleep(0.1)
    assert not asking.done(), "a slow answer is better than none"
    three.c.heard.set()
    assert await asking == {"running": 1.0, "kv_usage": 0.5, "engines": 1}


async def test_metrics_of_a_fleet_that_is_down_are_an_error(three: Three) -> None:
    for policy in (three.a, three.b, three.c):
        policy.down = True
    with pytest.raises(PolicyError, match="cannot be reached"):
        await three.fleet.metrics()


def test_a_fleet_without_policies_is_refused() -> None:
    with pytest.raises(ValueError, match="got no policies"):
        Fleet([])
