"""Turns, next states, retries, ends: what the gateway's sessions do with requests and replies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.config import LiveConfig
from clawrl_gym.core.errors import DiskFull, StoreError
from clawrl_gym.core.types import INTERRUPTED, Message, Turn
from clawrl_gym.dialogue.graph import MAX_TURNS
from clawrl_gym.gateway.hooks import Hooks
from clawrl_gym.gateway.sessions.session import WARM_TURNS, Session
from clawrl_gym.gateway.sessions.sessions import SessionCache, Sessions
from clawrl_gym.gateway.wire.identify import Origin
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.gateway.wire.requests import Labels
from clawrl_gym.store import Store
from tests.support.talk import Talk

LABELS = Labels()
ROLLOUT = Labels.model_validate({"X-Group-Id": 7, "X-Task-Id": "t"})


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str | None, **more: Any) -> Message:
    return {"role": "assistant", "content": text, **more}  # type: ignore[typeddict-item]


def tool(text: str, call: str = "c") -> Message:
    return {"role": "tool", "tool_call_id": call, "content": text}


def calling(*arguments: str, text: str | None = None, ids: str = "call_{}") -> Message:
    calls = [
        {"id": ids.format(at), "type": "function", "function": {"name": "read", "arguments": told}}
        for at, told in enumerate(arguments)
    ]
    return assistant(text, tool_calls=calls)


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


@pytest.fixture
def talk(store: Store) -> Talk:
    return Talk(store)


# Next states.


async def test_the_next_state_is_what_the_user_said_next(talk: Talk) -> None:
    first = await talk.say([user("a")])
    second = await talk.say([user("a"), assistant("ok"), user("b"), user("c")])
    assert await talk.states() == {0: [user("b"), user("c")]}
    assert (first.index, second.index) == (0, 1)
    assert [turn.id for turn in talk.judged] == [first.id]


async def test_the_last_message_is_not_the_next_state(talk: Talk) -> None:
    """Reference defect: a reminder or a context block that comes last was judged as the answer."""
    await talk.say([user("a")])
    reminder: Message = {"role": "system", "content": "Stay on the topic."}
    context = user("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>> none <<<END_OPENCLAW_INTERNAL_CONTEXT>>>")
    sent = [user("a"), assistant("ok"), user("thanks"), context, reminder]
    turn = await talk.say(sent)
    assert await talk.states() == {0: [user("thanks")]}
    assert turn.messages == sent, "what is recorded of the request is what was sent"


async def test_parallel_tool_results_are_one_next_state(talk: Talk) -> None:
    """Reference defect: only the last of them was judged."""
    reply = calling('{"path": "a"}', '{"path": "b"}')
    await talk.say([user("both")], reply)
    await talk.say([user("both"), reply, tool("A", "call_0"), tool("B", "call_1")])
    assert await talk.states() == {0: [tool("A", "call_0"), tool("B", "call_1")]}


@pytest.mark.parametrize(
    ("reply", "sent_back"),
    [
        (assistant("a b"), assistant(" a  b\n")),
        (assistant("a\r\nb"), assistant("a\nb")),
        (assistant("42", reasoning_content="hm"), assistant("42")),
        (assistant("<think>hm</think>\n42"), assistant("42")),
        (assistant(""), assistant(None)),
        (calling('{"a": 1, "b": [2]}'), calling('{"b":[2],"a":1.0}', text="", ids="call{}")),
        (calling(""), calling("{}")),
        (calling('{"a": '), calling('{"a":')),
    ],
)
async def test_a_reply_is_known_however_its_client_writes_it(
    talk: Talk, reply: Message, sent_back: Message
) -> None:
    await talk.say([user("a")], reply)
    await talk.say([user("a"), sent_back, user("b")])
    assert await talk.states() == {0: [user("b")]}


@pytest.mark.parametrize(
    ("reply", "sent_back"),
    [
        (assistant("yes"), assistant("no")),
        (assistant("yes"), assistant("yes, of course")),
        (calling('{"a": 1}'), calling('{"a": 2}')),
        (calling('{"a": 1}'), assistant(None)),
        (assistant("a", reasoning_content="b"), assistant("b")),
    ],
)
async def test_an_edited_reply_is_not_ours(talk: Talk, reply: Message, sent_back: Message) -> None:
    """What follows it was said to other words."""
    await talk.say([user("a")], reply)
    await talk.say([user("a"), sent_back, user("b")])
    assert await talk.states() == {}


async def test_the_same_reply_twice_is_told_apart_by_what_stands_before(talk: Talk) -> None:
    told = [user("a")]
    for word in ("b", "b", "c", "b"):
        await talk.say(told)
        told = [*told, assistant("ok"), user(word)]
    await talk.say(told)
    assert await talk.states() == dict(enumerate([[user(word)] for word in ("b", "b", "c", "b")]))
    assert len(talk.judged) == 4


async def test_a_retry_is_no_next_state(talk: Talk) -> None:
    """Reference defect: a repeated request was judged as `the user asks the same again`: -1."""
    await talk.say([user("a")])
    told = [user("a"), assistant("ok"), user("b")]
    turns = [await talk.say(told, headers={"x-stainless-retry-count": str(n)}) for n in range(3)]
    assert len({turn.id for turn in turns}) == 1
    assert await talk.states() == {0: [user("b")]}
    assert len(talk.judged) == 1


async def test_a_fork_leaves_the_next_state_that_a_turn_has(talk: Talk) -> None:
    """Reference defect: an edited message was judged as the reaction to the newest turn."""
    await talk.say([user("a")])
    await talk.say([user("a"), assistant("ok"), user("b")], "two")
    edited = await talk.say([user("a"), assistant("ok"), user("b, please")], "three")
    assert await talk.states() == {0: [user("b")]}
    told = [user("a"), assistant("ok"), user("b, please"), assistant("three"), user("thanks")]
    await talk.say(told)
    assert (await talk.states())[edited.index] == [user("thanks")]
    assert len(await talk.states()) == 2, "the branch that was left gets none"


async def test_compaction_keeps_the_last_turns_next_state(talk: Talk) -> None:
    """Reference defect: whatever came last was taken; here the history is another one."""
    told = [user("a")]
    for word in ("b", "c"):
        await talk.say(told, f"to {word}")
        told = [*told, assistant(f"to {word}"), user(word)]
    await talk.say(told, "long answer")
    summary = user("The conversation history before this point was compacted: letters.")
    await talk.say([summary, assistant("long answer"), user("go on")])
    assert (await talk.states())[2] == [user("go on")]


async def test_after_a_compaction_words_said_twice_belong_to_the_newest_turn(talk: Talk) -> None:
    told = [user("thanks")]
    await talk.say(told, "You are welcome.")
    told += [assistant("You are welcome."), user("again: thanks")]
    await talk.say(told, "You are welcome.")
    await talk.say([user("a summary"), assistant("You are welcome."), user("bye")])
    assert await talk.states() == {0: [user("again: thanks")], 1: [user("bye")]}


async def test_in_doubt_nothing_is_recorded(talk: Talk) -> None:
    """Two conversations in one session, both end in `ok`, one comes back compacted: which?"""
    await talk.say([user("a")])
    await talk.say([user("b")])
    await talk.say([user("a summary"), assistant("ok"), user("bye")])
    assert await talk.states() == {}


async def test_another_conversations_reply_in_the_same_words_is_in_doubt(talk: Talk) -> None:
    """The one that was compacted had its answer; the newest turn is of the other one."""
    await talk.say([user("a")])
    await talk.say([user("a"), assistant("ok"), user("b")], "fine")
    await talk.say([user("x")])
    await talk.say([user("a summary"), assistant("ok"), user("b, please")])
    assert await talk.states() == {0: [user("b")]}


async def test_a_history_that_was_rewritten_is_known_by_its_replies(talk: Talk) -> None:
    """OpenClaw merges what is left of a heartbeat into the user's message before a reply."""
    told = [user("a"), assistant("one"), user("b")]
    await talk.say(told[:1], "one")
    await talk.say(told, "two")
    rewritten = [user("a"), assistant("one"), user("poll\nb"), assistant("two"), user("no")]
    await talk.say(rewritten)
    assert await talk.states() == {0: [user("b")], 1: [user("no")]}


