"""Answers of the Responses API: whole and streamed, held against OpenAI's own client."""

from __future__ import annotations

import json
import random
from typing import Any, cast

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from openai import NOT_GIVEN
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from clawrl_gym.core.types import Message
from clawrl_gym.gateway.dialects.dialect import Answer
from clawrl_gym.gateway.dialects.responses import RESPONSES
from clawrl_gym.gateway.dialects.responses_items import answer_id_of
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.gateway.wire.requests import ChatRequest
from clawrl_gym.inference.generation import Delta, ToolCallDelta, message_of
from tests.gateway.responses_bodies import LOOK, PATCH, SPACE, turn_of

A = "0123456789abcdef" * 2
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
ECHO: dict[str, Any] = {
    "tools": [LOOK, PATCH, SPACE],
    "instructions": "Be short.",
    "temperature": 0.5,
    "metadata": {"a": "b"},
    "reasoning": {"effort": "low", "summary": "auto"},
    "text": {"format": {"type": "text"}},
    "store": False,
}
NAMES = ["look", "patch", "mcp__files__read", "unknown"]


def answer(**echo: object) -> Answer:
    return Answer(A, "policy", "mine", echo=ECHO | echo, created_s=1_700_000_000.25)


def call_of(index: int, name: str, arguments: str) -> ToolCallDelta:
    function = {"name": name, "arguments": arguments}
    call = {"index": index, "id": f"call_{index}", "type": "function", "function": function}
    return cast(ToolCallDelta, call)


def whole_of(reply: Message, finish_reason: str = "stop") -> dict[str, Any]:
    whole = dict(RESPONSES.whole(turn_of(reply, finish_reason), answer()))
    Response.model_validate(whole, strict=True)
    assert json.loads(json.dumps(whole)) == whole
    return whole


def read_events(stream: bytes) -> list[dict[str, Any]]:
    """The events of a stream; each has its name twice."""
    events = []
    for block in stream.decode().split("\n\n")[:-1]:
        name, data = block.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


