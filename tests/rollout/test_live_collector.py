"""Verdicts become samples: feedback first, at least one a session, each reason for none told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.config import HintConfig, LiveConfig
from clawrl_gym.core.errors import PolicyError
from clawrl_gym.core.types import INTERRUPTED, Sample, Turn, Verdict
from clawrl_gym.judge.enhance import Enhancer
from clawrl_gym.judge.queue import JudgeQueue
from clawrl_gym.judge.rules import RuleJudge
from clawrl_gym.rollout.collection.live_collector import LiveCollector
from clawrl_gym.store import Store, UpdateRow
from clawrl_gym.trainers.algorithms.algorithm import Algorithm
from clawrl_gym.trainers.algorithms.binary import Binary
from clawrl_gym.trainers.algorithms.hybrid import Hybrid
from clawrl_gym.trainers.algorithms.opd import Opd
from clawrl_gym.trainers.batch_queue import BatchQueue
from clawrl_gym.trainers.user_queues import UserQueues
from tests.support.fakes import FakePolicy, decode
from tests.support.fakes_judge import a_turn, live_session, shipped_rules, stored, user


@dataclass(slots=True)
class Live:
    """One process' collector over a store."""

    store: Store
    ready: BatchQueue
    collector: LiveCollector

    async def judged(self, turn: Turn, value: Any, kind: Any = "rule", **changes: Any) -> Verdict:
        """A verdict is stored, told and taken."""
        verdict = await keep(self.store, turn, value, kind, **changes)
        self.collector.verdict(verdict)
        await self.collector.settled()
        return verdict

    async def end(self, session_id: str = "s", reward: float | None = None) -> None:
        await self.store.end_session(session_id, reward=reward, stop_reason="terminated")
        self.collector.session_ended(session_id)
        await self.collector.settled()

    async def batch(self, version: int = 0) -> list[Sample]:
        """What waits for training, as the next update's batch."""
        if not self.ready.waiting_samples:
            return []
        async with asyncio.timeout(60):
            return (await self.ready.batch(version, version)).samples

    async def yielded(self, session_id: str = "s") -> tuple[int | None, str | None]:
        row = await self.store.session(session_id)
        assert row is not None
        return row.samples, row.why


async def keep(store: Store, turn: Turn, value: Any, kind: Any = "rule", **changes: Any) -> Verdict:
    reward = changes.pop("reward", None if value is None else float(value))
    detail = changes.pop("detail", {})
    verdict = Verdict(turn.id or 0, kind, value, reward, detail, time.time())
    return replace(verdict, id=await store.add_verdict(verdict))


@asynccontextmanager
async def collecting(
    store: Store,
    judged: bool = True,
    restore: bool = False,
    algorithm: Algorithm | None = None,
    policy: FakePolicy | None = None,
    **config: Any,
) -> AsyncIterator[Live]:
    settings = LiveConfig(**{"flush_s": 0.001, "batch_turns": 100} | config)
    queues = UserQueues(lambda user: BatchQueue.live(settings, store, user))
    ready = queues.own
    enhancer = Enhancer((policy or FakePolicy()).render, HintConfig(form="!{hint}"), 10_000)
    collector = LiveCollector(
        settings, store, algorithm or Binary(0.95), queues, judged=judged, enhancer=enhancer
    )
    if restore:
        await collector.restore()
    running = asyncio.create_task(collector.run())
    try:
        yield Live(store, ready, collector)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = Store.open(tmp_path)
    await live_session(store)
    yield store
    await store.close()


def advantages(samples: list[Sample]) -> list[float]:
    return [sample.advantages_T[-1] for sample in samples]


async def test_a_clear_verdict_makes_a_sample_of_its_turn_alone(store: Store) -> None:
    async with collecting(store) as live:
        turn = await stored(store, a_turn(), user("that's wrong"))
        await live.judged(turn, -1)
        (sample,) = await live.batch()
    assert sample.turn_id == turn.id
    assert sample.ids_T == [1, 2, 3, 4, 5]
    assert sample.mask_T == [False, False, False, True, True]
    assert sample.logprobs_T == [0.0, 0.0, 0.0, -0.5, -0.25]
    assert sample.advantages_T == [0.0, 0.0, 0.0, -1.0, -1.0]
    assert sample.reward == -1.0
    assert await live.yielded() == (1, None)