async def test_a_history_that_begins_anew_brings_no_next_state(talk: Talk) -> None:
    """OpenClaw keeps its session id when the user resets the conversation."""
    await talk.say([user("a")])
    await talk.say([user("good morning")])
    assert await talk.states() == {}


async def test_a_reply_of_another_model_ends_our_next_state(talk: Talk) -> None:
    await talk.say([user("a")], "ours")
    told = [user("a"), assistant("ours"), user("b"), assistant("theirs"), user("c")]
    await talk.say(told)
    assert await talk.states() == {0: [user("b")]}
    await talk.say([user("x")], "mine")
    await talk.say([user("x"), assistant("mine"), assistant("theirs"), user("c")])
    assert len(await talk.states()) == 1, "it was said to the other reply"


async def test_conversations_in_one_session_do_not_mix(talk: Talk) -> None:
    """Reference defect: clients that shared an id judged each other's replies."""
    for name in ("left", "right"):
        await talk.say([user(name)])
    for name in ("right", "left"):
        await talk.say([user(name), assistant("ok"), user(f"more {name}")])
    assert await talk.states() == {0: [user("more left")], 1: [user("more right")]}


async def test_a_next_state_that_comes_before_the_turn_is_recorded_is_kept(talk: Talk) -> None:
    """Reference defect: a turn whose reply was still being made had no record, and lost it."""
    async with talk.ask([user("a")]) as asked:
        await talk.say([user("a"), assistant("one"), user("b")], "two")
        assert await talk.states() == {}
        await talk.record(asked, "one")
    turns = {turn.reply["content"]: turn.index for turn in await talk.store.turns_of("s")}
    assert await talk.states() == {turns["one"]: [user("b")]}
    assert [turn.reply["content"] for turn in talk.judged] == ["one"]


