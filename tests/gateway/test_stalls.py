"""A policy that has requests and samples nothing: the time is no agent's."""

from __future__ import annotations

import pytest

from clawrl_gym.core.errors import PolicyUnavailable
from clawrl_gym.gateway.outages import Outages
from clawrl_gym.gateway.stalls import Stalls


class Policy:
    """Its counters; None: it says nothing."""

    def __init__(self) -> None:
        self.metrics_now: dict[str, float] | None = {"running": 1.0, "tokens": 0.0}

    async def metrics(self) -> dict[str, float]:
        if self.metrics_now is None:
            raise PolicyUnavailable("silent")
        return dict(self.metrics_now)


class Watch:
    """A stall watch by a clock of its own, which looks every 4 seconds."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.policy = Policy()
        self.is_asked = True
        self.outages = Outages(lambda: self.now_s)
        self.stalls = Stalls(
            self.policy,  # type: ignore[arg-type]
            self.outages,
            lambda: self.is_asked,
            lambda: self.now_s,
        )

    async def look_for(self, seconds: float, tokens_each: float = 0.0) -> None:
        for _ in range(round(seconds / 4)):
            self.now_s += 4
            if self.policy.metrics_now is not None:
                self.policy.metrics_now["tokens"] += tokens_each
            await self.stalls.look()


async def test_an_engine_that_stands_still_with_requests_is_an_outage_since_its_last_token() -> (
    None
):
    watch = Watch()
    await watch.look_for(40, tokens_each=1)
    assert watch.outages.seconds_of(1000) == 0
    await watch.look_for(20)
    assert watch.outages.seconds_of(1000) == 20
    await watch.look_for(8, tokens_each=1)
    assert watch.outages.seconds_of(1000) == 24  # it was seen to go on at the next look
    await watch.look_for(40, tokens_each=1)
    assert watch.outages.seconds_of(1000) == 24


async def test_a_short_pause_and_an_engine_without_requests_are_no_outage() -> None:
    watch = Watch()
    await watch.look_for(8)
    await watch.look_for(4, tokens_each=1)
    watch.policy.metrics_now = {"running": 0.0, "tokens": 7.0}
    await watch.look_for(80)
    watch.policy.metrics_now = {"running": 3.0, "tokens": 7.0}
    watch.is_asked = False
    await watch.look_for(80)
    assert watch.outages.seconds_of(1000) == 0


async def test_an_api_server_that_says_nothing_while_it_is_asked_stands_still_too() -> None:
    watch = Watch()
    await watch.look_for(4, tokens_each=1)
    watch.policy.metrics_now = None
    await watch.look_for(40)
    assert watch.outages.seconds_of(1000) == 40


async def test_an_engine_that_says_nothing_may_have_the_requests_that_no_other_has() -> None:
    watch = Watch()
    watch.policy.metrics_now = {"running": 1.0, "tokens": 0.0, "engines": 2.0}
    await watch.look_for(4, tokens_each=1)
    watch.policy.metrics_now = {"running": 0.0, "tokens": 1.0, "engines": 1.0}
    await watch.look_for(40)
    assert watch.outages.seconds_of(1000) == 40


@pytest.mark.parametrize("since_s", [0.0, 5.0, 12.0])
def test_each_second_of_outages_that_overlap_counts_once(since_s: float) -> None:
    now_s = 4.0
    outages = Outages(lambda: now_s)
    with outages.during():
        now_s = 10.0
    now_s = 16.0
    with outages.during(since_s):
        now_s = 20.0
        expected = 20 - min(since_s, 4.0) if since_s <= 10 else 6 + 8
        assert outages.seconds_of(100) == expected
    assert outages.seconds_of(100) == expected
    assert outages.seconds_of(9) == (9 if since_s <= 10 else 8)