async def test_neutral_verdicts_and_abstentions_are_recorded_and_not_trained(store: Store) -> None:
    async with collecting(store) as live:
        for index, value in enumerate((0, None)):
            turn = await stored(store, a_turn(index=index), user("ok"))
            await live.judged(turn, value)
        assert await live.batch() == []
        assert live.collector.counters == {"turns/neutral": 1, "turns/abstained": 1}
    assert await store.judged_without_sample() == []


async def test_fifteen_neutral_turns_and_one_bad_one_train_the_bad_one_at_the_flush(
    store: Store,
) -> None:
    """The reference fills its batch of 16 with the masked samples of neutral turns."""
    async with collecting(store, batch_turns=16) as live:
        for index in range(16):
            turn = await stored(store, a_turn(index=index), user("?"))
            await live.judged(turn, -1 if index == 7 else 0)
        (sample,) = await live.batch()
    assert sample.reward == -1.0


async def test_praise_alone_soon_teaches_next_to_nothing_and_a_first_complaint_much(
    store: Store,
) -> None:
    """Without a baseline, as in the reference, 90 % of +1 mostly reinforces what is there."""
    async with collecting(store, batch_turns=1000) as live:
        for index in range(120):
            await live.judged(await stored(store, a_turn(index=index), user("thanks")), 1)
        praised = advantages(await live.batch())
        await live.judged(await stored(store, a_turn(index=200), user("wrong")), -1)
        (complaint,) = advantages(await live.batch())
    assert praised[0] == 1.0
    assert praised == sorted(praised, reverse=True)
    assert praised[-1] == pytest.approx(0.05)
    assert complaint == pytest.approx(-1.95)


async def test_the_baseline_goes_on_after_a_restart(store: Store) -> None:
    async with collecting(store) as live:
        for index in range(20):
            await live.judged(await stored(store, a_turn(index=index), user("thanks")), 1)
        before = advantages(await live.batch())
    async with collecting(store, restore=True) as live:
        await live.judged(await stored(store, a_turn(index=50), user("thanks")), 1)
        after = advantages(await live.batch())[-1]
    assert after == pytest.approx(before[-1] - 0.05 * before[-1])


async def test_weak_evidence_makes_a_weak_sample(store: Store) -> None:
    async with collecting(store, weak_reward=0.2) as live:
        verdict = Verdict(0, "rule", 1, 1.0, {}, 0.0, weight=0.25)
        turn = await stored(store, a_turn(), user("fine"))
        weak = replace(verdict, turn_id=turn.id or 0)
        live.collector.verdict(replace(weak, id=await store.add_verdict(weak)))
        await live.collector.settled()
        await live_session(store, "t")
        await live.judged(await stored(store, a_turn("t"), user("go on")), 0)
        await live.end("t")
        samples = await live.batch()
    assert advantages(samples) == [0.25, 0.2]
    assert [sample.strength for sample in samples] == [0.25, pytest.approx(0.2)]


async def test_each_source_has_a_baseline_of_its_own(store: Store) -> None:
    async with collecting(store) as live:
        for index in range(10):
            await live.judged(await stored(store, a_turn(index=index), user("thanks")), 1)
        thumb = await stored(store, a_turn(index=20))
        await live.judged(thumb, 1, "feedback")
        assert advantages(await live.batch())[-1] == 1.0


async def test_a_score_is_the_reward(store: Store) -> None:
    async with collecting(store) as live:
        await live.judged(await stored(store, a_turn()), 1, "feedback", reward=0.25)
        assert advantages(await live.batch()) == [0.25]


async def test_feedback_takes_the_waiting_samples_place(store: Store) -> None:
    async with collecting(store) as live:
        turn = await stored(store, a_turn(), user("thanks"))
        await live.judged(turn, 1)
        await live.judged(turn, -1, "feedback")
        assert [s.reward for s in await live.batch()] == [-1.0]
        assert await live.yielded() == (1, None)
        assert live.collector.counters["withdrawn"] == 1
    assert len(await store.untrained_groups()) == 2


