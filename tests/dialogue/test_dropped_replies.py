"""Replies that their client could not carry out, and left out of its history."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from clawrl_gym.core.types import Message, Turn
from clawrl_gym.dialogue.call_failures import call_failures, may_be_dropped, object_of
from clawrl_gym.dialogue.graph import Branch, TurnGraph, TurnNode
from tests.support.gateway_rig import HELLO, Bench, user
from tests.support.recordings import shipped

TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
NAMED = {"X-Session-Id": "s"}


def calling(arguments: str = '{"x": 1}', name: str = "read", **more: Any) -> Message:
    call = {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return cast(Message, {"role": "assistant", "content": None, "tool_calls": [call], **more})


@pytest.mark.parametrize(
    "arguments", ['{"x": ', "oops", '"text"', "[1]", "4", "null", '{"x": NaN}', "{'x': 1}", "{}{}"]
)
def test_arguments_that_are_no_json_object_are_a_failure(arguments: str) -> None:
    (failure,) = call_failures(calling(arguments), [TOOL])  # type: ignore[list-item]
    assert "expected one JSON object" in failure
    assert object_of(arguments) is None


@pytest.mark.parametrize("arguments", ["{}", "", " ", '{"x": "a"}', '{"x": {"y": [1, null]}}'])
def test_arguments_that_are_an_object_or_nothing_are_none(arguments: str) -> None:
    assert call_failures(calling(arguments), [TOOL]) == []  # type: ignore[list-item]


def test_a_tool_that_was_not_offered_is_a_failure_where_any_was() -> None:
    (failure,) = call_failures(calling(name="write"), [TOOL])  # type: ignore[list-item]
    assert "there is no tool 'write', expected one of read" in failure
    assert call_failures(calling(name="write"), []) == []


def test_calls_that_the_parser_could_not_read_are_failures() -> None:
    reply: Message = {"role": "assistant", "content": "x", "unread_calls": ["why"]}
    assert call_failures(reply, []) == ["why"]
    assert may_be_dropped(reply, [])
    assert may_be_dropped({"role": "assistant", "content": " "}, [])
    assert not may_be_dropped({"role": "assistant", "content": "hi"}, [])
    assert not may_be_dropped(calling(), [])


# The gateway.


async def ask(bench: Bench, messages: list[Message], **headers: str) -> None:
    body = {"model": "tiny", "messages": messages, "tools": [TOOL], "stream": True}
    async with bench.http.post("/v1/chat/completions", json=body, headers=headers) as answer:
        assert answer.status == 200
        await answer.read()


async def said_to(bench: Bench, turn: int) -> list[Message] | None:
    """A turn's next state."""
    return await bench.store.next_state_of(bench.told.turns[turn].id or 0)


def broken() -> Message:
    return calling("{oops")


@pytest.mark.parametrize("headers", [{}, NAMED], ids=["by history", "named"])
@pytest.mark.parametrize("before", [0, 1], ids=["first turn", "later turn"])
async def test_what_is_said_after_a_reply_that_was_left_out_is_its_next_state(
    bench: Bench, headers: dict[str, str], before: int
) -> None:
    history: list[Message] = [*HELLO]
    if before:
        bench.policy._reply = "hi"
        await ask(bench, history, **headers)
        history += [{"role": "assistant", "content": "hi"}, user("read it")]
    bench.policy._reply = broken()
    await ask(bench, history, **headers)
    bench.policy._reply = "sorry"
    await ask(bench, [*history, user("That's wrong.")], **headers)
    assert await said_to(bench, before) == [user("That's wrong.")]
    assert len({turn.session_id for turn in bench.told.turns}) == 1
    assert bench.told.next_states[-1].id == bench.told.turns[before].id
    await ask(bench, [*history, user("That's wrong."), _reply("sorry"), user("Good.")], **headers)
    assert await said_to(bench, before + 1) == [user("Good.")]
    assert await said_to(bench, before) == [user("That's wrong.")], "it keeps its own"


