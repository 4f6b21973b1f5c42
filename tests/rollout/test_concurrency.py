"""How many episodes are in flight: up while the engine has room, down when something is short."""

from dataclasses import replace

import pytest

from clawrl_gym.rollout.collection.concurrency import Concurrency, Reading, Why
from tests.support.simulated_engine import Engine, SimulatedEngine, Work

ROOM = Reading(
    in_flight=64, wanted=100, engines=1, running=30, waiting=0, kv_usage=0.05, turns=0,
    episodes=1000, preemptions=0,
)  # fmt: skip


def begun(most: int = 4096) -> Concurrency:
    """After its first reading."""
    concurrency = Concurrency(most)
    concurrency.read(replace(ROOM, in_flight=0))
    return concurrency


def after(concurrency: Concurrency, **changes: float) -> tuple[int, Why]:
    """What is decided when each of as many as there may be has had a turn."""
    reading = replace(ROOM, in_flight=concurrency.limit, running=concurrency.limit * 0.4)
    reading = replace(reading, **changes)  # type: ignore[arg-type]
    for part in range(3):
        turns, preemptions = part * reading.in_flight, part * reading.preemptions
        concurrency.read(replace(reading, turns=turns, preemptions=preemptions))
    return concurrency.limit, concurrency.reason


def test_it_grows_fast_until_something_is_full_and_then_gently() -> None:
    concurrency = begun()
    assert [after(concurrency)[0] for _ in range(3)] == [128, 256, 512]
    assert after(concurrency, waiting=150.0) == (362, Why.QUEUE)
    grown, reason = after(concurrency)
    assert (grown > 362, reason) == (True, Why.ROOM)
    while concurrency.limit < 0.89 * 512:
        after(concurrency)
    assert after(concurrency)[0] < 1.1 * 0.9 * 512, "slowly where it was full"


def test_it_begins_with_what_surely_fits() -> None:
    concurrency = Concurrency(4096)
    assert (concurrency.limit, concurrency.reason) == (4, Why.START)
    assert concurrency.read(replace(ROOM, contexts=12.5)) == 12
    assert after(concurrency, episodes=5) == (12, Why.YOUNG)
    assert after(concurrency, episodes=13)[1] is Why.ROOM


def test_contexts_that_were_longer_may_be_so_again() -> None:
    knows, knows_not = begun(), begun()
    after(knows, kv_usage=0.5)
    for concurrency in (knows, knows_not):
        for _ in range(4):
            after(concurrency)
    assert knows.limit < 100 < 512 < knows_not.limit


def test_what_is_too_many_in_the_engine_leaves_whatever_the_others_do() -> None:
    queue, cache, preempts = begun(), begun(), begun()
    assert after(queue, running=20.0, waiting=16.0) == (48, Why.QUEUE)
    assert after(cache, running=32.0, kv_usage=0.95) == (int(64 - 32 * 0.40 / 0.95), Why.CACHE)
    assert after(preempts, preemptions=10) == (63, Why.PREEMPTIONS)


def test_nothing_is_decided_before_each_has_met_the_engine_and_what_is_too_much_has_left() -> None:
    concurrency = begun()
    for _ in range(50):
        assert concurrency.read(replace(ROOM, turns=10)) == 64
    assert after(concurrency, waiting=40.0)[0] == 24
    for part in range(50):
        assert concurrency.read(replace(ROOM, in_flight=60, turns=60 * part)) == 24


def test_a_number_that_does_not_bind_stays() -> None:
    concurrency = begun()
    assert after(concurrency, wanted=0) == (64, Why.LEARNER)
    assert after(concurrency, wanted=0, kv_usage=0.95, running=40.0)[1] is Why.CACHE


def test_environments_that_only_wait_for_each_other_are_not_opened() -> None:
    concurrency = begun()
    assert after(concurrency, running=10.0) == (128, Why.ROOM)
    assert after(concurrency, running=11.0) == (128, Why.ENVIRONMENTS)
    assert after(concurrency, running=11.0) == (128, Why.ENVIRONMENTS)
    assert after(concurrency, running=11.0) == (70, Why.ENVIRONMENTS)
    assert [after(concurrency, running=11.0)[0] for _ in range(4)] == [70] * 4
    assert after(concurrency, running=11.0)[1] is Why.ROOM, "after a while it is tried again"


def test_a_round_in_which_environments_seem_slow_may_be_chance() -> None:
    concurrency = begun()
    after(concurrency, running=10.0)
    assert after(concurrency, running=11.0)[1] is Why.ENVIRONMENTS
    assert after(concurrency, running=20.0) == (256, Why.ROOM)


def test_memory_that_gets_short_counts() -> None:
    concurrency = begun()
    assert after(concurrency, memory_free=0.1) == (64, Why.MEMORY)
    assert after(concurrency, memory_free=0.05) == (57, Why.MEMORY)


def test_an_engine_that_is_away_counts_nothing() -> None:
    concurrency = Concurrency(4096)
    assert concurrency.read(replace(ROOM, engines=4)) == 256
    assert concurrency.read(replace(ROOM, engines=2)) == 128
    assert concurrency.reason is Why.ENGINES


def test_counts_that_begin_again_with_an_engine_are_no_turns() -> None:
    concurrency = begun()
    concurrency.read(replace(ROOM, turns=1e6))
    for turns in (5, 6, 69):
        assert concurrency.read(replace(ROOM, turns=turns)) == (128 if turns == 69 else 64)


def test_bounds_hold_and_may_move() -> None:
    small = begun(3)
    assert (small.limit, after(small)) == (3, (3, Why.MOST))
    assert after(small, running=1.0, waiting=50.0)[0] == 3
    small.most = 50
    assert after(small, running=1.0)[0] > 3
    concurrency = begun()
    for _ in range(9):
        after(concurrency, running=1.0, waiting=float(concurrency.limit))
    assert concurrency.limit == 4


ENGINES = {
    "few sequences": Engine(16, 2_000_000, 0.02, 0.0001, 0.00003),
    "small cache": Engine(256, 60_000, 0.012, 0.00005, 0.00004, 2e-8),
    "large": Engine(1024, 1_500_000, 0.02, 0.00003, 0.00003, 1e-8, 8192, 32_768),
}
LONG = Work(turns=10, prompt_tokens=1500, reply_tokens=200, observation_tokens=300, env_s=2.0)
BEST = {"few sequences": 32, "small cache": 16, "large": 256}
"""Best fixed numbers for `LONG`; bench/concurrency.py finds them."""


@pytest.mark.parametrize("name", ENGINES)
def test_it_comes_near_the_best_fixed_number_for_small_and_large_engines(name: str) -> None:
    best = SimulatedEngine(ENGINES[name], LONG).run(600, BEST[name])
    concurrency = Concurrency(2048)
    followed = SimulatedEngine(ENGINES[name], LONG)
    followed.run(300, concurrency.limit, concurrency.read)
    assert followed.run(600, concurrency.limit, concurrency.read) > 0.95 * best


def test_two_runs_with_equal_readings_are_equal() -> None:
    def limits() -> list[int]:
        concurrency, engine = Concurrency(512), SimulatedEngine(ENGINES["small cache"], Work())
        steps: list[int] = []
        engine.run(60, concurrency.limit, lambda r: steps.append(concurrency.read(r)) or steps[-1])  # type: ignore[func-returns-value]
        return steps

    assert limits() == limits()
