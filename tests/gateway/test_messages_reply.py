"""Replies of the Messages API: the referee is the official SDK, which puts the stream together."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import anthropic
import httpx2 as httpx  # what this SDK is built on
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawrl_gym.core.types import Message, Turn
from clawrl_gym.dialogue.graph import reasoning_of, same_reply
from clawrl_gym.gateway.dialects.dialect import Answer
from clawrl_gym.gateway.dialects.messages import MESSAGES, models_json
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.gateway.wire.requests import parse_json, renderable
from clawrl_gym.inference.generation import Delta, message_of

ANSWER = Answer(id="0f" * 16, model="policy", session_id="a-session")
ARGUMENTS = (
    "{}", '{"a": 1}', '{"path": "ä.py", "lines": [1, 2.5, null, true], "x": {"y": "\\n"}}', "",
    '{"a": 1, "b', "{", "[1, 2]", "7", "null", "not JSON", '{"a": NaN}', '{"a": 1e999}',
    '{"half": "\\ud83d"}', '{"a": 1, "a": 2}', "[" * 70 + "]" * 70, '{"a": ' * 70 + "1" + "}" * 70,
    '{"_": "x"}', '{"big": 123456789012345678901234567890}', " ",
)  # fmt: skip
WITHOUT_RETURN = (ARGUMENTS[11], ARGUMENTS[12], ARGUMENTS[15], ARGUMENTS[16])
"""Infinity, half a character, 70 levels: JSON that clients cannot hand back as it was. And an input
that looks like one that was no JSON."""


class Wire:
    """An SDK whose server answers with what a test gives it."""

    def __init__(self) -> None:
        self.status, self.body = 200, b""
        transport = httpx.MockTransport(self._answer)
        self.sdk = anthropic.Anthropic(
            api_key="key",
            base_url="http://gateway",
            max_retries=0,
            http_client=httpx.Client(transport=transport),
        )

    def _answer(self, request: httpx.Request) -> httpx.Response:
        kind = "text/event-stream" if self.body.startswith(b"event") else "application/json"
        return httpx.Response(self.status, content=self.body, headers={"content-type": kind})

    def streamed(self, events: bytes) -> dict[str, Any]:
        self.status, self.body = 200, events
        with self.sdk.messages.stream(**ASKED) as stream:
            return said(stream.get_final_message())

    def whole(self, message: Any) -> dict[str, Any]:
        self.status, self.body = 200, json.dumps(message, allow_nan=False).encode()
        return said(self.sdk.messages.create(**ASKED))


ASKED: Any = {
    "model": "policy",
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "hello"}],
}
WIRE = Wire()


def said(message: Any) -> dict[str, Any]:
    fields = message.to_dict(mode="json")
    content = [{k: v for k, v in block.items() if v is not None} for block in fields["content"]]
    return {k: v for k, v in fields.items() if v is not None} | {"content": content}


def turn_of(reply: Message, finish_reason: str = "stop", stop_text: str | None = None) -> Turn:
    return Turn(
        session_id="a-session",
        index=0,
        kind="main",
        prompt_ids_T=[1, 2, 3],
        sampled_ids_T=[4, 5],
        logprobs_T=[-1.0, -1.0],
        versions_T=[0, 0],
        finish_reason=finish_reason,
        messages=[],
        reply=reply,
        created_s=0.0,
        stop_text=stop_text,
        id=17,
    )


def stream_of(deltas: Sequence[Delta], turn: Turn) -> bytes:
    events = MESSAGES.events(ANSWER)
    return b"".join(map(events.piece, deltas)) + events.last(turn)


def events_in(stream: bytes) -> list[dict[str, Any]]:
    read = []
    for event in stream.decode().removesuffix("\n\n").split("\n\n"):
        kind, data = event.split("\n")
        read.append(json.loads(data.removeprefix("data: ")))
        assert kind == f"event: {read[-1]['type']}"
    return read


def check_blocks(stream: bytes) -> None:
    """Blocks follow one another, each whole, between the message's beginning and its end."""
    events = [event for event in events_in(stream) if event["type"] != "ping"]
    kinds = [event["type"] for event in events]
    assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])
    at, is_open = -1, False
    for event in events[1:-2]:
        if event["type"] == "content_block_start":
            assert not is_open
            at, is_open = at + 1, True
        assert is_open
        assert event["index"] == at
        is_open = event["type"] != "content_block_stop"
    assert not is_open
    assert at >= 0


def call(index: int, text: str, name: str = "") -> Any:
    """A piece of a call, the first one with its name."""
    if not name:
        return {"index": index, "function": {"arguments": text}}
    function = {"name": name, "arguments": text}
    return {"index": index, "id": f"call_{index}", "type": "function", "function": function}


# Any way of splitting a reply.


@st.composite
def pieces(draw: st.DrawFn, text: str) -> list[str]:
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@st.composite
def calls_in_pieces(draw: st.DrawFn) -> list[Any]:
    """Pieces of calls: those of one are in order, those of several between one another."""
    waiting = []
    for index in range(draw(st.integers(0, 3))):
        texts = draw(pieces(draw(st.sampled_from(ARGUMENTS))))
        name = draw(st.sampled_from("fg"))
        parts = [call(index, text, "" if at else name) for at, text in enumerate(texts)]
        waiting.append(parts)
    merged = []
    while any(waiting):
        merged.append(draw(st.sampled_from([parts for parts in waiting if parts])).pop(0))
    return merged