async def test_the_judges_word_after_feedback_changes_nothing(store: Store) -> None:
    async with collecting(store) as live:
        turn = await stored(store, a_turn(), user("thanks"))
        await live.judged(turn, -1, "feedback")
        await live.judged(turn, 1)
        assert [s.reward for s in await live.batch()] == [-1.0]
        assert live.collector.counters["turns/overruled"] == 1


async def test_the_last_of_several_thumbs_counts(store: Store) -> None:
    async with collecting(store) as live:
        turn = await stored(store, a_turn())
        for value in (1, -1, 1, -1):
            await live.judged(turn, value, "feedback")
        assert [s.reward for s in await live.batch()] == [-1.0]


async def test_neutral_feedback_takes_a_sample_back(store: Store) -> None:
    async with collecting(store) as live:
        turn = await stored(store, a_turn(), user("that's wrong"))
        await live.judged(turn, -1)
        await live.judged(turn, 0, "feedback")
        assert await live.batch() == []
        assert await live.yielded() == (0, None)


async def test_feedback_after_the_judges_sample_was_trained_makes_another_one(store: Store) -> None:
    async with collecting(store) as live:
        turn = await stored(store, a_turn(), user("thanks"))
        await live.judged(turn, 1)
        trained = await live.ready.batch(0, 0)
        await live.judged(turn, -1, "feedback")  # while the learner is at it
        ids = [s.id or 0 for s in trained.samples]
        await store.add_update(UpdateRow(1, 4, 0.1, trained.groups), ids, "c1")
        await live.judged(turn, -1, "feedback")  # long after
        assert [s.reward for s in await live.batch(1)] == [-1.0]
        assert await store.samples_of_update(1) == trained.samples


MEANWHILE: dict[str, tuple[int, dict[str, Any]]] = {
    "the same again": (1, {}), "the opposite": (-1, {}), "a score": (1, {"reward": 0.3}),
    "a correction": (-1, {"detail": {"text": "say it shorter"}}), "neutral": (0, {}),
}  # fmt: skip


@pytest.mark.parametrize("later", MEANWHILE)
@pytest.mark.parametrize("times", [1, 2, 33])
@pytest.mark.parametrize("recorded", [False, True])
async def test_feedback_on_a_turn_is_trained_on_once_whatever_comes_later(
    store: Store, later: str, times: int, recorded: bool
) -> None:
    value, changes = MEANWHILE[later]
    async with collecting(store) as live:
        turn = await stored(store, a_turn())
        await live.judged(turn, 1, "feedback")
        taken = await live.ready.batch(0, 0)
        if recorded:
            ids = [s.id or 0 for s in taken.samples]
            await store.add_update(UpdateRow(1, 4, 0.1, taken.groups), ids, "c1")
        for _ in range(times):
            await live.judged(turn, value, "feedback", **changes)
        assert await live.batch(1) == []
        used = live.collector.counters["turns/feedback used"]
        assert used == times
        assert len((await store.verdicts_of("s"))[turn.id or 0]) == times + 1, "it is on record"


async def test_feedback_is_used_once_across_a_restart(store: Store) -> None:
    async with collecting(store) as live:
        turn = await stored(store, a_turn())
        await live.judged(turn, 1, "feedback")
        taken = await live.ready.batch(0, 0)
        ids = [s.id or 0 for s in taken.samples]
        await store.add_update(UpdateRow(1, 4, 0.1, taken.groups), ids, "c1")
    async with collecting(store, restore=True) as live:
        await live.judged(turn, -1, "feedback")
        assert await live.batch(1) == []


