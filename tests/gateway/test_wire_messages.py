"""Histories of all kinds of programs are read: what has text keeps it, and nothing odd ends one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.core.types import Message
from clawrl_gym.gateway.wire.requests import ChatRequest, parse_as
from tests.support.fakes import FakePolicy
from tests.support.gateway_rig import HELLO, Bench, user

PICTURE = "data:image/jpeg;base64,AAAA"


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    await bench.start()
    yield bench
    await bench.stop()


def read(message: Any) -> tuple[Any, list[str]]:
    request = parse_as(ChatRequest, {"messages": [*HELLO, message, *HELLO]})
    return request.plain_messages()[1], request.unread


def text(words: Any) -> dict[str, Any]:
    return {"type": "text", "text": words}


@pytest.mark.parametrize(
    ("parts", "content", "unread"),
    [
        ([text("a"), text("b")], "a\nb", []),
        ([text(None)], "", []),
        ([text(None), text("b")], "\nb", []),
        (["plain", text("b")], "plain\nb", []),
        ([{"text": "no type"}], "no type", []),
        ([{"type": "input_text", "text": "a"}], "a", []),
        ([{"type": "output_text", "text": "a", "annotations": []}], "a", []),
        ([{"type": "refusal", "refusal": "I cannot"}], "I cannot", []),
        ([{"type": "text", "text": "a", "image_url": None}], "a", []),
        ([None, text("a"), 3], "a", ["content.text"]),
        ([text(5)], "", ["content.text"]),
        ([text({"value": "v", "annotations": []})], "v", []),
        (text("alone"), "alone", []),
        ({"type": "anything", "text": "alone"}, "alone", ["content.anything"]),
        ([{"type": "refusal", "refusal": None}], "", ["content.refusal"]),
        ([{"type": "thinking", "data": "AAAA"}, text("a")], "a", ["content.thinking"]),
        ([{"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}, text("a")],
         "a", ["content.input_audio"]),
        ([{"type": "file", "file": {"file_data": "AA", "filename": "x.pdf"}}, text("a")],
         "a", ["content.file"]),
        ([{"type": "document", "source": {"type": "text", "data": "inside"}}], "inside",
         ["content.document"]),
        ([{"type": "document", "source": {"type": "base64", "data": "AAAA"}}, text("a")], "a",
         ["content.document"]),
        ([{"type": "tool_reference", "tool_name": "f"}, text("a")], "a",
         ["content.tool_reference"]),
        ([{"type": "tool_result", "content": [text("out"), text("put")]}], "out\nput",
         ["content.tool_result"]),
        ([{"type": "tool_result", "content": "output"}], "output", ["content.tool_result"]),
        ([{"type": "search_result", "content": [text("found")]}], "found",
         ["content.search_result"]),
        ([{"type": "redacted_thinking", "data": "AAAA"}, text("a")], "a",
         ["content.redacted_thinking"]),
        ([{"type": "video_url", "video_url": {"url": "x"}}, text("a")], "a",
         ["content.video_url"]),
        ([{"type": "anything", "text": "its text"}], "its text", ["content.anything"]),
        ([{"type": "anything", "anything": {"text": "deep"}}], "deep", ["content.anything"]),
        ([{"type": None, "text": "a"}], "a", ["content.None"]),
        ([{"type": ["list"], "text": "a"}], "a", ["content.['list']"]),
        ([{}], "", []),
        ([], "", []),
    ],
)  # fmt: skip
def test_parts_keep_their_text(parts: Any, content: str, unread: list[str]) -> None:
    got, names = read({"role": "user", "content": parts})
    assert (got["content"], names) == (content, [f"messages.{name}" for name in unread])


@pytest.mark.parametrize(
    ("fields", "thoughts", "content"),
    [
        ({"reasoning_content": "because", "content": "yes"}, "because", "yes"),
        ({"reasoning": "because", "content": "yes"}, "because", "yes"),
        ({"reasoning": "other", "reasoning_content": "because", "content": "a"}, "because", "a"),
        ({"reasoning_content": "", "reasoning": "because", "content": "a"}, "because", "a"),
        ({"reasoning_content": None, "reasoning": "because", "content": "a"}, "because", "a"),
        ({"content": [{"type": "thinking", "thinking": "hm"}, text("yes")]}, "hm", "yes"),
        ({"content": [{"type": "reasoning", "text": "hm"}, text("yes")]}, "hm", "yes"),
        ({"content": [{"type": "reasoning", "summary": [text("hm")]}, text("a")]}, "hm", "a"),
        ({"content": [{"type": "thinking", "thinking": "a", "signature": "x"},
                      {"type": "thinking", "thinking": "b"}, text("yes")]}, "a\nb", "yes"),
        ({"content": [{"type": "thinking", "thinking": "hm"}], "reasoning": "x"}, "x", ""),
        ({"reasoning": {"content": "because"}, "content": "a"}, "because", "a"),
        ({"reasoning": [text("a"), text("b")], "content": "a"}, "a\nb", "a"),
        ({"reasoning": 3, "content": "a"}, None, "a"),
        ({"reasoning": "", "content": "a"}, None, "a"),
    ],
)  # fmt: skip
def test_thoughts_are_read_under_every_name(
    fields: Any, thoughts: str | None, content: str
) -> None:
    got, names = read({"role": "assistant", **fields})
    assert (got.get("reasoning_content"), got["content"], names) == (thoughts, content, [])


CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        ({"role": "assistant", "content": "ok", "refusal": None, "annotations": [], "audio": None,
          "tool_calls": None, "function_call": None, "name": None},
         {"role": "assistant", "content": "ok"}),
        ({"role": "assistant", "content": None, "refusal": "I cannot"},
         {"role": "assistant", "content": "I cannot"}),
        ({"role": "assistant", "content": "ok", "tool_calls": []},
         {"role": "assistant", "content": "ok"}),
        ({"role": "assistant", "content": None, "tool_calls": [CALL]},
         {"role": "assistant", "content": None, "tool_calls": [CALL]}),
        ({"role": "assistant", "content": "", "tool_calls": [{**CALL, "type": None}]},
         {"role": "assistant", "content": "", "tool_calls": [CALL]}),
        ({"role": "assistant", "tool_calls": [{**CALL, "function": {"name": None,
          "arguments": None}}]},
         {"role": "assistant", "content": None, "tool_calls": [{**CALL, "function": {"name": "",
          "arguments": None}}]}),
        ({"role": "assistant", "tool_calls": [{"id": "c1", "type": "custom", "custom":
          {"name": "f", "input": "x"}}]},
         {"role": "assistant", "content": None, "tool_calls": [{**CALL, "function": {"name": "f",
          "arguments": {"input": "x"}}}]}),
        ({"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "f",
          "arguments": [1]}}]},
         {"role": "assistant", "content": None, "tool_calls": [{**CALL, "function": {"name": "f",
          "arguments": "[1]"}}]}),
        ({"role": "assistant", "tool_calls": [{**CALL, "id": 7}]},
         {"role": "assistant", "content": None, "tool_calls": [{**CALL, "id": "7"}]}),
        ({"role": "assistant", "content": None, "audio": {"id": "a", "transcript": "said"}},
         {"role": "assistant", "content": "said"}),
        ({"role": "assistant", "content": "", "audio": {"id": "a"}},
         {"role": "assistant", "content": ""}),
        ({"role": "assistant", "content": "x", "refusal": None, "audio": {"transcript": "y"}},
         {"role": "assistant", "content": "x"}),
        ({"role": "tool", "tool_call_id": 7, "content": "out"},
         {"role": "tool", "tool_call_id": "7", "content": "out"}),
        ({"role": "tool", "tool_call_id": None, "content": "out"},
         {"role": "tool", "content": "out"}),
        ({"role": " User ", "content": "hi"}, {"role": "user", "content": "hi"}),
        ({"role": "developer", "content": "hi"}, {"role": "system", "content": "hi"}),
        ({"role": "user"}, {"role": "user", "content": None}),
    ],
)  # fmt: skip
def test_what_sdks_write_is_read(message: Any, kept: Any) -> None:
    assert read(message)[0] == kept


def test_calls_of_the_api_before_tools_are_calls() -> None:
    called = {"role": "assistant", "content": None,
              "function_call": {"name": "f", "arguments": '{"a": 1}'}}  # fmt: skip
    answered = {"role": "function", "name": "f", "content": "done"}
    request = parse_as(ChatRequest, {"messages": [*HELLO, called, answered, called, answered]})
    _, call, answer, again, last = request.plain_messages()
    assert call["tool_calls"] == [
        {"id": "call_1", "type": "function", "function": called["function_call"]}
    ]
    assert answer == {"role": "tool", "content": "done", "tool_call_id": "call_1"}
    assert (again["tool_calls"][0]["id"], last["tool_call_id"]) == ("call_3", "call_3")
    assert request.unread == []


def test_what_a_message_has_beside_its_text_is_named() -> None:
    _, names = read({"role": "user", "content": "hi", "name": "anna", "weight": 1, "audio": None})
    assert names == ["messages.name", "messages.weight"]


@pytest.mark.parametrize(
    ("message", "where"),
    [
        ({"role": "robot", "content": "x"}, "messages.1.role"),
        ({"role": None, "content": "x"}, "messages.1.role"),
        ({"content": "x"}, "messages.1.role"),
        ({"role": "user", "content": 3}, "messages.1.content"),
        ({"role": "user", "content": {"a": 1}}, "messages.1.content"),
        ({"role": "assistant", "tool_calls": [{}]}, "tool_calls"),
        ({"role": "assistant", "tool_calls": "all"}, "tool_calls"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "image_url"),
    ],
)
async def test_what_is_no_message_is_refused_by_name(
    bench: Bench, message: Any, where: str
) -> None:
    status, answer, _ = await bench.chat([*HELLO, message])
    assert status == 400
    assert where in answer["error"]["message"]


async def test_an_odd_part_is_left_out_for_good_and_named(bench: Bench) -> None:
    sound = {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}
    messages: Any = [{"role": "user", "content": [text("listen"), sound]}]
    _, answer, headers = await bench.chat(messages)
    assert headers["X-Without-Effect"] == "messages.content.input_audio"
    messages += [answer["choices"][0]["message"], user("and?")]
    assert (await bench.chat(messages))[0] == 200
    first, second = await bench.store.turns_of("s1")
    assert first.messages == [user("listen")] == second.messages[:1]
    assert (await bench.store.next_states_of("s1"))[first.id or 0] == [user("and?")]


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_thinking_conversation_goes_on_whichever_name_its_client_knows(
    bench: Bench, name: str, stream: bool
) -> None:
    said: Message = {"role": "assistant", "content": "42", "reasoning_content": "hm"}
    bench.policy = FakePolicy(said)
    await bench.restart()
    if stream:
        events = await bench.events(HELLO)
        deltas = [e["choices"][0]["delta"] for e in events if e != "[DONE]" and e["choices"]]
        assert "".join(delta.get(name, "") for delta in deltas) == "hm"
    else:
        assert dict(await bench.say(HELLO))[name] == "hm"
    returned: Any = {"role": "assistant", "content": "42", name: "hm"}
    await bench.say([*HELLO, returned, user("more")])
    first, second = await bench.store.turns_of("s1")
    assert second.messages[1] == first.reply
    assert (await bench.store.next_states_of("s1"))[first.id or 0] == [user("more")]