def _reply(text: str) -> Message:
    return {"role": "assistant", "content": text}


async def test_it_is_found_in_a_message_that_was_merged_with_the_one_before(bench: Bench) -> None:
    for merged in (
        user("read a.txt\n\nThat's wrong."),
        {"role": "user", "content": [{"type": "text", "text": t} for t in ("read a.txt", "No.")]},
    ):
        bench.told.turns.clear()
        bench.policy._reply = broken()
        await ask(bench, [user("read a.txt")])
        bench.policy._reply = "sorry"
        await ask(bench, [merged])  # type: ignore[list-item]
        answer = await said_to(bench, 0)
        assert answer in ([user("That's wrong.")], [user("No.")])


async def test_several_messages_and_a_result_before_the_reply(bench: Bench) -> None:
    bench.policy._reply = calling()
    await ask(bench, HELLO)
    result: Message = {"role": "tool", "tool_call_id": "1", "content": "text"}
    history = [*HELLO, calling(), result]
    bench.policy._reply = broken()
    await ask(bench, history)
    bench.policy._reply = "sorry"
    await ask(bench, [*history, user("Hm."), user("Wrong.")])
    assert await said_to(bench, 0) == [result]
    assert await said_to(bench, 1) == [user("Hm."), user("Wrong.")]


STAMP = "[Sat 2026-11-28 03:53 UTC]"
CONTEXT = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nnone\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"
RUNTIME = (
    "Runtime: agent=main | session=agent:main:main | sessionId=s-1 | host=vm | channel=webchat"
)


@pytest.fixture
async def openclaws(tmp_path: Path) -> AsyncIterator[Bench]:
    """A gateway with the rules that are shipped."""
    one = Bench(tmp_path)
    one.live = shipped()
    await one.start()
    yield one
    await one.stop()


@pytest.mark.parametrize("poll", ["", "\n[OpenClaw heartbeat poll]"], ids=["", "after a heartbeat"])
async def test_openclaw_asks_the_same_again_and_then_leaves_the_reply_out(
    openclaws: Bench, poll: str
) -> None:
    """As 2026.9.6 sends it: the last reply before the correction is what the correction is of."""
    history = [user(f"{STAMP} Hello\n\n{RUNTIME}"), _reply("hi")]
    openclaws.policy._reply = broken()
    for _ in range(4):
        await ask(openclaws, [*history, user(f"{STAMP} Read it"), user(CONTEXT)])
    openclaws.policy._reply = "sorry"
    wrong = user(f"{STAMP} That's wrong.")
    await ask(openclaws, [*history, user(f"{STAMP} Read it{poll}"), wrong, user(CONTEXT)])
    assert [await said_to(openclaws, at) for at in range(4)] == [None, None, None, [wrong]]


async def test_openclaws_own_words_after_a_reply_that_said_nothing_are_no_next_state(
    openclaws: Bench,
) -> None:
    asked = user(f"{STAMP} Hello\n\n{RUNTIME}")
    openclaws.policy._reply = ""
    await ask(openclaws, [asked, user(CONTEXT)])
    again = (
        f"{STAMP} The previous attempt did not produce a user-visible answer. Continue from the "
        "current state and produce the visible answer now. Do not restart from scratch."
    )
    openclaws.policy._reply = "hi"
    await ask(openclaws, [asked, user(again), user(CONTEXT)])
    assert await said_to(openclaws, 0) is None


async def test_a_reply_that_said_nothing_gets_its_next_state_too(bench: Bench) -> None:
    bench.policy._reply = ""
    await ask(bench, HELLO)
    bench.policy._reply = "sorry"
    await ask(bench, [*HELLO, user("Are you there?")])
    assert await said_to(bench, 0) == [user("Are you there?")]