async def test_feedback_after_the_session_ended_makes_its_sample(store: Store) -> None:
    async with collecting(store) as live:
        turn = await stored(store, a_turn())
        await live.end()
        assert await live.yielded() == (0, "no next state")
        await live.judged(turn, 1, "feedback")
        assert advantages(await live.batch()) == [1.0]
        assert await live.yielded() == (1, None)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"kind": "side"}, "side turn"),
        ({"finish_reason": INTERRUPTED}, "interrupted"),
        ({"finish_reason": "abort"}, "interrupted"),
        ({"finish_reason": "length"}, "truncated"),
        ({"logprobs_T": [None, None]}, "no known log-prob"),
        ({"sampled_ids_T": [], "logprobs_T": [], "versions_T": []}, "no known log-prob"),
        ({"prompt_ids_T": []}, "no prompt"),
        ({"untrainable": "top_p"}, "sampled with top_p"),
        ({"untrainable": "temperature top_k"}, "sampled with temperature top_k"),
    ],
)
async def test_such_turns_are_never_trained_on_whatever_is_said(
    store: Store, changes: dict[str, Any], why: str
) -> None:
    """The reference trains on replies that were cut off or aborted."""
    async with collecting(store) as live:
        turn = await stored(store, a_turn(**changes), user("that's wrong"))
        await live.judged(turn, -1)
        await live.judged(turn, -1, "feedback")
        assert await live.batch() == []
        assert live.collector.counters[f"turns/{why}"] == 2
    assert await store.judged_without_sample() == []


async def test_a_sample_keeps_the_temperature_that_its_turn_was_sampled_at(store: Store) -> None:
    async with collecting(store) as live:
        turn = await stored(store, a_turn(temperature=0.4), user("that's wrong"))
        await live.judged(turn, -1)
        (sample,) = await live.batch()
        assert sample.temperature == 0.4


async def test_truncated_replies_are_trained_on_when_that_is_wanted(store: Store) -> None:
    async with collecting(store, train_truncated=True) as live:
        turn = await stored(store, a_turn(finish_reason="length"), user("that's wrong"))
        await live.judged(turn, -1)
        assert len(await live.batch()) == 1


async def test_a_turn_of_old_weights_is_not_trained_on(store: Store) -> None:
    async with collecting(store, max_staleness=2) as live:
        live.ready.version = 3
        for index, version in enumerate((0, 1)):
            turn = await stored(store, a_turn(index=index, versions_T=[version, 3]), user("wrong"))
            await live.judged(turn, -1)
        (sample,) = await live.batch(3)
        assert sample.oldest_version == 1
        assert live.collector.counters["turns/stale"] == 1


async def test_a_missing_logprob_masks_its_token_only(store: Store) -> None:
    async with collecting(store) as live:
        turn = await stored(store, a_turn(logprobs_T=[None, -0.25]), user("wrong"))
        await live.judged(turn, -1)
        (sample,) = await live.batch()
    assert sample.mask_T == [False, False, False, False, True]
    assert sample.advantages_T == [0.0, 0.0, 0.0, 0.0, -1.0]


# At least one sample a session.


async def test_a_session_without_a_clear_verdict_yields_one_sample_with_a_gradient(
    store: Store,
) -> None:
    """The reference's guarantee promotes a turn of score 0: advantage 0, no gradient."""
    async with collecting(store) as live:
        for index in range(3):
            turn = await stored(store, a_turn(index=index), user("and then?"))
            await live.judged(turn, 0)
        assert await live.batch() == []
        await live.end()
        (sample,) = await live.batch()
        assert sample.turn_id == turn.id
        assert sample.advantages_T[-2:] == [0.1, 0.1]
        assert sample.reward == 0.1
        assert await live.yielded() == (1, None)


async def test_the_guarantee_waits_for_all_verdicts(store: Store) -> None:
    """The reference promotes the first neutral turn before it knows what comes later."""
    async with collecting(store) as live:
        turns = [await stored(store, a_turn(index=i), user("?")) for i in range(3)]
        await live.judged(turns[0], 0)
        await live.end()
        assert await live.batch() == []
        await live.judged(turns[1], 0)
        assert await live.batch() == []
        await live.judged(turns[2], -1)
        assert advantages(await live.batch()) == [-1.0]
        assert await live.yielded() == (1, None)


