"""The judge's queue: bounded, at its own pace; failures abstain, nothing is lost by a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.config import JudgeConfig
from clawrl_gym.core.errors import DiskFull
from clawrl_gym.core.types import INTERRUPTED, Turn, Verdict
from clawrl_gym.judge import queue
from clawrl_gym.judge.queue import JudgeQueue
from clawrl_gym.store import Store
from tests.support.fakes_judge import ScriptedJudge, a_turn, live_session, stored, user
from tests.support.waiting import until


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = Store.open(tmp_path)
    await live_session(store)
    yield store
    await store.close()


class Told:
    """Collects verdicts."""

    def __init__(self) -> None:
        self.verdicts: list[Verdict] = []
        self._came = asyncio.Event()

    def __call__(self, verdict: Verdict) -> None:
        self.verdicts.append(verdict)
        self._came.set()

    async def wait(self, count: int) -> list[Verdict]:
        async with asyncio.timeout(60):
            while len(self.verdicts) < count:
                self._came.clear()
                await self._came.wait()
        return self.verdicts


@asynccontextmanager
async def judging(store: Store, judge: Any, told: Told, **config: Any) -> AsyncIterator[JudgeQueue]:
    queue = JudgeQueue(judge, store, JudgeConfig(**config), told)
    running = asyncio.create_task(queue.run())
    try:
        yield queue
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def answered(store: Store, count: int, first: int = 0, **changes: Any) -> list[Turn]:
    turns = [a_turn(index=first + at, **changes) for at in range(count)]
    return [await stored(store, turn, user(f"answer {turn.index}")) for turn in turns]


async def test_a_verdict_is_stored_before_it_is_told(store: Store) -> None:
    told = Told()
    async with judging(store, ScriptedJudge(lambda text: -1), told) as queue:
        (turn,) = await answered(store, 1)
        queue.add(turn)
        (verdict,) = await told.wait(1)
    assert (verdict.turn_id, verdict.value, verdict.reward) == (turn.id, -1, -1.0)
    assert (await store.verdicts_of("s"))[verdict.turn_id] == [verdict]
    assert queue.counters == {"negative": 1}


async def test_the_judge_sees_the_request_the_reply_and_the_next_state(store: Store) -> None:
    judge, told = ScriptedJudge(), Told()
    async with judging(store, judge, told, ignore=["now$"]) as queue:
        turn = a_turn(messages=[user("first"), user("plan my day now")])
        queue.add(await stored(store, turn, user("no, not that now"), user("now")))
        await told.wait(1)
    (case,) = judge.cases
    assert (case.request, case.reply) == ("plan my day", turn.reply)
    assert case.next_state == [user("no, not that")]


async def test_adding_never_waits_for_a_judge_that_does_not_answer(store: Store) -> None:
    judge, told = ScriptedJudge(), Told()
    judge.go.clear()
    async with judging(store, judge, told, concurrency=2) as queue:
        for turn in await answered(store, 5):
            queue.add(turn)  # a plain call: it cannot wait
        await judge.asked(2)
        assert queue.waiting == 5
        judge.go.set()
        await told.wait(5)
        assert judge.most_asking == 2
    assert queue.waiting == 0


@pytest.mark.parametrize(
    "error", [RuntimeError("out of order"), ValueError(), TimeoutError("its own")]
)
async def test_a_judge_that_raises_abstains_and_says_why(store: Store, error: Exception) -> None:
    """A failed judge of the reference scores 0, which training cannot tell from neutral."""
    told = Told()
    async with judging(store, ScriptedJudge(lambda text: error), told) as queue:
        (turn,) = await answered(store, 1)
        queue.add(turn)
        (verdict,) = await told.wait(1)
    assert (verdict.value, verdict.reward) == (None, None)
    assert verdict.detail["reason"].startswith(f"{type(error).__name__}: {error}")
    assert queue.counters == {"abstained": 1}


@pytest.mark.parametrize("value", [2, -7, float("nan"), float("inf")])
async def test_a_verdict_out_of_range_is_an_abstention(store: Store, value: float) -> None:
    told = Told()
    async with judging(store, ScriptedJudge(lambda text: value), told) as queue:
        (turn,) = await answered(store, 1)
        queue.add(turn)
        (verdict,) = await told.wait(1)
    assert verdict.value is None
    assert "expected -1 to 1" in verdict.detail["reason"]


async def test_a_judge_that_takes_too_long_abstains_and_frees_its_place(store: Store) -> None:
    judge, told = ScriptedJudge(), Told()
    judge.go.clear()
    async with judging(store, judge, told, timeout_s=0.02, concurrency=1) as queue:
        for turn in await answered(store, 2):
            queue.add(turn)
        verdicts = await told.wait(2)
    assert [v.detail for v in verdicts] == [{"reason": "no answer within 0.02 s"}] * 2
    assert judge.asking == 0


async def test_an_interrupted_reply_and_an_empty_next_state_abstain_unasked(store: Store) -> None:
    judge, told = ScriptedJudge(), Told()
    async with judging(store, judge, told) as queue:
        queue.add(await stored(store, a_turn(finish_reason=INTERRUPTED), user("go on")))
        queue.add(await stored(store, a_turn(index=1), user("  ")))
        verdicts = await told.wait(2)
    reasons = {v.detail["reason"] for v in verdicts}
    assert reasons == {"the reply was interrupted", "the next state is empty"}
    assert judge.cases == []
    assert await store.unjudged(10) == []


async def test_what_an_earlier_process_left_is_judged_after_a_restart(store: Store) -> None:
    turns = await answered(store, 30)
    told = Told()
    async with judging(store, ScriptedJudge(), told):
        await told.wait(30)
    assert {v.turn_id for v in told.verdicts} == {turn.id for turn in turns}


async def test_a_flood_beyond_the_bound_waits_in_the_store_and_nothing_is_judged_twice(
    store: Store,
) -> None:
    judge, told = ScriptedJudge(), Told()
    judge.go.clear()
    async with judging(store, judge, told, max_waiting=4, concurrency=2) as queue:
        turns = await answered(store, 40)
        for turn in turns:
            queue.add(turn)
            assert queue.waiting <= 4
        judge.go.set()
        await told.wait(40)
        await asyncio.sleep(0.05)  # time for a second verdict, if there were one
    assert sorted(v.turn_id for v in told.verdicts) == [turn.id for turn in turns]
    assert await store.unjudged(100) == []


async def test_what_the_disk_refused_is_judged_when_there_is_room(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: Any) -> Any:
        raise DiskFull("full")

    monkeypatch.setattr(queue, "_RETRY_S", 0.05)
    told = Told()
    async with judging(store, ScriptedJudge(), told) as judge:
        with monkeypatch.context() as patch:
            patch.setattr(store, "add_verdict", full)
            patch.setattr(store, "unjudged", full)
            (turn,) = await answered(store, 1)
            judge.add(turn)
            await until(lambda: judge.counters["not recorded"] > 0)
            await asyncio.sleep(0.1)  # it is tried again meanwhile
        (verdict,) = await told.wait(1)
    assert verdict.turn_id == turn.id


async def test_a_turn_that_was_deleted_meanwhile_is_left_alone(store: Store) -> None:
    judge, told = ScriptedJudge(), Told()
    judge.go.clear()
    async with judging(store, judge, told, concurrency=1) as queue:
        turns = await answered(store, 2)
        for turn in turns:
            queue.add(turn)
        await judge.asked(1)
        await store.delete_session("s")
        judge.go.set()
        await live_session(store, "other")
        queue.add(await stored(store, a_turn("other"), user("thanks")))
        (verdict,) = await told.wait(1)
    assert verdict.turn_id not in {turn.id for turn in turns}
    assert queue.counters["deleted"] == 2


async def test_a_turn_added_twice_is_judged_once(store: Store) -> None:
    told = Told()
    (turn,) = await answered(store, 1)
    async with judging(store, ScriptedJudge(), told) as queue:
        queue.add(turn)
        queue.add(turn)
        await told.wait(1)
        await asyncio.sleep(0.02)
    assert len(told.verdicts) == 1


async def test_without_a_judge_nothing_waits(store: Store) -> None:
    told = Told()
    queue = JudgeQueue(None, store, JudgeConfig(), told)
    (turn,) = await answered(store, 1)
    queue.add(turn)
    await queue.run()
    assert (queue.waiting, told.verdicts, queue.counters.total()) == (0, [], 0)