@st.composite
def replies(draw: st.DrawFn) -> list[Delta]:
    """A reply as deltas: thoughts, text, calls; a delta may have several of them, or nothing."""
    words = st.text(st.characters(codec="utf-8"), max_size=20)
    steps: list[tuple[str, Any]] = [
        *(("reasoning_content", text) for text in draw(pieces(draw(words)))),
        *(("content", text) for text in draw(pieces(draw(words)))),
        *(("tool_calls", [part]) for part in draw(calls_in_pieces())),
    ]
    deltas: list[Any] = [{}]
    for name, value in steps:
        if name in deltas[-1] or draw(st.booleans()):
            deltas += [{}] * draw(st.integers(0, 1)) + [{}]
        deltas[-1] = {**deltas[-1], name: value}
    return deltas


@settings(max_examples=150, deadline=None)
@given(
    deltas=replies(),
    finish_reason=st.sampled_from(["stop", "length"]),
    stop_text=st.sampled_from([None, "END"]),
)
def test_a_stream_is_the_whole_reply(
    deltas: list[Delta], finish_reason: str, stop_text: str | None
) -> None:
    turn = turn_of(message_of(deltas), finish_reason, stop_text)
    stream = stream_of(deltas, turn)
    check_blocks(stream)
    whole = WIRE.whole(MESSAGES.whole(turn, ANSWER))
    assert WIRE.streamed(stream) == whole
    assert whole["usage"]["input_tokens"] == 3


@settings(max_examples=50, deadline=None)
@given(order=st.lists(st.sampled_from(["reasoning_content", "content"]), max_size=8))
def test_thoughts_and_text_come_in_their_order(order: list[Any]) -> None:
    deltas: list[Any] = [{name: f"{at} "} for at, name in enumerate(order)]
    stream = stream_of(deltas, turn_of(message_of(deltas)))
    check_blocks(stream)
    blocks = WIRE.streamed(stream)["content"]
    words = "".join(block.get("thinking", "") + block.get("text", "") for block in blocks)
    assert words == "".join(f"{at} " for at in range(len(order)))
    assert all(a["type"] != b["type"] for a, b in pairwise(blocks))


def test_a_reply_that_was_not_streamed_is_said_at_the_end() -> None:
    reply: Message = {"role": "assistant", "reasoning_content": "Hm.", "content": "hi"}
    stream = stream_of([], turn_of(reply))
    check_blocks(stream)
    assert WIRE.streamed(stream) == WIRE.whole(MESSAGES.whole(turn_of(reply), ANSWER))


# The parts of a reply.


def blocks_of(**reply: Any) -> Any:
    said: Any = {"role": "assistant", **reply}
    return MESSAGES.whole(turn_of(said), ANSWER)["content"]


def test_a_message_has_the_fields_of_the_api() -> None:
    message = MESSAGES.whole(turn_of({"role": "assistant", "content": "hi"}), ANSWER)
    assert message == {
        "id": f"msg_{ANSWER.id}",
        "type": "message",
        "role": "assistant",
        "model": "policy",
        "session_id": "a-session",
        "content": [{"type": "text", "text": "hi"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 3,
            "output_tokens": 2,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
        },
    }
    anthropic.types.Message.model_validate(message)


def test_an_empty_reply_is_one_empty_text() -> None:
    assert blocks_of(content="") == [{"type": "text", "text": ""}]
    assert [block["type"] for block in blocks_of(content="", reasoning_content="Hm.")] == [
        "thinking"
    ]


def test_thoughts_are_signed_so_that_clients_do_not_take_them_for_text() -> None:
    (thoughts, _) = blocks_of(content="hi", reasoning_content="Hm.")
    assert thoughts == {"type": "thinking", "thinking": "Hm.", "signature": ANSWER.id}


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_the_input_of_a_call_is_what_the_chat_template_will_read(arguments: str) -> None:
    calls: Any = [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
    ]
    (block,) = blocks_of(content=None, tool_calls=calls)
    returned = sent_back([block])
    sampled: Message = {"role": "assistant", "content": None, "tool_calls": calls}
    assert input_in(renderable(returned)) == input_in(renderable(sampled))


def sent_back(blocks: Any) -> Message:
    """Our reply, as a client hands it back."""
    history = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": blocks},
        {"role": "user", "content": "y"},
    ]
    raw = json.dumps({"model": "policy", "max_tokens": 9, "messages": history}).encode()
    chat: Any = MESSAGES.read(parse_json(raw)).fields
    message: Message = chat.plain_messages()[1]
    return message


