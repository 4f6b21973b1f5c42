"""What live conversations need of the store: verdicts, what waits, sessions that come and go."""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from clawrl_gym.core.errors import StoreError
from clawrl_gym.core.files.jsonl import read_json_lines
from clawrl_gym.core.types import Compared, Group, Sample
from clawrl_gym.store import OpenSession, SessionRow, Store, StoreReader, effective
from tests.store.test_store import (
    SESSION,
    make_group,
    make_sample,
    make_turn,
    make_verdict,
    update,
    user,
)

LIVE = SessionRow("live", None, None, "train", "live", 10.0, matched_by="header")


async def open_live(folder: Path, turns: int = 1) -> tuple[Store, list[int]]:
    """A store with one live session; returns the ids of its turns, each with a next state."""
    store = Store.open(folder)
    await store.add_session(LIVE)
    ids = [await store.add_turn(make_turn(i, session_id="live")) for i in range(turns)]
    for turn_id in ids:
        await store.add_next_state(turn_id, [user("go on")])
    return store, ids


def live_sample(turn_id: int, group_id: int) -> tuple[Group, list[Sample]]:
    sample = replace(make_sample(group_id), session_id="live", turn_id=turn_id)
    return make_group(group_id), [sample]


def test_feedback_wins_over_every_judge_whenever_it_came() -> None:
    judged, model = make_verdict(1, -1), make_verdict(1, 1, "model")
    thumb, score = make_verdict(1, -1, "feedback"), make_verdict(1, 1, "feedback", reward=0.3)
    assert effective([]) is None
    assert effective([judged, model]) is model
    assert effective([thumb, judged, model]) is thumb
    assert effective([thumb, judged, score]) is score


async def test_verdicts_come_back_by_turn_oldest_first(tmp_path: Path) -> None:
    store, (one, two) = await open_live(tmp_path, 2)
    told = [
        make_verdict(two, 1, "feedback", reward=0.25, detail={"text": "mehr \u00fc!"}),
        make_verdict(one, None, "model"),
        make_verdict(two, -1),
    ]
    ids = [await store.add_verdict(verdict) for verdict in told]
    stored = [replace(verdict, id=given) for verdict, given in zip(told, ids, strict=True)]
    assert await store.verdicts_of("live") == {two: [stored[0], stored[2]], one: [stored[1]]}
    assert await store.verdicts_of("nobody") == {}
    with pytest.raises(StoreError, match="verdict on turn 77, expected a stored turn"):
        await store.add_verdict(make_verdict(77))
    await store.close()
    lines = read_json_lines(tmp_path / "evaluations.jsonl")
    assert [line["session_id"] for line in lines] == ["live"] * 3
    assert lines[0]["reward"] == 0.25


async def test_numbers_that_json_does_not_know_are_refused_alone(tmp_path: Path) -> None:
    store, (one,) = await open_live(tmp_path)
    strange = [{"role": "user", "content": [{"x": math.inf}]}]
    for refused in (
        store.add_turn(make_turn(1, session_id="live", messages=strange)),
        store.add_next_state(one, strange),  # type: ignore[arg-type]
        store.add_verdict(make_verdict(one, detail={"x": math.nan})),
        store.add_verdict(make_verdict(one, reward=math.nan)),
        store.add_verdict(make_verdict(one, reward=1.5)),
        store.add_verdict(make_verdict(one, value=2)),
    ):
        with pytest.raises(StoreError, match=r"expected finite numbers|in .-1, 1.|refused"):
            await refused
    assert await store.verdicts_of("live") == {}
    await store.close()
    await Store.open(tmp_path).close()