async def test_a_single_turn_without_any_signal_is_kept_and_says_so(store: Store) -> None:
    """The reference's README promises to rescue it, its code never can."""
    async with collecting(store) as live:
        turn = await stored(store, a_turn())
        await live.end()
        assert await live.batch() == []
        assert await live.yielded() == (0, "no next state")
        assert live.collector.counters["sessions/no next state"] == 1
    assert await store.turn(turn.id or 0) is not None


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize(
    ("verdict", "why"),
    [
        ({"reward": None}, "not understood"),
        ({"reward": None, "rule": "language"}, "language not understood"),
        ({"reward": None, "reason": "no answer within 60 s"}, "not understood"),
        ({"reward": 0, "votes": [0, 0, -1]}, "votes differ"),
        ({"reward": 0, "votes": [0, 0, 0], "rule": -1}, "votes differ"),
        ({"reward": 0, "rule": "lasting", "lasting": True}, "wish for the future"),
    ],
)
async def test_one_turn_that_was_not_understood_and_the_session_yields_nothing(
    store: Store, at: int, verdict: dict[str, Any], why: str
) -> None:
    detail = {name: value for name, value in verdict.items() if name != "reward"}
    async with collecting(store) as live:
        for index in range(3):
            turn = await stored(store, a_turn(index=index), user("?"))
            if index == at:
                await live.judged(turn, verdict["reward"], detail=detail)
            else:
                await live.judged(turn, 0)
        await live.end()
        assert await live.batch() == []
        assert await live.yielded() == (0, why)
        assert live.collector.counters[f"sessions/{why}"] == 1


async def test_a_complaint_about_a_turn_that_cannot_be_trained_forbids_the_weak_reward(
    store: Store,
) -> None:
    async with collecting(store) as live:
        late = await stored(store, a_turn(finish_reason=INTERRUPTED), user("wrong"))
        await live.judged(late, -1)
        await live.judged(await stored(store, a_turn(index=1), user("and then?")), 0)
        await live.end()
        assert await live.batch() == []
        assert await live.yielded() == (0, "complaint")


async def test_without_a_judge_nothing_was_understood(store: Store) -> None:
    async with collecting(store, judged=False) as live:
        await stored(store, a_turn(), user("and then?"))
        await stored(store, a_turn(index=1))
        await live.end()
        assert await live.batch() == []
        assert await live.yielded() == (0, "not judged")


@pytest.mark.parametrize(
    ("turns", "why"),
    [
        ([], "no turn"),
        ([{"kind": "side"}], "only side turns"),
        ([{"finish_reason": INTERRUPTED}], "interrupted"),
        ([{"finish_reason": "length"}, {"finish_reason": "length"}], "truncated"),
        ([{"logprobs_T": [None, None]}], "no known log-prob"),
        ([{"versions_T": [0, 5]}], "stale"),
    ],
)
async def test_a_session_that_yields_nothing_says_why(
    store: Store, turns: list[dict[str, Any]], why: str
) -> None:
    async with collecting(store, max_staleness=4) as live:
        live.ready.version = 5
        for index, changes in enumerate(turns):
            turn = await stored(store, a_turn(index=index, **changes), user("?"))
            if turn.kind == "main":
                await live.judged(turn, 0)
        await live.end()
        assert await live.yielded() == (0, why)
        assert live.collector.counters[f"sessions/{why}"] == 1


async def test_weak_reward_0_leaves_such_sessions_out(store: Store) -> None:
    async with collecting(store, weak_reward=0.0) as live:
        await live.judged(await stored(store, a_turn(), user("?")), 0)
        await live.end()
        assert await live.batch() == []
        assert await live.yielded() == (0, "no clear verdict")


async def test_a_session_with_a_sample_gets_no_weak_one(store: Store) -> None:
    async with collecting(store) as live:
        await live.judged(await stored(store, a_turn(), user("thanks")), 1)
        await live.judged(await stored(store, a_turn(index=1), user("?")), 0)
        await live.end()
        assert advantages(await live.batch()) == [1.0]


async def test_feedback_takes_the_place_of_a_weak_sample(store: Store) -> None:
    async with collecting(store) as live:
        turn = await stored(store, a_turn(), user("?"))
        await live.judged(turn, 0)
        await live.end()
        await live.judged(turn, -1, "feedback")
        assert advantages(await live.batch()) == [-1.0]
        assert await live.yielded() == (1, None)


