from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.live.sessions import MAX_TURNS, Session, Sessions, what_follows
from clawrl_gym.live.wire import Labels, Refusal
from clawrl_gym.store import Store
from clawrl_gym.types import Message, Turn

LABELS = Labels()


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str, **more: Any) -> Message:
    return {"role": "assistant", "content": text, **more}  # type: ignore[typeddict-item]


def make_turn(messages: list[Message], reply: str = "ok", **changes: Any) -> Turn:
    values: dict[str, Any] = {
        "session_id": "s", "index": 0, "kind": "main", "prompt_ids_T": [1], "sampled_ids_T": [2],
        "logprobs_T": [0.0], "versions_T": [0], "finish_reason": "stop", "messages": messages,
        "reply": assistant(reply), "created_s": 0.0,
    }  # fmt: skip
    return Turn(**values | changes)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = Store.open(tmp_path)
    yield store
    await store.close()


def test_the_next_state_is_all_that_follows_the_last_equal_reply() -> None:
    request = [user("a"), assistant("ok"), user("b"), assistant("ok"), user("c"), user("d")]
    assert what_follows(request, assistant("ok")) == [user("c"), user("d")]
    assert what_follows(request, assistant("other")) == []
    assert what_follows([user("a"), assistant("ok")], assistant("ok")) == []


def test_a_reply_that_came_back_without_its_reasoning_is_still_ours() -> None:
    reply = assistant("42", reasoning_content="hm")
    assert what_follows([assistant("42"), user("why?")], reply) == [user("why?")]
    assert what_follows([assistant("43"), user("why?")], reply) == []


def test_parallel_tool_results_are_one_next_state() -> None:
    calls = [{"id": str(n), "type": "function", "function": {"name": "f"}} for n in range(2)]
    reply = assistant("", tool_calls=calls)
    results: list[Message] = [
        {"role": "tool", "tool_call_id": str(n), "content": "done"} for n in range(2)
    ]
    assert what_follows([user("a"), reply, *results], reply) == results


async def test_a_fork_follows_the_turn_that_it_extends(store: Store) -> None:
    sessions = Sessions(store)
    async with sessions.use("s", LABELS) as session:
        root = await sessions.record(session, make_turn([user("a")]), [1])
        longer = [user("a"), assistant("ok"), user("b")]
        await sessions.record(session, make_turn(longer), [1])
        fork = [user("a"), assistant("ok"), user("c")]
        past = session.before("main", fork)
        assert past is not None
        assert past.turn == root
        assert session.before("side", fork) is None


async def test_memory_is_bounded_and_read_again_from_the_store(store: Store) -> None:
    sessions = Sessions(store, max_sessions=3)
    for number in range(10):
        async with sessions.use(f"s{number}", LABELS) as session:
            turn = make_turn([user("a")], session_id=f"s{number}")
            await sessions.record(session, turn, [1])
    assert len(sessions) == 3
    async with sessions.use("s0", LABELS) as session:
        assert session.next_index == 1
        assert session.stored_reply("main", [user("a")]) is not None


async def test_a_session_keeps_only_its_newest_turns(store: Store) -> None:
    sessions = Sessions(store)
    async with sessions.use("s", LABELS) as session:
        for number in range(MAX_TURNS + 3):
            await sessions.record(session, make_turn([user(str(number))]), [1])
        assert len(session.past) == len(session.unanswered) == MAX_TURNS
        assert session.stored_reply("main", [user("0")]) is None


async def test_first_requests_at_once_open_a_session_once(store: Store) -> None:
    sessions = Sessions(store)

    async def turn(number: int) -> int:
        async with sessions.use("s", LABELS) as session:
            stored = await sessions.record(session, make_turn([user(str(number))]), [1])
            return stored.index

    assert sorted(await asyncio.gather(*(turn(n) for n in range(20)))) == list(range(20))
    assert len(await store.sessions()) == 1


async def test_a_record_is_finished_when_its_client_leaves(store: Store) -> None:
    sessions = Sessions(store)
    async with sessions.use("s", LABELS) as session:
        recording = asyncio.create_task(sessions.record(session, make_turn([user("a")]), [1]))
        await asyncio.sleep(0)
        recording.cancel()
        with pytest.raises(asyncio.CancelledError):
            await recording
        await sessions.finish(2.0)
        assert session.stored_reply("main", [user("a")]) is not None
    assert len(await store.turns_of("s")) == 1


async def test_nothing_is_recorded_after_the_end(store: Store) -> None:
    sessions = Sessions(store)
    async with sessions.use("s", LABELS) as session:
        await sessions.end(session, None, 1.0, "terminated", None)
        with pytest.raises(Refusal, match="has ended"):
            await sessions.record(session, make_turn([user("a")]), [1])


async def test_equal_requests_wait_for_each_other_and_others_do_not() -> None:
    session = Session("s")
    order: list[str] = []

    async def enter(name: str, messages: list[Message]) -> None:
        async with session.one_at_a_time("main", messages):
            order.append(f"{name} in")
            await asyncio.sleep(0.01)
            order.append(f"{name} out")

    same = [user("a")]
    await asyncio.gather(enter("1", same), enter("2", same), enter("3", same), enter("x", []))
    own = [step for step in order if not step.startswith("x")]
    assert own == ["1 in", "1 out", "2 in", "2 out", "3 in", "3 out"]
    assert order.index("x in") < order.index("1 out")