@settings(max_examples=150, deadline=None)
@given(deltas=replies())
def test_a_reply_that_returns_is_known(deltas: list[Delta]) -> None:
    reply = message_of(deltas)
    returned = sent_back(blocks_of(**reply))
    calls = reply.get("tool_calls") or []
    if not any(call["function"]["arguments"] in WITHOUT_RETURN for call in calls):
        assert same_reply(returned, reply)
        assert reasoning_of(returned) == reasoning_of(reply)


def input_in(message: Message) -> Any:
    """The one call's arguments, without what is no JSON in other languages."""
    arguments = str(message["tool_calls"][0]["function"]["arguments"])
    fields = json.loads(arguments)
    return repr({"_": arguments} if fields == {"a": float("inf")} else fields)


CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
CUT = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"a": 1'}}


@pytest.mark.parametrize(
    ("calls", "finish_reason", "stop_text", "reason"),
    [
        ([], "stop", None, "end_turn"),
        ([], "stop", "END", "stop_sequence"),
        ([], "length", None, "max_tokens"),
        ([], "length", "END", "max_tokens"),
        ([CALL], "stop", None, "tool_use"),
        ([CALL], "tool_calls", None, "tool_use"),
        ([CALL], "stop", "END", "tool_use"),
        ([CUT], "stop", "END", "stop_sequence"),
        ([CALL, CUT], "stop", "END", "stop_sequence"),
        ([CUT], "stop", None, "tool_use"),
        ([CUT], "length", None, "max_tokens"),
        ([], "content_filter", None, "refusal"),
        ([], "abort", None, "end_turn"),
    ],
)
def test_why_a_reply_ended(
    calls: list[Any], finish_reason: str, stop_text: str | None, reason: str
) -> None:
    reply: Message = {"role": "assistant", "content": "hi", "tool_calls": calls}
    message = MESSAGES.whole(turn_of(reply, finish_reason, stop_text), ANSWER)
    sequence = stop_text if reason == "stop_sequence" else None
    assert (message["stop_reason"], message["stop_sequence"]) == (reason, sequence)


# The stream as it goes.


def test_a_stream_begins_with_its_first_piece() -> None:
    events = MESSAGES.events(ANSWER)
    assert not events.has_begun
    kinds = [event["type"] for event in events_in(events.piece({"content": "h"}))]
    assert kinds == ["message_start", "content_block_start", "content_block_delta"]
    assert events.has_begun
    assert [event["type"] for event in events_in(events.piece({"content": "i"}))] == [
        "content_block_delta"
    ]


def test_a_piece_without_words_is_a_ping() -> None:
    events = MESSAGES.events(ANSWER)
    first, second = (events_in(events.piece({})) for _ in range(2))
    assert [event["type"] for event in first] == ["message_start"]
    assert second == [{"type": "ping"}]


def test_the_end_names_the_turn_and_its_usage() -> None:
    events = events_in(stream_of([{"content": "hi"}], turn_of({"content": "hi"})))
    (end,) = [event for event in events if event["type"] == "message_delta"]
    assert end["turn_id"] == 17
    assert end["usage"]["output_tokens"] == 2
    assert events[0]["message"]["usage"]["input_tokens"] == 0


# Errors.

ERRORS = {
    400: ("invalid_request_error", anthropic.BadRequestError),
    401: ("authentication_error", anthropic.AuthenticationError),
    403: ("permission_error", anthropic.PermissionDeniedError),
    404: ("not_found_error", anthropic.NotFoundError),
    408: ("invalid_request_error", anthropic.APIStatusError),
    413: ("request_too_large", anthropic.APIStatusError),
    429: ("rate_limit_error", anthropic.RateLimitError),
    500: ("api_error", anthropic.InternalServerError),
    502: ("api_error", anthropic.InternalServerError),
    503: ("overloaded_error", anthropic.InternalServerError),
    504: ("timeout_error", anthropic.InternalServerError),
    507: ("api_error", anthropic.InternalServerError),
    529: ("overloaded_error", anthropic.InternalServerError),
}


@pytest.mark.parametrize("status", ERRORS)
def test_an_error_is_read_by_the_sdk(status: int) -> None:
    kind, expected = ERRORS[status]
    body = {"type": "error", "error": {"type": kind, "message": "no"}}
    assert MESSAGES.error(Refusal(status, "no")) == body
    WIRE.status, WIRE.body = status, json.dumps(body).encode()
    with pytest.raises(expected) as raised:
        WIRE.sdk.messages.create(**ASKED)
    assert raised.value.body == body


@pytest.mark.parametrize("deltas", [[], [{"content": "hi"}]])
def test_a_stream_that_fails_raises_in_the_sdk(deltas: list[Delta]) -> None:
    events = MESSAGES.events(ANSWER)
    stream = b"".join(map(events.piece, deltas)) + events.failed(Refusal(503, "try\nagain"))
    with pytest.raises(anthropic.APIStatusError, match="try again"):
        WIRE.streamed(stream)


def test_the_sdk_lists_models() -> None:
    WIRE.status, WIRE.body = 200, json.dumps(models_json(["policy", "other"])).encode()
    models: Iterator[Any] = iter(WIRE.sdk.models.list())
    assert [(model.id, model.lifecycle) for model in models] == [
        ("policy", "active"), ("other", "active")
    ]  # fmt: skip