async def test_a_reply_under_way_is_not_taken_for_an_equal_one(talk: Talk) -> None:
    await talk.say([user("x")])
    async with talk.ask([user("y")]) as asked:
        await talk.say([user("y"), assistant("ok"), user("thanks")])
        assert await talk.states() == {}, "the other `ok` was said to x"
        turn = await talk.record(asked, "ok")
    assert await talk.states() == {turn.index: [user("thanks")]}


async def test_a_next_state_that_two_requests_bring_is_told_once(talk: Talk) -> None:
    await talk.say([user("a")])
    told = [user("a"), assistant("ok"), user("b")]
    await asyncio.gather(*(talk.say([*told, user(str(n))], path="s") for n in range(5)))
    assert len(talk.judged) == 1
    state = (await talk.states())[0]
    assert state[0] == user("b")
    assert len(state) == 2


async def test_a_side_turn_brings_no_next_state_and_gets_none(talk: Talk) -> None:
    side = {"X-Turn-Type": "side"}
    await talk.say([user("a")])
    title = [user("a"), assistant("ok"), user("a title please")]
    await talk.say(title, "Letters", headers=side)
    assert await talk.states() == {}
    await talk.say([*title, assistant("Letters"), user("thanks")])
    assert await talk.states() == {}, "it stands in the history, but nobody said it"
    await talk.say([user("a"), assistant("ok"), user("go on")])
    assert await talk.states() == {0: [user("go on")]}
    assert len(talk.judged) == 1


async def test_a_silent_exchange_that_the_client_drops_leaves_no_trace(talk: Talk) -> None:
    await talk.say([user("a")])
    poll = [user("a"), assistant("ok"), user("anything new?")]
    await talk.say(poll, "NO_REPLY", turn_type="side")
    await talk.say([user("a"), assistant("ok"), user("b")])
    assert await talk.states() == {0: [user("b")]}


@pytest.mark.parametrize("kept", ["one two three", "one two", "one tw", " one\n"])
async def test_an_interrupted_reply_is_known_by_the_part_that_its_client_kept(
    talk: Talk, kept: str
) -> None:
    await talk.say([user("count")], "one two three", finish=INTERRUPTED)
    await talk.say([user("count"), assistant(kept), user("faster")])
    assert await talk.states() == {0: [user("faster")]}
    assert talk.judged == [], "it is never trained on, so nobody needs to judge it"


@pytest.mark.parametrize("kept", ["two", "one two four", ""])
async def test_other_words_are_no_part_of_it(talk: Talk, kept: str) -> None:
    await talk.say([user("count")], "one two three", finish=INTERRUPTED)
    await talk.say([user("count"), assistant(kept), user("faster")])
    assert await talk.states() == {}


async def test_part_of_a_whole_reply_is_not_ours(talk: Talk) -> None:
    await talk.say([user("count")], "one two three")
    await talk.say([user("count"), assistant("one two"), user("faster")])
    assert await talk.states() == {}


async def test_part_of_a_reply_that_is_recorded_late_is_known(talk: Talk) -> None:
    """The client stops reading and asks on, before the gateway has noticed that it left."""
    async with talk.ask([user("count")]) as asked:
        await talk.say([user("count"), assistant("one"), user("faster")])
        await talk.record(asked, "one two", INTERRUPTED)
    assert list((await talk.states()).values()) == [[user("faster")]]


async def test_part_of_a_reply_is_not_taken_for_another_reply_in_these_words(talk: Talk) -> None:
    await talk.say([user("x")], "one")
    await talk.say([user("count")], "one two three", finish=INTERRUPTED)
    await talk.say([user("count"), assistant("one"), user("faster")])
    assert await talk.states() == {1: [user("faster")]}