@pytest.mark.parametrize(("outcome", "reward"), [(1.0, 1.0), (-1.0, -1.0), (0.5, 0.5), (7.0, 1.0)])
async def test_a_sessions_outcome_is_feedback_on_its_last_turn(
    store: Store, outcome: float, reward: float
) -> None:
    async with collecting(store) as live:
        await live.judged(await stored(store, a_turn(), user("?")), 0)
        last = await stored(store, a_turn(index=1))
        await live.end(reward=outcome)
        (sample,) = await live.batch()
        assert (sample.turn_id, sample.reward) == (last.id, reward)
        live.collector.session_ended("s")  # told twice
        await live.collector.settled()
        assert await live.batch() == []
        assert await live.yielded() == (1, None)


async def test_a_persons_feedback_goes_before_the_outcome(store: Store) -> None:
    async with collecting(store) as live:
        await live.judged(await stored(store, a_turn()), -1, "feedback")
        await live.end(reward=1.0)
        assert advantages(await live.batch()) == [-1.0]


async def test_a_session_that_is_opened_again_goes_on_counting(store: Store) -> None:
    async with collecting(store) as live:
        first = await stored(store, a_turn())
        await live.end()
        assert await live.yielded() == (0, "no next state")
        await store.reopen_session("s")
        await store.add_next_state(first.id or 0, [user("that's wrong")])
        await live.judged(first, -1)
        assert await live.yielded() == (1, None)
        await live.end()
        assert await live.yielded() == (1, None)
        assert advantages(await live.batch()) == [-1.0]


async def test_a_rollouts_end_and_verdicts_are_not_harvested(store: Store) -> None:
    await live_session(store, "r", source="rollout")
    async with collecting(store) as live:
        await live.judged(await stored(store, a_turn("r"), user("?")), -1)
        await live.end("r")
        assert await live.batch() == []


# Restarts and deletions.


async def test_a_verdict_that_never_became_a_sample_does_after_a_restart(store: Store) -> None:
    bad, overruled = [await stored(store, a_turn(index=i), user("?")) for i in range(2)]
    await keep(store, bad, -1)
    await keep(store, overruled, 1)
    await keep(store, overruled, -1, "feedback")
    async with collecting(store, restore=True) as live:
        await live.collector.settled()
        assert [(s.turn_id, s.reward) for s in await live.batch()] == [
            (bad.id, -1.0), (overruled.id, -1.0),
        ]  # fmt: skip
    assert await store.judged_without_sample() == []


async def test_a_kill_between_feedback_and_its_sample_leaves_one_sample(store: Store) -> None:
    turn = await stored(store, a_turn(), user("thanks"))
    async with collecting(store) as live:
        await live.judged(turn, 1)
    await keep(store, turn, -1, "feedback")
    async with collecting(store, restore=True) as live:
        await live.collector.settled()
        assert [s.reward for s in await live.batch()] == [-1.0]


async def test_waiting_samples_and_unfinished_ends_survive_a_restart(store: Store) -> None:
    await live_session(store, "t")
    async with collecting(store) as live:
        await live.judged(await stored(store, a_turn(), user("wrong")), -1)
        neutral = await stored(store, a_turn("t"), user("?"))
        await live.judged(neutral, 0)
    await store.end_session("t", reward=None, stop_reason="idle")
    async with collecting(store, restore=True) as live:
        await live.collector.settled()
        assert advantages(await live.batch()) == [-1.0, 0.1]
        assert await live.yielded("t") == (1, None)


@pytest.mark.parametrize("value", [1, 0])
async def test_an_outcome_that_was_not_taken_up_is_after_a_restart(
    store: Store, value: int
) -> None:
    async with collecting(store) as live:
        await live.judged(await stored(store, a_turn(), user("thanks")), value)
        last = await stored(store, a_turn(index=1))
    await store.end_session("s", reward=-1.0, stop_reason="terminated")
    assert await store.ended_without_yield() == ["s"]
    async with collecting(store, restore=True) as live:
        await live.collector.settled()
        verdicts = await store.verdicts_of("s")
    assert last.id is not None
    assert [(verdict.kind, verdict.reward) for verdict in verdicts[last.id]] == [("feedback", -1.0)]
    assert await store.ended_without_yield() == []