def streamed(
    deltas: list[Delta], finish_reason: str = "stop"
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The events of a reply, and the answer with the whole of it."""
    events, turn = RESPONSES.events(answer()), turn_of(message_of(deltas), finish_reason)
    stream = b"".join([*map(events.piece, deltas), events.last(turn)])
    return read_events(stream), dict(RESPONSES.whole(turn, answer()))


def accumulated(events: list[dict[str, Any]]) -> Response:
    """What OpenAI's client makes of the events."""
    state: ResponseStreamState[Any] = ResponseStreamState(
        input_tools=cast(Any, NOT_GIVEN), text_format=cast(Any, NOT_GIVEN)
    )
    for number, event in enumerate(events):
        assert event["sequence_number"] == number
        state.handle_event(EVENT.validate_json(json.dumps(event), strict=True))
    response = state._completed_response
    assert response is not None
    return response


def unparsed(response: Response) -> dict[str, Any]:
    """The fields of a response without those that OpenAI's client adds to its items."""
    fields: dict[str, Any] = response.to_dict()
    for item in fields["output"]:
        for holder in (item, *(item.get("content") or ())):
            holder.pop("parsed", None)
            holder.pop("parsed_arguments", None)
    return fields


def test_a_reply_is_reasoning_text_and_calls() -> None:
    reply = message_of(
        [
            {"reasoning_content": "Hm.", "content": "I look."},
            {"tool_calls": [call_of(0, "look", "{}"), call_of(1, "patch", '{"input": "+a"}')]},
            {"tool_calls": [call_of(2, "mcp__files__read", "")]},
        ]
    )
    whole = whole_of(reply)
    thoughts, text, look, patch, read = whole["output"]
    assert (thoughts["id"], thoughts["summary"]) == (f"rs_{A}", [])
    assert thoughts["content"] == [{"type": "reasoning_text", "text": "Hm."}]
    assert (text["id"], text["content"][0]["text"]) == (f"msg_{A}", "I look.")
    assert (look["id"], look["call_id"], look["name"]) == (f"fc_{A}_0", "call_0", "look")
    assert (patch["id"], patch["name"], patch["input"]) == (f"ctc_{A}_1", "patch", "+a")
    assert (read["name"], read["namespace"], read["arguments"]) == ("read", "mcp__files", "")
    assert all(answer_id_of(item["id"]) == A for item in [*whole["output"], whole])
    assert Response.model_validate(whole).output_text == "I look."


def test_a_response_says_what_was_asked_when_and_how_much_it_took() -> None:
    whole = whole_of({"role": "assistant", "content": "Hi"})
    assert whole["id"] == f"resp_{A}"
    assert (whole["created_at"], whole["completed_at"]) == (1_700_000_000, 1_700_000_009)
    assert whole["usage"]["total_tokens"] == 5
    assert {name: whole[name] for name in ECHO} == ECHO
    assert (whole["session_id"], whole["turn_id"]) == ("mine", 7)


def test_a_response_of_nothing_but_defaults_is_valid() -> None:
    turn = turn_of({"role": "assistant", "content": ""})
    whole = RESPONSES.whole(turn, Answer(A, "policy", "mine"))
    assert Response.model_validate(whole, strict=True).output == []


def test_a_reply_at_its_limit_is_incomplete_and_so_is_its_last_item() -> None:
    whole = whole_of({"role": "assistant", "content": "x", "reasoning_content": "y"}, "length")
    assert whole["status"] == "incomplete"
    assert whole["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["status"] for item in whole["output"]] == ["completed", "incomplete"]
    events, _ = streamed([{"content": "x"}], "length")
    assert events[-1]["type"] == "response.incomplete"
    assert whole_of({"role": "assistant", "content": "x"})["status"] == "completed"


def test_an_input_that_is_not_in_its_form_is_passed_on_as_it_is() -> None:
    for arguments in ("*** Begin", "[1]", '{"other": 1}', '{"input": 5}'):
        reply = message_of([{"tool_calls": [call_of(0, "patch", arguments)]}])
        assert whole_of(reply)["output"][0]["input"] == arguments


def test_a_usual_stream_goes_item_by_item() -> None:
    events, _ = streamed(
        [
            {"reasoning_content": "H"},
            {},
            {"reasoning_content": "m."},
            {"content": "I look."},
            {"tool_calls": [call_of(0, "look", '{"at"')]},
            {"tool_calls": [cast(ToolCallDelta, {"index": 0, "function": {"arguments": ": 1}"}})]},
        ]
    )
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created", "in_progress",
        "output_item.added", "content_part.added",
        "reasoning_text.delta", "reasoning_text.delta",
        "reasoning_text.done", "content_part.done", "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.delta",
        "output_text.done", "content_part.done", "output_item.done",
        "function_call_arguments.done", "output_item.done",
        "completed",
    ]  # fmt: skip


@pytest.mark.parametrize("reply", [[], [{}], [{"content": ""}]])
def test_an_empty_reply_has_no_items(reply: list[Delta]) -> None:
    events, whole = streamed(reply)
    assert [event["type"] for event in events] == [
        "response.created", "response.in_progress", "response.completed",
    ]  # fmt: skip
    assert accumulated(events).output == whole["output"] == []


def test_a_reply_without_a_piece_has_all_its_events() -> None:
    events = RESPONSES.events(answer())
    assert not events.has_begun
    stream = read_events(events.last(turn_of({"role": "assistant", "content": "Hi"})))
    assert [event["delta"] for event in stream if "delta" in event] == ["Hi"]
    assert accumulated(stream).output_text == "Hi"


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (Refusal(500, "x", "internal"), "server_error"),
        (Refusal(504, "x", "policy_unavailable"), "server_error"),
        (Refusal(429, "x", "rate"), "rate_limit_exceeded"),
        (Refusal(400, "x"), "invalid_prompt"),
        (Refusal(400, "x", "context_length_exceeded"), "context_length_exceeded"),
    ],
)
@pytest.mark.parametrize("pieces", [0, 1])
def test_a_stream_that_fails_says_so_in_a_response(
    refusal: Refusal, code: str, pieces: int
) -> None:
    events = RESPONSES.events(answer())
    stream = b"".join([*(events.piece({"content": "H"}) for _ in range(pieces))])
    *_, last = read_events(stream + events.failed(refusal))
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
    assert last["response"]["error"] == {"code": code, "message": "x"}
    if code != "context_length_exceeded":  # OpenAI sends this one, and its client's type lacks it
        EVENT.validate_json(json.dumps(last), strict=True)