async def test_an_interrupted_reply_that_the_client_dropped_takes_nothing(talk: Talk) -> None:
    first = await talk.say([user("a")])
    told = [user("a"), assistant("ok"), user("b")]
    await talk.say(told, "one two", finish=INTERRUPTED)
    await talk.say([*told, user("shorter")])
    assert await talk.states() == {first.index: [user("b")]}


# Retries.


async def test_a_named_session_repeats_its_reply_while_nothing_has_followed(talk: Talk) -> None:
    first = await talk.say([user("a")], "one")
    assert (await talk.say([user("a")], "two")).id == first.id
    await talk.say([user("a"), assistant("one"), user("b")])
    assert (await talk.say([user("a")], "three")).reply["content"] == "three"


async def test_a_wish_for_another_reply_is_another_turn(talk: Talk) -> None:
    """The client has the first reply and says that it does not ask again: a sibling."""
    told = {"x-stainless-retry-count": "0"}
    first = await talk.say([user("a")], "one", headers=told)
    second = await talk.say([user("a")], "two", headers=told)
    assert (first.index, second.index) == (0, 1)
    await talk.say([user("a"), assistant("one"), user("good")], headers=told)
    assert await talk.states() == {0: [user("good")]}


async def test_a_reply_that_never_arrived_is_repeated(talk: Talk) -> None:
    told = {"x-stainless-retry-count": "0"}
    async with talk.ask([user("a")], headers=told) as asked:
        first = await talk.record(asked, "one")
    assert (await talk.say([user("a")], "two", headers=told)).id == first.id


async def test_a_chat_program_without_a_name_for_its_session_can_regenerate(talk: Talk) -> None:
    first = await talk.say([user("a")], "one", path=None)
    told = [user("a"), assistant("one"), user("b")]
    two, three = [await talk.say(told, text, path=None) for text in ("two", "three")]
    assert first.session_id == two.session_id == three.session_id
    assert (two.reply["content"], three.reply["content"]) == ("two", "three")


async def test_an_interrupted_reply_is_made_again(talk: Talk) -> None:
    await talk.say([user("a")], "on", finish=INTERRUPTED)
    again = await talk.say([user("a")], "one", headers={"x-stainless-retry-count": "1"})
    assert again.reply["content"] == "one"


async def test_a_side_turn_is_made_again(talk: Talk) -> None:
    """A heartbeat is the same request every half an hour."""
    first = await talk.say([user("anything new?")], "no", turn_type="side")
    second = await talk.say([user("anything new?")], "yes", turn_type="side")
    assert (first.reply["content"], second.reply["content"]) == ("no", "yes")


async def test_other_tools_or_another_system_message_are_another_request(talk: Talk) -> None:
    system: Message = {"role": "system", "content": "Be brief."}
    turns = [
        await talk.say([user("a")], "one"),
        await talk.say([user("a")], "two", tools=[{"type": "function"}]),
        await talk.say([system, user("a")], "three"),
    ]
    assert [turn.index for turn in turns] == [0, 1, 2]


async def test_equal_requests_wait_for_each_other_and_others_do_not() -> None:
    session = Session("s")
    order: list[str] = []

    async def enter(name: str, same: bytes) -> None:
        async with session.one_at_a_time(same):
            order.append(f"{name} in")
            await asyncio.sleep(0.01)
            order.append(f"{name} out")

    await asyncio.gather(*(enter(name, b"same") for name in "123"), enter("x", b"other"))
    own = [step for step in order if not step.startswith("x")]
    assert own == ["1 in", "1 out", "2 in", "2 out", "3 in", "3 out"]
    assert order.index("x in") < order.index("1 out")
    assert not session._equal_requests, "what nobody waits for is forgotten"


async def test_a_request_that_waited_for_an_equal_one_gets_its_reply(talk: Talk) -> None:
    told = {"x-stainless-retry-count": "0"}
    turns = await asyncio.gather(*(talk.say([user("a")], str(n), headers=told) for n in range(5)))
    assert len({turn.id for turn in turns}) == 1


# What a request goes on from.


async def test_a_fork_follows_the_turn_that_it_extends(talk: Talk) -> None:
    root = await talk.say([user("a")])
    await talk.say([user("a"), assistant("ok"), user("b")])
    async with talk.ask([user("a"), assistant("ok"), user("c")]) as asked:
        past = await talk.sessions.recorder.previous_turn(asked)
    assert past is not None
    assert past.turn == root


async def test_what_is_not_in_memory_any_more_is_read_again(talk: Talk) -> None:
    told = [user("0")]
    for number in range(WARM_TURNS + 3):
        await talk.say(told, f"to {number}")
        told = [*told, assistant(f"to {number}"), user(str(number + 1))]
    async with talk.ask([user("0"), assistant("to 0"), user("fork")]) as asked:
        past = await talk.sessions.recorder.previous_turn(asked)
    assert past is not None
    assert past.turn == (await talk.store.turns_of("s"))[0]