async def test_a_session_whose_samples_were_withdrawn_is_taken_up_at_its_end(store: Store) -> None:
    async with collecting(store) as live:
        turn = await stored(store, a_turn(), user("?"))
        await live.judged(turn, 1)
        await live.judged(turn, 0, "feedback")
        assert await live.yielded() == (0, None)
    await store.end_session("s", reward=None, stop_reason="idle")
    assert await store.ended_without_yield() == ["s"]


async def test_nothing_of_a_deleted_session_is_trained_on(store: Store) -> None:
    async with collecting(store) as live:
        await live.judged(await stored(store, a_turn(), user("wrong")), -1)
        late = await stored(store, a_turn(index=1), user("wrong"))
        verdict = await keep(store, late, -1)
        live.collector.deleted("s")
        live.collector.verdict(verdict)  # while the deletion is on its way
        await live.collector.settled()
        assert await live.batch() == []
        await store.delete_session("s")
        live.collector.verdict(verdict)  # after it
        await live.collector.settled()
        assert await live.batch() == []
        await live_session(store)  # the client goes on with the same id
        await live.judged(await stored(store, a_turn(), user("wrong")), -1)
        assert advantages(await live.batch()) == [pytest.approx(-0.95)]


@pytest.mark.parametrize("record", [True, False])
async def test_what_a_user_answers_is_judged_and_trained_recorded_or_not(
    tmp_path: Path, record: bool
) -> None:
    """With its record switched off, the reference neither judges nor trains."""
    store = Store.open(tmp_path / "run", record=record)
    await live_session(store)
    rules = shipped_rules(concurrency=1)
    told: asyncio.Queue[Verdict] = asyncio.Queue()
    async with collecting(store) as live:

        def tell(verdict: Verdict) -> None:
            live.collector.verdict(verdict)
            told.put_nowait(verdict)

        queue = JudgeQueue(RuleJudge(rules), store, rules, tell)
        running = asyncio.create_task(queue.run())
        for index, words in enumerate(("thanks", "what time is it?", "no, that is wrong")):
            queue.add(await stored(store, a_turn(index=index), user(words)))
        assert [(await told.get()).value for _ in range(3)] == [1, None, -1]
        await live.collector.settled()
        assert advantages(await live.batch()) == [1.0, pytest.approx(-1.05)]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    await store.close()


async def test_a_store_that_fails_does_not_end_the_collector(store: Store) -> None:
    async with collecting(store) as live:
        turn = await stored(store, a_turn(), user("wrong"))
        verdict = await keep(store, turn, -1)
        await store.close()
        live.collector.verdict(verdict)
        live.collector.session_ended("s")
        await live.collector.settled()
        assert live.collector.counters["failed"] == 2


# Hints.

HINT = {"hints": ["Be brief."]}


def hybrid(rl_weight: float = 1.0) -> Hybrid:
    return Hybrid(Binary(0.95), Opd(), rl_weight)


@pytest.mark.parametrize("value", [None, 0, -1])
async def test_a_verdict_with_a_hint_makes_a_lesson_whatever_its_value(
    store: Store, value: Any
) -> None:
    async with collecting(store, algorithm=hybrid()) as live:
        turn = await stored(store, a_turn(), user("shorter"))
        await live.judged(turn, value, "model", detail=HINT)
        (sample,) = await live.batch()
    assert sample.distill_T == [0.0, 0.0, 0.0, 1.0, 1.0]
    assert sample.advantages_T[-1] == float(value or 0)
    assert "plan my day!Be brief." in decode(sample.distill_targets[0].prompts[0])
    assert await store.judged_without_sample() == []


async def test_opd_takes_no_reward_and_its_sessions_say_so(store: Store) -> None:
    async with collecting(store, algorithm=Opd()) as live:
        await live.judged(await stored(store, a_turn(), user("wrong")), -1)
        await live.judged(await stored(store, a_turn(index=1), user("?")), 0)
        await live.end()
        assert await live.batch() == []
        assert await live.yielded() == (0, "no hint")
        assert live.collector.counters["turns/no hint"] == 1
        assert live.collector.counters["turns/neutral"] == 1
    assert await store.judged_without_sample() == []


async def test_an_algorithm_of_rewards_takes_no_hint(store: Store) -> None:
    policy = FakePolicy()
    async with collecting(store, policy=policy) as live:
        turn = await stored(store, a_turn(), user("shorter"))
        await live.judged(turn, None, "model", detail=HINT)
        assert await live.batch() == []
    assert policy.bodies == []
    assert await store.judged_without_sample() == []