async def test_only_live_main_turns_with_a_next_state_wait_for_the_judge(tmp_path: Path) -> None:
    store, (one, two, three, four) = await open_live(tmp_path, 4)
    await store.add_session(SESSION)
    rollout = await store.add_turn(make_turn())
    side = await store.add_turn(make_turn(4, session_id="live", kind="side"))
    for turn_id in (rollout, side):
        await store.add_next_state(turn_id, [user("x")])
    last = await store.add_turn(make_turn(5, session_id="live"))
    await store.add_verdict(make_verdict(last, 1, "feedback"))  # a thumb before the next state
    await store.add_next_state(last, [user("x")])
    await store.add_turn(make_turn(6, session_id="live"))
    await store.add_verdict(make_verdict(two, None))
    assert await store.unjudged(10) == [one, three, four]
    assert await store.unjudged(2) == [one, three]
    assert await store.unjudged(10, after_id=three) == [four]
    await store.close()


async def test_a_verdict_waits_until_its_sample_is_accepted(tmp_path: Path) -> None:
    store, (one, two, three, four) = await open_live(tmp_path, 4)
    for turn_id, value in ((one, 1), (two, -1), (three, 0), (four, None)):
        await store.add_verdict(make_verdict(turn_id, value))
    await store.add_group(*live_sample(one, 0))
    await store.close()
    store = Store.open(tmp_path)
    waiting = await store.judged_without_sample()
    assert [(verdict.turn_id, verdict.value) for verdict in waiting] == [(two, -1), (three, 0)]
    await store.settle(three)
    assert [verdict.turn_id for verdict in await store.judged_without_sample()] == [two]
    await store.close()