async def test_a_first_request_follows_nothing(talk: Talk) -> None:
    async with talk.ask([user("a")]) as asked:
        assert await talk.sessions.recorder.previous_turn(asked) is None


# Ends.


async def test_a_rollout_that_has_ended_takes_no_more_turns(talk: Talk) -> None:
    await talk.say([user("a")], labels=ROLLOUT)
    async with talk.sessions.use("s", LABELS) as session:
        assert await talk.sessions.end(session, [user("bye")], 1.0, "terminated", None)
        assert not await talk.sessions.end(session, [user("late")], 0.0, "terminated", None)
    with pytest.raises(Refusal, match="has ended"):
        await talk.say([user("b")], labels=ROLLOUT)
    with pytest.raises(Refusal, match="has ended"):
        await Talk(talk.store).say([user("b")], labels=ROLLOUT)
    assert await talk.states() == {0: [user("bye")]}
    assert (talk.judged, talk.ended) == ([], []), "a rollout is its collector's"


async def test_a_reply_that_comes_after_a_rollouts_end_is_not_recorded(talk: Talk) -> None:
    async with talk.ask([user("a")], labels=ROLLOUT) as asked:
        async with talk.sessions.use("s", LABELS) as session:
            await talk.sessions.end(session, None, None, "deadline", None)
        with pytest.raises(Refusal, match="has ended"):
            await talk.record(asked, "late")
    assert await talk.store.turns_of("s") == []


async def test_an_evaluation_is_a_rollout_too(talk: Talk) -> None:
    await talk.say([user("a")], labels=Labels.model_validate({"X-Task-Id": "t"}))
    row = await talk.store.session("s")
    assert row is not None
    assert (row.source, row.matched_by) == ("rollout", None)
    assert talk.sessions.open_count == 0


async def test_a_live_session_is_opened_again_and_its_turns_are_numbered_on(talk: Talk) -> None:
    """Reference defect: after the end counters began anew and met the numbers of old turns."""
    await talk.say([user("a")])
    async with talk.sessions.use("s", LABELS) as session:
        await talk.sessions.end(session, None, None, "terminated", None)
    assert (talk.ended, talk.sessions.open_count) == (["s"], 0)
    second = await talk.say([user("a"), assistant("ok"), user("one more thing")])
    assert (second.index, talk.sessions.open_count) == (1, 1)
    assert await talk.states() == {0: [user("one more thing")]}
    row = await talk.store.session("s")
    assert row is not None
    assert (row.ended_s, row.matched_by) == (None, "path")


async def test_a_live_reply_that_comes_after_the_end_is_kept(talk: Talk) -> None:
    """And nothing of the session comes alive again by it."""
    async with talk.ask([user("a")]) as asked:
        async with talk.sessions.use("s", LABELS) as session:
            await talk.sessions.end(session, None, None, "terminated", None)
        turn = await talk.record(asked, "late")
    assert [kept.id for kept in await talk.store.turns_of("s")] == [turn.id]
    row = await talk.store.session("s")
    assert row is not None
    assert row.ended_s is not None
    assert talk.sessions.open_count == 0


async def test_the_end_brings_the_newest_turns_next_state_only(talk: Talk) -> None:
    await talk.say([user("a")], "left behind")
    await talk.say([user("b")])
    await talk.say([user("b"), assistant("ok"), user("c")])
    context = user("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>><<<END_OPENCLAW_INTERNAL_CONTEXT>>>")
    async with talk.sessions.use("s", LABELS) as session:
        await talk.sessions.end(session, [user("bye"), context], None, "terminated", None)
        await talk.sessions.end(session, [user("bye")], None, "terminated", None)
    assert await talk.states() == {1: [user("c")], 2: [user("bye")]}


async def test_an_idle_session_ends_and_a_later_request_opens_it_again(talk: Talk) -> None:
    """Reference defect: sessions never ended, and what was kept of them only grew."""
    await talk.say([user("a")])
    async with talk.ask([user("slow")], path="busy"):
        await talk.sessions.reap_once(2e9 + 1e9)
        await talk.sessions.reap_once(2e9 + 1e9)
    assert talk.ended == ["s"], "nobody is inside, and once"
    row = await talk.store.session("s")
    assert row is not None
    assert row.stop_reason == "idle"
    await talk.say([user("a"), assistant("ok"), user("b")])
    assert await talk.states() == {0: [user("b")]}