async def test_a_persons_correction_is_a_hint(store: Store) -> None:
    async with collecting(store, algorithm=Opd()) as live:
        turn = await stored(store, a_turn())
        await live.judged(turn, -1, "feedback", detail={"text": "Only the morning, please."})
        (sample,) = await live.batch()
    read = decode(sample.distill_targets[0].prompts[0])
    assert "!The user said: Only the morning, please." in read


async def test_feedback_takes_the_place_of_the_reward_and_keeps_the_judges_hint(
    store: Store,
) -> None:
    async with collecting(store, algorithm=hybrid()) as live:
        turn = await stored(store, a_turn(), user("shorter"))
        await live.judged(turn, None, "model", detail=HINT)
        await live.judged(turn, -1, "feedback")
        (sample,) = await live.batch()
        assert (sample.advantages_T[-1], sample.distill_T[-1]) == (-1.0, 1.0)
        other = await stored(store, a_turn(index=1), user("shorter"))
        await live.judged(other, None, "model", detail=HINT)
        await live.judged(other, 1, "feedback")
        (sample,) = await live.batch()
        assert (sample.reward, sample.distill_T) == (1.0, [])


async def test_a_session_of_hints_needs_no_weak_sample(store: Store) -> None:
    async with collecting(store, algorithm=hybrid()) as live:
        turn = await stored(store, a_turn(), user("shorter"))
        await live.judged(turn, 0, "model", detail=HINT)
        await live.end()
        assert [any(s.distill_T) for s in await live.batch()] == [True]
        assert await live.yielded() == (1, None)


async def test_a_weak_sample_has_the_weight_of_rewards(store: Store) -> None:
    async with collecting(store, algorithm=hybrid(0.5), weak_reward=0.2) as live:
        await live.judged(await stored(store, a_turn(), user("?")), 0)
        await live.end()
        assert advantages(await live.batch()) == [0.1]


async def test_hints_wait_in_the_store_while_the_policy_does_not_answer(store: Store) -> None:
    policy = FakePolicy()
    policy.refusal = PolicyError("down")
    async with collecting(store, algorithm=Opd(), policy=policy) as live:
        await live.judged(await stored(store, a_turn(), user("?")), None, "model", detail=HINT)
        await live.end()
        assert await live.batch() == []
        assert live.collector.counters["turns/hint waits"] == 1
        assert live.collector.counters["hints/failed"] == 1
    async with collecting(store, restore=True, algorithm=Opd()) as live:
        await live.collector.settled()
        assert [any(s.distill_T) for s in await live.batch()] == [True]
        assert await live.yielded() == (1, None)


async def test_a_hint_that_does_not_fit_is_given_up(store: Store) -> None:
    policy = FakePolicy()
    policy.max_prompt = 5
    async with collecting(store, algorithm=Opd(), policy=policy) as live:
        await live.judged(await stored(store, a_turn(), user("?")), -1, "model", detail=HINT)
        await live.end()
        assert await live.batch() == []
        assert await live.yielded() == (0, "no hint")
        assert live.collector.counters["turns/unreadable hint"] == 1
    assert await store.judged_without_sample() == []


async def test_a_reward_goes_on_without_its_hint(store: Store) -> None:
    policy = FakePolicy()
    policy.refusal = PolicyError("down")
    async with collecting(store, algorithm=hybrid(), policy=policy) as live:
        await live.judged(await stored(store, a_turn(), user("?")), -1, "model", detail=HINT)
        (sample,) = await live.batch()
        assert (sample.advantages_T[-1], sample.distill_targets) == (-1.0, ())


async def test_a_waiting_lesson_survives_a_restart(store: Store) -> None:
    async with collecting(store, algorithm=Opd()) as live:
        await live.judged(await stored(store, a_turn(), user("?")), None, "model", detail=HINT)
    async with collecting(store, restore=True, algorithm=Opd()) as live:
        (sample,) = await live.batch()
        assert (sample.distill_T[-1], len(sample.distill_targets)) == (1.0, 1)