async def test_verdicts_on_rollouts_never_wait_for_a_sample_of_their_own(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await store.add_session(SESSION)
    await store.add_verdict(make_verdict(await store.add_turn(make_turn())))
    assert await store.judged_without_sample() == []
    await store.close()


async def test_what_groups_were_compared_with_is_kept_in_their_order(tmp_path: Path) -> None:
    store, (one, two) = await open_live(tmp_path, 2)
    weak = Compared("rule", 1.0, 0.1)
    group, samples = live_sample(one, 5)
    await store.add_group(group, samples, [weak, Compared("feedback", -0.5)])
    await store.add_group(*live_sample(two, 3))
    await store.add_group(make_group(9), [], [Compared("outcome", 0.0)])
    await store.close()
    store = Store.open(tmp_path)
    assert await store.compared() == [weak, ("feedback", -0.5, 1.0), ("outcome", 0.0, 1.0)]
    await store.delete_session("live")
    assert await store.compared() == [("outcome", 0.0, 1.0)], "it is forgotten with its session"
    await store.close()


async def test_a_verdicts_weight_is_kept_and_checked(tmp_path: Path) -> None:
    store, (one,) = await open_live(tmp_path)
    await store.add_verdict(make_verdict(one, 1, weight=0.25))
    for weight in (0.0, -0.1, 1.01, float("nan")):
        with pytest.raises(StoreError, match=r"expected one in \(0, 1\]"):
            await store.add_verdict(make_verdict(one, 1, weight=weight))
    (verdict,) = (await store.verdicts_of("live"))[one]
    assert verdict.weight == 0.25
    (waiting,) = await store.judged_without_sample()
    assert waiting.weight == 0.25
    await store.close()
    (line,) = read_json_lines(tmp_path / "evaluations.jsonl")
    assert (line["reward"], line["weight"]) == (1, 0.25)


async def test_feedback_takes_back_what_is_not_trained_yet(tmp_path: Path) -> None:
    store, (one, two) = await open_live(tmp_path, 2)
    for turn_id in (one, two):
        await store.add_verdict(make_verdict(turn_id, 1))
        await store.add_group(*live_sample(turn_id, turn_id))
    trained = (await store.samples_of_session("live"))[0].id or 0
    await store.add_update(update(1), [trained], "checkpoints/1")
    assert await store.withdraw(one) == 0, "it is in a batch"
    assert await store.withdraw(two) == 1
    assert await store.withdraw(two) == 0
    assert await store.withdraw(99) == 0
    assert [verdict.turn_id for verdict in await store.judged_without_sample()] == [two]
    await store.add_verdict(make_verdict(two, -1, "feedback", reward=-0.5))
    await store.add_verdict(make_verdict(two, 1))  # the judge is late
    (waiting,) = await store.judged_without_sample()
    assert (waiting.kind, waiting.reward) == ("feedback", -0.5)
    groups = await store.untrained_groups()
    assert [(group.id, len(group.samples)) for group in groups] == [(two, 0)]
    (again,) = await store.add_group(*live_sample(two, 50))
    assert (again.id or 0) > trained + 1, "positions are never given twice"
    assert await store.judged_without_sample() == []
    assert len(await store.samples_of_update(1)) == 1
    await store.close()


async def test_feedback_without_a_reward_ends_the_waiting(tmp_path: Path) -> None:
    store, (one,) = await open_live(tmp_path)
    await store.add_verdict(make_verdict(one, 1))
    await store.add_verdict(make_verdict(one, None, "feedback"))
    assert await store.judged_without_sample() == []
    await store.close()


async def test_a_verdict_that_only_hints_waits_for_its_sample(tmp_path: Path) -> None:
    """Neutral ones and abstentions teach too, when they say in words what was better."""
    store, (one, two, three, four) = await open_live(tmp_path, 4)
    hint = {"hints": ["Say it shorter."]}
    await store.add_verdict(make_verdict(one, None, "model", detail=hint))
    await store.add_verdict(make_verdict(two, None, "model", detail={"hints": []}))
    await store.add_verdict(make_verdict(three, None, "feedback", detail={"text": "Shorter!"}))
    await store.add_verdict(make_verdict(four, None, "model", detail={"text": "not a person's"}))
    await store.close()
    store = Store.open(tmp_path)
    waiting = await store.judged_without_sample()
    assert [(verdict.turn_id, verdict.hints) for verdict in waiting] == [
        (one, ("Say it shorter.",)), (three, ()),
    ]  # fmt: skip
    await store.add_group(*live_sample(one, 0))
    await store.settle(three)
    assert await store.judged_without_sample() == []
    assert await store.withdraw(one) == 1
    assert [verdict.turn_id for verdict in await store.judged_without_sample()] == [one]
    await store.close()


async def test_feedback_overrules_a_hint_whenever_it_came(tmp_path: Path) -> None:
    store, (one, two) = await open_live(tmp_path, 2)
    hint = {"hints": ["Say it shorter."]}
    await store.add_verdict(make_verdict(one, None, "model", detail=hint))
    await store.add_verdict(make_verdict(one, 1, "feedback"))
    await store.add_verdict(make_verdict(two, -1, "feedback"))
    await store.add_verdict(make_verdict(two, None, "model", detail=hint))
    for number, turn_id in enumerate((one, two)):
        await store.add_group(*live_sample(turn_id, number))
        assert await store.withdraw(turn_id) == 1
    waiting = await store.judged_without_sample()
    assert [(verdict.turn_id, verdict.kind) for verdict in waiting] == [
        (one, "feedback"), (two, "feedback"),
    ]  # fmt: skip
    await store.close()


async def test_hints_on_rollouts_never_wait(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await store.add_session(SESSION)
    turn_id = await store.add_turn(make_turn())
    await store.add_verdict(make_verdict(turn_id, None, "model", detail={"hints": ["x"]}))
    assert await store.judged_without_sample() == []
    await store.close()


async def test_group_ids_are_given_once(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    assert [await store.next_group_id() for _ in range(2)] == [0, 1]
    await store.add_group(make_group(7), [])
    assert await store.next_group_id() == 8
    assert await store.next_group_id() == 9
    await store.close()
    store = Store.open(tmp_path)
    assert await store.next_group_id() == 8
    await store.close()


async def test_a_session_that_went_idle_is_opened_again(tmp_path: Path) -> None:
    store, _ = await open_live(tmp_path)
    assert not await store.reopen_session("live")
    assert not await store.reopen_session("nobody")
    await store.end_session("live", reward=None, stop_reason="idle")
    await store.set_yield("live", 0, "no verdict")
    row = await store.session("live")
    assert row is not None
    assert (row.matched_by, row.samples, row.why) == ("header", 0, "no verdict")
    assert await store.ended_without_yield() == []
    assert await store.reopen_session("live")
    assert await store.session("live") == LIVE
    await store.end_session("live", reward=None, stop_reason="idle")
    assert await store.ended_without_yield() == ["live"]
    await store.close()
    log = tmp_path / "evaluations.jsonl"
    lines = read_json_lines(log)
    assert [line["type"] for line in lines] == ["session_end", "session_end"]
    log.write_text("")  # as if a kill had kept both lines from the log
    await Store.open(tmp_path).close()
    assert read_json_lines(log) == lines[1:]


async def test_sessions_are_listed_by_their_last_activity(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    for name, created_s in (("old", 1.0), ("quiet", 2.0), ("done", 3.0)):
        await store.add_session(replace(LIVE, id=name, created_s=created_s))
    await store.add_session(replace(SESSION, created_s=0.5))
    turn_ids = [
        await store.add_turn(make_turn(i, session_id="old", created_s=9.0 + i)) for i in range(3)
    ]
    await store.add_turn(make_turn(3, session_id="old", kind="side", created_s=8.0))
    await store.add_verdict(make_verdict(turn_ids[0], 1))
    await store.add_verdict(make_verdict(turn_ids[0], -1, "feedback"))
    await store.add_verdict(make_verdict(turn_ids[1], None))
    await store.end_session("done", reward=None, stop_reason="idle")
    first, *rest = await store.session_summaries()
    assert (first.session.id, first.last_s) == ("old", 11.0)
    assert (first.main_turns, first.side_turns) == (3, 1)
    assert first.verdicts == {"-1": 1, "abstain": 1}
    assert [summary.session.id for summary in rest] == ["done", "quiet", "s1"]
    assert [s.session.id for s in await store.session_summaries(2, open_only=True)] == [
        "old", "quiet",
    ]  # fmt: skip
    assert await store.open_live_sessions() == [OpenSession("quiet", 2.0), OpenSession("old", 11.0)]
    await store.close()


async def test_expired_sessions_are_live_ones_that_ended_long_ago(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    await store.add_session(SESSION)
    for name in ("first", "second", "open"):
        await store.add_session(replace(LIVE, id=name))
    for name in ("s1", "first", "second"):
        await store.end_session(name, reward=None, stop_reason="idle")
    second = await store.session("second")
    assert second is not None
    assert second.ended_s is not None
    assert await store.expired_sessions(second.ended_s) == ["first"]
    assert await store.expired_sessions(second.ended_s + 1) == ["first", "second"]
    await store.close()


@pytest.mark.parametrize(
    "ask",
    [
        lambda reader: reader.unjudged(10),
        lambda reader: reader.judged_without_sample(),
        lambda reader: reader.open_live_sessions(),
        lambda reader: reader.session_summaries(10),
        lambda reader: reader.session_summaries(10, open_only=True),
        lambda reader: reader.expired_sessions(5.0),
        lambda reader: reader.ended_without_yield(),
        lambda reader: reader.last_turns("live", 2),
        lambda reader: reader.unanswered_turns("live"),
        lambda reader: reader.verdicts_of("live"),
        lambda reader: reader.last_main_turn("live"),
        lambda reader: reader.turn(1),
        lambda reader: reader.nodes_of("live", 3),
        lambda reader: reader.open_nodes(3),
    ],
)  # fmt: skip
async def test_no_question_of_live_sessions_reads_a_whole_table(
    tmp_path: Path, ask: Callable[[StoreReader], object]
) -> None:
    store, (one, two) = await open_live(tmp_path, 2)
    await store.add_verdict(make_verdict(one))
    await store.add_verdict(make_verdict(two))
    await store.close()
    reader = StoreReader(tmp_path)
    asked: list[str] = []
    reader._db.set_trace_callback(asked.append)
    ask(reader)
    reader._db.set_trace_callback(None)
    reader.close()
    assert asked
    db = sqlite3.connect(tmp_path / "run.db")
    plans = [row[3] for query in asked for row in db.execute(f"EXPLAIN QUERY PLAN {query}")]
    db.close()
    whole = re.compile(r"SCAN (sessions|turns|next_states|verdicts|samples|offers)\b(?! USING)")
    assert [plan for plan in plans if whole.search(plan)] == []