async def test_a_session_in_use_is_not_idle(talk: Talk) -> None:
    await talk.say([user("a")])
    last_s = (await talk.store.open_live_sessions())[0].last_s
    await talk.sessions.reap_once(last_s + 1)
    assert talk.ended == []


async def test_idleness_begins_when_a_request_has_ended(talk: Talk) -> None:
    async with talk.ask([user("a")]):
        await asyncio.sleep(0.02)
        ends_s = time.time()
    await talk.sessions.reap_once(ends_s + LiveConfig().idle_end_s)
    assert talk.ended == []
    await talk.sessions.reap_once(time.time() + LiveConfig().idle_end_s)
    assert talk.ended == ["s"]


async def test_idle_sessions_of_an_earlier_process_end_too(talk: Talk) -> None:
    await talk.say([user("a")])
    later = Talk(talk.store)
    await later.sessions.start()
    assert later.sessions.open_count == 1
    await later.sessions.reap_once(3e9)
    assert (later.ended, later.sessions.open_count) == (["s"], 0)


async def test_the_reaper_goes_on_by_itself(store: Store) -> None:
    ended = asyncio.Event()
    talk = Talk(store)
    hooks = Hooks(on_end=lambda _: ended.set())
    talk.sessions = Sessions(store, LiveConfig(idle_end_s=0.02), hooks=hooks)
    await talk.say([user("a")])
    reaper = asyncio.create_task(talk.sessions.reap())
    async with asyncio.timeout(60):
        await ended.wait()
    reaper.cancel()


async def test_a_store_that_cannot_write_loses_no_session(talk: Talk) -> None:
    await talk.say([user("a")])
    await talk.store.close()
    await talk.sessions.reap_once(3e9)
    assert (talk.ended, talk.sessions.open_count) == ([], 1), "it is ended at the next try"
    with pytest.raises(StoreError):
        await talk.say([user("a")], path="never")
    assert (talk.sessions.open_count, len(talk.sessions)) == (1, 1)


async def test_what_ended_long_ago_is_deleted(store: Store) -> None:
    talk = Talk(store, LiveConfig(retention_days=1, idle_end_s=1e6))
    for name in ("old", "open"):
        await talk.say([user("a")], path=name)
    async with talk.sessions.use("old", LABELS) as session:
        await talk.sessions.end(session, None, None, "terminated", None)
    row = await store.session("old")
    assert row is not None
    assert row.ended_s is not None
    await talk.sessions.reap_once(row.ended_s + 86_000)
    assert talk.deleted == []
    await talk.sessions.reap_once(row.ended_s + 86_500)
    assert talk.deleted == ["old"]
    assert [kept.id for kept in await store.sessions()] == ["open"]


async def test_who_comes_back_while_expired_sessions_are_deleted_is_not(store: Store) -> None:
    talk = Talk(store, LiveConfig(retention_days=1, idle_end_s=1e6))
    for name in ("away", "back"):
        await talk.say([user("a")], path=name)
        async with talk.sessions.use(name, LABELS) as session:
            await talk.sessions.end(session, None, None, "terminated", None)
    expired = await store.expired_sessions(3e9)
    assert set(expired) == {"away", "back"}
    await talk.say([user("a"), assistant("ok"), user("b")], path="back")
    await talk.sessions._delete_expired(expired, 3e9)
    assert [kept.id for kept in await store.sessions()] == ["back"]
    assert (talk.deleted, talk.gone) == (["away"], ["away"])