def test_an_error_is_openais() -> None:
    error = RESPONSES.error(Refusal(400, "no", param="input"))
    assert error["error"] == {
        "message": "no", "type": "invalid_request_error", "param": "input",
        "code": "invalid_request",
    }  # fmt: skip


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
calls = st.lists(st.tuples(st.sampled_from(NAMES), texts, st.booleans()), max_size=3)


def split(text: str, draw: random.Random) -> list[str]:
    pieces = []
    while text:
        length = draw.randint(1, len(text))
        pieces.append(text[:length])
        text = text[length:]
    return pieces


def deltas_of(
    thoughts: str, text: str, called: list[tuple[str, str, bool]], draw: random.Random
) -> list[Delta]:
    """A reply in pieces: each kind of them in its order, and all of them mixed."""
    queues: list[list[Delta]] = [
        [{"reasoning_content": piece} for piece in split(thoughts, draw)],
        [{"content": piece} for piece in split(text, draw)],
    ]
    for index, (name, argument, is_form) in enumerate(called):
        arguments = json.dumps({"input": argument}) if is_form else argument
        first = call_of(index, name, "")
        rest = [
            cast(ToolCallDelta, {"index": index, "function": {"arguments": piece}})
            for piece in split(arguments, draw)
        ]
        queues.append([{"tool_calls": [part]} for part in (first, *rest)])
    deltas: list[Delta] = []
    while queues := [queue for queue in queues if queue]:
        delta = draw.choice(queues).pop(0)
        last = deltas[-1] if deltas and draw.random() < 0.3 else None
        if last is None:
            deltas.append(delta)
        elif "tool_calls" in delta:
            last["tool_calls"] = [*last.get("tool_calls", []), *delta["tool_calls"]]
        elif not last.keys() & delta.keys():
            last.update(delta)
        else:
            deltas.append(delta)
    return deltas


@settings(max_examples=100, deadline=None)
@given(texts, texts, calls, st.randoms(use_true_random=False))
def test_any_way_of_splitting_a_reply_streams_the_whole_one(
    thoughts: str, text: str, called: list[tuple[str, str, bool]], draw: random.Random
) -> None:
    events, whole = streamed(deltas_of(thoughts, text, called, draw))
    assert events[-1]["response"] == whole
    assert unparsed(accumulated(events)) == Response.model_validate(whole).to_dict()
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    for item in whole["output"]:
        assert [one for one in done if one["id"] == item["id"]][-1] == item
        pieces = [
            event["delta"]
            for event in events
            if event.get("item_id") == item["id"] and "delta" in event
        ]
        holder = item["content"][0] if "content" in item else item
        [said] = [holder[name] for name in ("text", "arguments", "input") if name in holder]
        assert "".join(pieces) == said


@settings(max_examples=100, deadline=None)
@given(texts, texts, calls, st.booleans())
def test_a_reply_that_comes_back_is_the_same_message(
    thoughts: str, text: str, called: list[tuple[str, str, bool]], has_ids: bool
) -> None:
    """Clients that keep nothing elsewhere send the items without their ids."""
    calls = [
        call_of(index, name, json.dumps({"input": argument}, ensure_ascii=False))
        for index, (name, argument, _) in enumerate(called)
    ]
    delta: Delta = {"content": text, "reasoning_content": thoughts}
    reply = message_of([delta | {"tool_calls": calls}])
    items = cast(list[dict[str, Any]], whole_of(reply)["output"])
    assume(items)  # an empty reply leaves nothing behind
    sent = [
        item if has_ids else {name: value for name, value in item.items() if name != "id"}
        for item in items
    ]
    question = {"role": "user", "content": "Hello"}
    fields = RESPONSES.read({"input": [question, *sent, question], **ECHO}).fields
    assert isinstance(fields, ChatRequest)
    [_, _, came_back, _] = fields.plain_messages()
    assert {name: value for name, value in came_back.items() if value} == {
        name: value for name, value in reply.items() if value
    }