async def test_the_same_request_again_says_nothing_about_its_reply(bench: Bench) -> None:
    bench.policy._reply = broken()
    await ask(bench, HELLO)
    bench.policy._reply = "better"
    await ask(bench, HELLO)
    assert await said_to(bench, 0) is None
    assert len(bench.told.turns) == 2


async def test_a_good_reply_that_is_missing_from_the_history_is_no_failure(bench: Bench) -> None:
    """A client may keep no replies, or regenerate in another branch."""
    for reply in ("hi", calling()):
        bench.told.turns.clear()
        bench.policy._reply = reply
        await ask(bench, [user(f"do {reply}")])
        await ask(bench, [user(f"do {reply}"), user("and more")])
        assert await said_to(bench, 0) is None


async def test_an_edited_request_is_another_branch(bench: Bench) -> None:
    bench.policy._reply = broken()
    await ask(bench, [*HELLO, _reply("hi"), user("read a.txt")], **NAMED)
    bench.policy._reply = "ok"
    await ask(bench, [*HELLO, _reply("hi"), user("read b.txt")], **NAMED)
    assert await said_to(bench, 0) is None


async def test_another_person_with_the_same_beginning_is_not_taken_for_the_first(
    bench: Bench,
) -> None:
    bench.policy._reply = "hi"
    await ask(bench, HELLO)
    await ask(bench, [*HELLO, user("there")])
    first, second = bench.told.turns
    assert first.session_id != second.session_id


async def test_a_request_that_came_before_the_reply_says_nothing_about_it(bench: Bench) -> None:
    """A person adds something while the reply is being made."""
    bench.policy._reply = broken()
    bench.policy.delay_s = 0.2
    first = asyncio.create_task(ask(bench, HELLO, **NAMED))
    await asyncio.sleep(0.05)
    await ask(bench, [*HELLO, user("and b.txt")], **NAMED)
    await first
    assert [await said_to(bench, at) for at in range(2)] == [None, None]


async def test_an_interrupted_reply_that_is_missing_is_as_before(bench: Bench) -> None:
    bench.policy._reply, bench.policy.piece_s = broken(), 0.05
    body = {"model": "tiny", "messages": HELLO, "tools": [TOOL], "stream": True}
    async with bench.http.post("/v1/chat/completions", json=body, headers=NAMED) as answer:
        await answer.content.readany()
    await asyncio.wait_for(bench.policy.left.wait(), 5)
    bench.policy.piece_s = 0.0
    while not bench.told.turns:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    bench.policy._reply = "ok"
    await ask(bench, [*HELLO, user("never mind")], **NAMED)
    assert bench.told.turns[0].finish_reason == "interrupted"
    assert await said_to(bench, 0) is None


async def test_a_restarted_gateway_knows_which_replies_were_left_out(bench: Bench) -> None:
    bench.policy._reply = broken()
    await ask(bench, HELLO)
    await bench.restart()
    bench.policy._reply = "sorry"
    await ask(bench, [*HELLO, user("That's wrong.")])
    assert await said_to(bench, 0) == [user("That's wrong.")]


async def test_what_was_wrong_is_counted_and_not_told_to_clients(bench: Bench) -> None:
    bench.policy._reply = broken()
    await ask(bench, HELLO)
    async with bench.http.get("/metrics") as answer:
        assert "clawrl_failed_calls_total 1.0" in await answer.text()


def test_a_node_that_may_be_left_out_is_stored_as_one() -> None:
    for reply, dropped in ((broken(), True), (_reply("hi"), False)):
        turn = Turn("s", 0, "main", [1], [2], [-0.5], [3], "stop", HELLO, reply, 1.0)
        node = TurnNode.of(turn, Branch.of(HELLO), b"", [1])
        assert node.may_be_dropped is dropped
        again = TurnNode.from_text(node.to_text(), 0, "main", "stop", node.created_s)
        assert again.may_be_dropped is dropped
        graph = TurnGraph()
        graph.add(again)
        found = graph.dropped_next_state(Branch.of([*HELLO, user("no")]))
        assert bool(found) is dropped
