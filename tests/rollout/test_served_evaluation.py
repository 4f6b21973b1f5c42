"""An evaluation of a policy that serves and learns: it teaches nothing, and says who answered."""

from __future__ import annotations

from typing import Any

import pytest

from clawrl_gym.core.types import Message
from clawrl_gym.rollout.collection.live_collector import LiveCollector
from clawrl_gym.rollout.episodes.chat import EVALUATION_HEADER, EndpointChat, PolicyAddress
from tests.rollout.test_endpoint_chat import SPEC
from tests.rollout.test_live_collector import collecting, keep
from tests.support.fakes_judge import a_turn
from tests.support.gateway_rig import HELLO, Bench, user

CHAT = "/v1/chat/completions"
FORMS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "alone": ({}, {}),
    "in a session of the header": ({"X_Session_Id": "e"}, {}),
    "in a session of the body": ({}, {"session_id": "e"}),
    "in a session of the metadata": ({}, {"metadata": {"session_id": "e"}}),
    "said to be a main turn": ({"X_Turn_Type": "main"}, {"turn_type": "main"}),
    "said to be of the train split": ({"X_Split": "train"}, {}),
    "at another temperature": ({}, {"temperature": 0}),
    "of a person": ({}, {"user": "anna"}),
    "with tools": ({}, {"tools": [{"type": "function", "function": {"name": "f"}}]}),
    "as a retry": ({"X_Stainless_Retry_Count": "1"}, {}),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", ["1", "true", "YES"])
async def test_what_measures_is_of_the_held_out_split_and_its_turns_get_no_next_state(
    bench: Bench, form: str, value: str
) -> None:
    headers, body = FORMS[form]
    talk: list[Message] = list(HELLO)
    for _ in range(3):
        status, answer, _ = await bench.post(
            CHAT, {"messages": talk} | body, X_Clawrl_Evaluation=value, **headers
        )
        assert status == 200, answer
        talk = [*talk, {"role": "assistant", "content": "hi"}, user("that's wrong")]
    sessions = await bench.store.sessions()
    assert {session.split for session in sessions} == {"heldout"}
    turns = [turn for one in sessions for turn in await bench.store.turns_of(one.id)]
    assert {(turn.kind, turn.rule) for turn in turns} == {("side", "evaluation")}
    assert not bench.told.next_states
    assert not await bench.store.unjudged(10)


async def test_an_evaluation_never_enters_a_conversation_with_the_same_words(bench: Bench) -> None:
    await bench.post(CHAT, {"messages": HELLO})
    reply = (await bench.store.turns_of((await bench.store.sessions())[0].id))[0].reply
    more: list[Message] = [*HELLO, reply, user("and now?")]
    await bench.post(CHAT, {"messages": more}, X_Clawrl_Evaluation="1")
    assert sorted(session.split for session in await bench.store.sessions()) == ["heldout", "train"]
    await bench.post(CHAT, {"messages": more})
    turns = [len(await bench.store.turns_of(one.id)) for one in await bench.store.sessions()]
    assert sorted(turns) == [1, 2], "the person's own request goes on in their session"


async def test_a_header_that_says_neither_is_refused_and_one_that_says_no_is_none(
    bench: Bench,
) -> None:
    status, answer, _ = await bench.post(CHAT, {"messages": HELLO}, X_Clawrl_Evaluation="maybe")
    assert (status, "X-Clawrl-Evaluation" in answer["error"]["message"]) == (400, True)
    await bench.post(CHAT, {"messages": HELLO}, X_Clawrl_Evaluation="0")
    assert [session.split for session in await bench.store.sessions()] == ["train"]


async def test_feedback_on_what_was_measured_is_refused(bench: Bench) -> None:
    for headers in ({"X_Clawrl_Evaluation": "1"}, {"X_Split": "heldout"}):
        _, _, said = await bench.post(CHAT, {"messages": HELLO}, X_Session_Id="e", **headers)
        body = {"turn_id": int(said["X-Turn-Id"]), "thumb": "up"}
        status, answer, _ = await bench.post("/v1/feedback", body)
        assert (status, answer["error"]["code"]) == (409, "turn_not_trained")


async def test_verdicts_and_ends_of_measured_sessions_make_no_sample(bench: Bench) -> None:
    await bench.post(CHAT, {"messages": HELLO}, X_Session_Id="s", X_Split="heldout")
    (turn,) = await bench.store.turns_of("s")
    async with collecting(bench.store) as live:
        assert isinstance(live.collector, LiveCollector)
        for value, kind in ((1, "rule"), (-1, "model"), (1, "feedback")):
            await live.judged(turn, value, kind)
        await live.end(reward=1.0)
        assert await live.batch() == []
        assert (await live.yielded())[1] == "evaluation"
    assert a_turn().kind == "main"
    assert await keep(bench.store, turn, 1)


async def test_our_own_evaluation_says_that_it_measures_and_is_told_the_version(
    bench: Bench,
) -> None:
    bench.gateway.version = 7
    address = PolicyAddress(f"{bench.url}/v1", bench.gateway.key, "policy", is_gateway=False)
    chat = EndpointChat(address, 5.0, 4)
    try:
        first = await chat.reply(SPEC, HELLO, [])
        bench.gateway.version = 8
        second = await chat.reply(SPEC, [*HELLO, first.message, user("more")], [])
    finally:
        await chat.close()
    assert EVALUATION_HEADER == "X-Clawrl-Evaluation"
    (session,) = await bench.store.sessions()
    assert (session.id, session.split) == (SPEC.session_id, "heldout")
    assert second.version is not None