async def test_a_request_beside_the_end_opens_the_session_again_or_came_before(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await talk.say([user("a")])
    asked, recording = asyncio.Event(), asyncio.Event()
    record_answer = talk.sessions.recorder.record_answer

    async def slow(*arguments: Any) -> None:
        recording.set()
        await asked.wait()
        await record_answer(*arguments)

    async def end() -> None:
        async with talk.sessions.use("s", LABELS) as session:
            await talk.sessions.end(session, [user("bye")], None, "terminated", None)

    monkeypatch.setattr(talk.sessions.recorder, "record_answer", slow)
    ending = asyncio.create_task(end())
    await recording.wait()
    later = asyncio.create_task(talk.say([user("a"), assistant("ok"), user("b")]))
    await asyncio.sleep(0.02)  # it is inside
    asked.set()
    await asyncio.gather(ending, later)
    row = await talk.store.session("s")
    assert row is not None
    assert (row.ended_s, talk.sessions.open_count) == (None, 1), "the store and memory are one"


async def test_an_end_that_the_disk_refuses_leaves_the_session_open(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*arguments: Any, **named: Any) -> bool:
        raise DiskFull("full")

    await talk.say([user("a")])
    with monkeypatch.context() as patch:
        patch.setattr(talk.store, "end_session", full)
        with pytest.raises(DiskFull):
            async with talk.sessions.use("s", LABELS) as session:
                await talk.sessions.end(session, None, None, "terminated", None)
    assert talk.sessions.open_count == 1
    await talk.sessions.reap_once(3e9)
    assert talk.ended == ["s"]


async def test_a_deleted_session_is_gone_and_its_name_begins_another_one(talk: Talk) -> None:
    await talk.say([user("a")], path=None)
    first = (await talk.store.sessions())[0].id
    assert await talk.sessions.delete(first)
    assert not await talk.sessions.delete(first)
    assert (talk.deleted, talk.sessions.open_count) == ([first], 0)
    later = await talk.say([user("a"), assistant("ok"), user("b")], path=None)
    assert later.session_id != first, "its history is forgotten"
    assert (await talk.say([user("a")], path=first)).index == 0
    assert await talk.states(first) == {}


async def test_who_is_inside_a_session_that_is_deleted_is_told(talk: Talk) -> None:
    async with talk.ask([user("a")]) as asked:
        assert await talk.sessions.delete("s")
        with pytest.raises(Refusal, match="was deleted meanwhile"):
            await talk.record(asked, "late")
    assert await talk.store.sessions() == []
    assert len(talk.sessions) == 0


async def test_too_many_open_sessions_are_refused_and_old_ones_go_on(store: Store) -> None:
    talk = Talk(store, max_open=2)
    for name in ("a", "b"):
        await talk.say([user("hi")], path=name)
    with pytest.raises(Refusal, match="2 sessions are open") as refused:
        await talk.say([user("hi")], path="c")
    assert (refused.value.status, refused.value.code) == (429, "session_limit")
    await talk.say([user("hi"), assistant("ok"), user("b")], path="a")
    await talk.say([user("hi")], path="r", labels=ROLLOUT)
    async with talk.sessions.use("a", LABELS) as session:
        await talk.sessions.end(session, None, None, "terminated", None)
    await talk.say([user("hi")], path="c")
    with pytest.raises(Refusal, match="2 sessions are open"):
        await talk.say([user("hi")], path="a")
    assert talk.sessions.open_count == 2


async def test_a_session_that_is_not_there_is_not_made_by_looking(talk: Talk) -> None:
    with pytest.raises(Refusal, match="there is no session 'x'"):
        async with talk.sessions.use("x", None):
            pass
    assert (len(talk.sessions), await talk.store.sessions()) == (0, [])


# Memory, concurrency, crashes.


async def test_memory_is_bounded_and_read_again_from_the_store(store: Store) -> None:
    talk = Talk(store, LiveConfig(warm_sessions=3))
    for number in range(10):
        await talk.say([user("a")], path=f"s{number}")
    assert len(talk.sessions) == 3
    await talk.say([user("a"), assistant("ok"), user("b")], path="s0")
    assert await talk.states("s0") == {0: [user("b")]}


async def test_rollouts_stay_in_memory_between_their_turns(store: Store) -> None:
    talk = Talk(store, LiveConfig(warm_sessions=2))
    for number in range(6):
        await talk.say([user("a")], path=f"r{number}", labels=ROLLOUT)
    assert len(talk.sessions) == 6
    for number in range(6):
        again = [user("a"), assistant("ok"), user("b")]
        turn = await talk.say(again, path=f"r{number}", labels=ROLLOUT)
        assert turn.index == 1
        async with talk.sessions.use(f"r{number}", ROLLOUT) as session:
            await talk.sessions.end(session, [user("c")], 1.0, "terminated", None)
        assert await talk.states(f"r{number}") == {0: [user("b")], 1: [user("c")]}
    assert len(talk.sessions) == 2


async def test_rollouts_leave_memory_when_it_is_full_and_go_on(store: Store) -> None:
    talk = Talk(store)
    cache = talk.sessions._cache = SessionCache(store, warm_sessions=100, max_bytes=200_000)
    system: Message = {"role": "system", "content": "x" * 40_000}
    for number in range(9):
        await talk.say([system, user("a")], path=f"r{number}", labels=ROLLOUT)
    assert cache.size_bytes <= 200_000
    assert 2 < len(cache) < 6
    again = [system, user("a"), assistant("ok"), user("b")]
    assert (await talk.say(again, path="r0", labels=ROLLOUT)).index == 1
    assert await talk.states("r0") == {0: [user("b")]}


async def test_large_turns_leave_memory_sooner(store: Store) -> None:
    """10,000 idle sessions with prompts of 40,000 characters must fit: few stay whole."""
    cache = SessionCache(store, warm_sessions=100, max_bytes=1_000_000)
    talk = Talk(store)
    talk.sessions._cache = cache
    system: Message = {"role": "system", "content": "x" * 40_000}
    for number in range(60):
        await talk.say([system, user("a")], path=f"s{number}")
    assert cache.size_bytes <= 1_000_000
    assert 10 < len(cache) < 30
    await talk.say([system, user("a"), assistant("ok"), user("b")], path="s0")
    assert await talk.states("s0") == {0: [user("b")]}


async def test_a_session_remembers_a_bounded_number_of_turns(talk: Talk) -> None:
    for number in range(MAX_TURNS + 10):
        await talk.say([user(str(number))])
    async with talk.sessions.use("s", LABELS) as session:
        assert len(session.graph.turns) == len(session.graph.waiting) == MAX_TURNS
        assert session.graph.delivered <= session.graph.waiting


async def test_a_session_goes_on_in_another_process_exactly(tmp_path: Path) -> None:
    """Everything is on the disk: as after kill -9, nothing is told the new process."""
    told = [user("a"), assistant("one"), user("b")]
    store = Store.open(tmp_path)
    await Talk(store).say(told[:1], "one", path=None)
    await store.close()
    store = Store.open(tmp_path)
    talk = Talk(store)
    await talk.sessions.start()
    await talk.say(told, "two", path=None)
    await store.close()
    store = Store.open(tmp_path)
    later = Talk(store)
    await later.sessions.start()
    third = await later.say([*told, assistant(" two"), user("c")], path=None)
    assert (await later.states(third.session_id)) == {0: [user("b")], 1: [user("c")]}
    assert third.index == 2
    fork = await later.say([user("a"), assistant("one"), user("other")], path=None)
    assert (fork.session_id, fork.index) == (third.session_id, 3)
    await store.close()


async def test_a_restart_in_the_middle_changes_nothing_of_a_retry(talk: Talk) -> None:
    first = await talk.say([user("a")], "one")
    later = Talk(talk.store)
    assert (await later.say([user("a")], "two")).id == first.id
    async with later.ask([user("a"), assistant("one"), user("b")]) as asked:
        past = await later.sessions.recorder.previous_turn(asked)
    assert past is not None
    assert past.turn == first


async def test_first_requests_at_once_open_a_session_once(talk: Talk) -> None:
    turns = await asyncio.gather(*(talk.say([user(str(number))]) for number in range(20)))
    assert sorted(turn.index for turn in turns) == list(range(20))
    assert len(await talk.store.sessions()) == 1


async def test_a_record_is_finished_when_its_client_leaves(talk: Talk) -> None:
    async with talk.ask([user("a")]) as asked:
        recording = asyncio.create_task(talk.record(asked, "one"))
        await asyncio.sleep(0)
        recording.cancel()
        with pytest.raises(asyncio.CancelledError):
            await recording
        await talk.sessions.recorder.finish(2.0)
    assert (await talk.say([user("a")], "two")).reply["content"] == "one"
    assert len(await talk.store.turns_of("s")) == 1


async def test_a_next_state_is_told_when_its_client_leaves(talk: Talk) -> None:
    await talk.say([user("a")])
    async with talk.ask([user("a"), assistant("ok"), user("b")]) as asked:
        recording = asyncio.create_task(talk.sessions.recorder.record_next_states(asked))
        await asyncio.sleep(0)
        recording.cancel()
        with pytest.raises(asyncio.CancelledError):
            await recording
    await talk.sessions.recorder.finish(2.0)
    assert await talk.states() == {0: [user("b")]}
    assert len(talk.judged) == 1


async def test_a_store_that_cannot_write_leaves_the_turn_waiting(talk: Talk) -> None:
    await talk.say([user("a")])
    async with talk.ask([user("a"), assistant("ok"), user("b")]) as asked:
        await talk.store.close()
        with pytest.raises(StoreError):
            await talk.sessions.recorder.record_next_states(asked)
        assert len(asked.session.graph.waiting) == 1


async def test_recording_does_not_depend_on_what_is_written_to_the_disk(tmp_path: Path) -> None:
    """Reference defect: without the record file no sample was made of Binary RL's turns."""
    store = Store.open(tmp_path, record=False)
    talk = Talk(store)
    await talk.say([user("a")])
    await talk.say([user("a"), assistant("ok"), user("b")])
    assert await talk.states() == {0: [user("b")]}
    assert len(talk.judged) == 1
    await store.close()


async def test_sessions_work_without_any_rules(store: Store) -> None:
    sessions = Sessions(store)
    identity = sessions.identify([user("a")], {}, Origin())
    async with sessions.request(identity, LABELS, [user("a")]) as asked:
        assert await sessions.recorder.stored_reply(asked) is None
    assert len(sessions) == 1
