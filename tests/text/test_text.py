"""Text from outside becomes valid Unicode once, and what was replaced is counted by its sender."""

from __future__ import annotations

import enum
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawrl_gym.agents.text import TextAgent
from clawrl_gym.agents.tool_calls import calls_of
from clawrl_gym.core.errors import RequestTooLarge
from clawrl_gym.core.text import (
    MOST_CHARS,
    Replacements,
    is_whole,
    read_json,
    replacements,
    valid_escapes,
    valid_json,
    valid_text,
)
from clawrl_gym.core.types import StopReason, TaskRef
from clawrl_gym.gateway.wire.requests import parse_json, renderable
from clawrl_gym.rollout.episodes.episode import EpisodeSpec, run_episode
from tests.rollout.test_episode import ScriptedChat
from tests.support.gateway_rig import Bench

SPEC = EpisodeSpec("s", 1, TaskRef("t", 3, "train"), max_turns=3, timeout_s=5.0)


@pytest.mark.parametrize(
    ("sent", "kept", "replaced"),
    [
        ("", "", 0),
        ("plain", "plain", 0),
        ("\u4f60\u597d \u00e9 \U0001f600", "\u4f60\u597d \u00e9 \U0001f600", 0),
        ("a\0b\x01\x7f", "a\0b\x01\x7f", 0),
        ("\ufeffmark", "\ufeffmark", 0),
        ("\ufffd\ufffe\uffff", "\ufffd\ufffe\uffff", 0),
        ("\u200b\u2028\u202e", "\u200b\u2028\u202e", 0),
        ("\ud83d", "\ufffd", 1),
        ("\ude00!", "\ufffd!", 1),
        ("log \ud83d", "log \ufffd", 1),
        ("\ude00 log", "\ufffd log", 1),
        ("\ud83d\ude00", "\U0001f600", 0),
        ("\ude00\ud83d", "\ufffd\ufffd", 2),
        ("\ud83d\ud83d\ude00", "\ufffd\U0001f600", 1),
        ("\ud83d\ude00\ude00", "\U0001f600\ufffd", 1),
        ("caf\udce9.txt", "caf\ufffd.txt", 1),
        ("\udc80\udcff!", "\ufffd\ufffd!", 2),
        ("\ufffd\ud83d\ufffd", "\ufffd\ufffd\ufffd", 1),
        ("\ud800" * 50, "\ufffd" * 50, 50),
        ("x\udfffy\ud800z", "x\ufffdy\ufffdz", 2),
        ("\ud83dX\ude00", "\ufffdX\ufffd", 2),
    ],
)
def test_half_a_pair_is_replaced_and_all_else_stays(sent: str, kept: str, replaced: int) -> None:
    counts = Replacements()
    assert valid_text(sent, "client", counts) == kept
    assert counts.counts()["client"] == counts.total == replaced


@given(st.text(st.characters(codec=None), max_size=30))
def test_every_text_becomes_whole_and_whole_text_stays(text: str) -> None:
    valid = valid_text(text, "client", Replacements())
    assert is_whole(valid)
    assert valid_text(valid, "client", Replacements()) == valid
    if is_whole(text):
        assert valid is text


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'{"a": "\\ud83d"}', {"a": "\ufffd"}),
        (b'{"a": "\\uD83D"}', {"a": "\ufffd"}),
        (b'{"a": "\\ud83d\\ude00"}', {"a": "\U0001f600"}),
        (b'{"a": "\\\\ud83d"}', {"a": "\\ud83d"}),
        (b'{"a": "\\\\\\ud83d"}', {"a": "\\\ufffd"}),
        (b'{"\\udc00": [{"b": "x\\udc01"}]}', {"\ufffd": [{"b": "x\ufffd"}]}),
        (b'{"a": "\\u0000"}', {"a": "\0"}),
        (b'{"a": "\\ufeff\\uffff"}', {"a": "\ufeff\uffff"}),
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        (b'{"a": "\xe9"}', {"a": "\ufffd"}),
        (b'{"a": "\xed\xa0\xbd"}', {"a": "\ufffd\ufffd\ufffd"}),
        (b'{"a": "\xf0\x9f\x98"}', {"a": "\ufffd"}),
        (b'{"a": "\xc0\xaf"}', {"a": "\ufffd\ufffd"}),
        ('{"a": "\u00e9"}'.encode("utf-16"), {"a": "\u00e9"}),
        ('{"a": "\u00e9"}'.encode("utf-16-le"), {"a": "\u00e9"}),
        ('{"a": "\u00e9"}'.encode("utf-16-be"), {"a": "\u00e9"}),
        ('{"a": "\u00e9"}'.encode("utf-32"), {"a": "\u00e9"}),
        (b'{"a": 0.1, "b": 1e300, "c": "\\udc00"}', {"a": 0.1, "b": 1e300, "c": "\ufffd"}),
        (b'{"a": 123456789012345678901234567890, "c": "\\udc00"}',
         {"a": 123456789012345678901234567890, "c": "\ufffd"}),
        (b'"\\ud83d"', "\ufffd"),
        (b' \n["\\ude00"]\n', ["\ufffd"]),
    ],
)  # fmt: skip
def test_the_json_of_a_body_is_read_with_valid_texts(raw: bytes, value: object) -> None:
    assert parse_json(raw) == value
    assert read_json(raw, "judge") == value


@pytest.mark.parametrize("raw", [b"", b"\xff\xfe", b"{", b"\x00", b'{"a": NaN}', b'{"a": 1e999}'])
def test_what_is_no_json_is_still_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"JSON|Expecting|too large|decode|char"):
        read_json(raw, "client")


def test_whole_json_is_handed_on_as_it_is() -> None:
    value = {"a": ["\U0001f600", 1.5, None, True]}
    assert valid_json(value, "client") is value


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ('{"a": "\\ud83d"}', {"a": "\ufffd"}),
        ('{"a": "\\ud83d\\ude00"}', {"a": "\U0001f600"}),
        ('{"a": "\\\\ud83d"}', {"a": "\\ud83d"}),
        ('["x", "\\udc00"]', ["x", "\ufffd"]),
    ],
)
def test_what_arguments_escape_is_valid_too(text: str, valid: object) -> None:
    """A template and a tool read what stands in the JSON, not the JSON."""
    assert json.loads(valid_escapes(text, "client")) == valid
    call: Any = {"id": "1", "type": "function", "function": {"name": "f", "arguments": text}}
    (read,) = calls_of({"role": "assistant", "tool_calls": [call]})
    assert json.loads(read.arguments) == valid
    if isinstance(valid, dict):
        (told,) = renderable({"role": "assistant", "tool_calls": [call]})["tool_calls"]
        assert json.loads(str(told["function"]["arguments"])) == valid


@pytest.mark.parametrize("text", ["no JSON \\ud83d", '{"a": "\\ud83d', "", "{}"])
def test_what_is_no_json_keeps_its_escapes(text: str) -> None:
    assert valid_escapes(text, "client") is text


@pytest.mark.parametrize("place", ["user", "tool", "assistant", "tools", "stop", "metadata"])
async def test_a_conversation_with_half_a_pair_goes_on(tmp_path: Path, place: str) -> None:
    half = "x \ud83d"
    said: Any = {"role": "assistant", "content": half if place == "assistant" else "ok"}
    messages: Any = [{"role": "user", "content": half if place == "user" else "go"}, said]
    messages += [{"role": "user", "content": "more"}]
    if place == "tool":
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        messages[1:] = [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": half},
        ]
    of_places: dict[str, dict[str, Any]] = {
        "tools": {"tools": [{"type": "function", "function": {"name": "f", "description": half}}]},
        "stop": {"stop": [half]},
        "metadata": {"metadata": {half: half}},
    }
    fields = of_places.get(place, {})
    bench = Bench(tmp_path)
    await bench.start()
    before = replacements.counts()["client"]
    status, answer, _ = await bench.chat(messages, **fields)
    assert status == 200, answer
    assert replacements.counts()["client"] > before
    messages += [answer["choices"][0]["message"], {"role": "user", "content": "and now?"}]
    assert (await bench.chat(messages, **fields))[0] == 200, "the client sends it for ever"
    first, second = await bench.store.turns_of("s1")
    assert is_whole(json.dumps([first.messages, second.messages], ensure_ascii=False))
    assert first.messages == second.messages[: len(first.messages)]
    async with bench.http.get("/metrics") as metrics:
        assert 'clawrl_replaced_characters_total{sender="client"}' in await metrics.text()
    await bench.stop()


class Saying:
    """An environment that says what it is told to, wherever one can."""

    def __init__(self, **said: Any) -> None:
        self.said = {"first": "go", "next": "ok", "info": {}, "last": {}, "report": None, **said}

    @property
    def report(self) -> Any:
        return self.said["report"]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.said["first"], self.said["info"]

    def step(self, action: str) -> Any:
        if isinstance(self.said["next"], Exception):
            raise self.said["next"]
        return self.said["next"], 1.0, True, False, self.said["last"]

    def finish(self) -> float:
        return 0.0


async def in_place(function: Any, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


HALF = "caf\udce9.txt"


@pytest.mark.parametrize(
    "said",
    [
        {"first": HALF},
        {"next": HALF},
        {"info": {"system": HALF}},
        {"info": {"family": HALF}},
        {"info": {"tools": [{"type": "function", "function": {"name": "f", "description": HALF}}]}},
        {"last": {"report": HALF}},
        {"last": {"scores": {HALF: 1.0}}},
    ],
)
async def test_an_environments_half_characters_are_replaced_and_counted(said: Any) -> None:
    chat = ScriptedChat("a")
    episode = await run_episode(SPEC, Saying(**said), TextAgent(), chat, in_place)
    assert (episode.stop_reason, episode.reward) == (StopReason.TERMINATED, 1.0)
    assert episode.replaced > 0
    told = json.dumps([chat.requests, chat.tools, chat.ended and chat.ended[1]], ensure_ascii=False)
    assert is_whole(told)
    assert is_whole(f"{episode.family}{episode.scores}")


class Word(enum.StrEnum):
    GO = "go"


@pytest.mark.parametrize("said", [Word.GO, np.str_("go")], ids=repr)
@pytest.mark.parametrize("place", ["first", "next"])
async def test_text_of_a_class_of_its_own_is_plain_text(said: str, place: str) -> None:
    class Going(Saying):
        def step(self, action: str) -> Any:
            return self.said["next"], 1.0, False, False, {}

    chat = ScriptedChat("a", "b", "c")
    await run_episode(SPEC, Going(**{place: said}), TextAgent(), chat, in_place)
    contents = [message["content"] for message in chat.requests[-1] if message["role"] == "user"]
    assert {type(content) for content in contents} == {str}
    assert "go" in contents


async def test_the_words_of_an_environments_failure_can_be_written() -> None:
    error = FileNotFoundError(2, "no such file", HALF)
    episode = await run_episode(SPEC, Saying(next=error), TextAgent(), ScriptedChat("a"), in_place)
    assert episode.stop_reason is StopReason.ENV_ERROR
    assert episode.error is not None
    assert is_whole(episode.error)


LONG = "x" * (MOST_CHARS + 1)


@pytest.mark.parametrize(
    "said",
    [
        {"first": LONG},
        {"next": LONG},
        {"info": {"system": LONG}},
        {"info": {"tools": [{"type": "function", "function": {"name": "f", "description": LONG}}]}},
        {"last": {"report": LONG}},
    ],
)
async def test_too_much_at_once_is_the_environments_error(said: Any) -> None:
    episode = await run_episode(SPEC, Saying(**said), TextAgent(), ScriptedChat("a"), in_place)
    assert episode.stop_reason is StopReason.ENV_ERROR
    assert "expected at most 4,194,304: cut it in the environment" in str(episode.error)
    assert episode.reward is None


async def test_a_request_that_grew_too_large_is_the_fault_of_who_said_more() -> None:
    class Going(Saying):
        def step(self, action: str) -> Any:
            return self.said["next"], 1.0, False, False, {}

    refused = RequestTooLarge("the body is larger than 16 MB")
    for said, reply, stop in (
        ("x" * 1000, "a", StopReason.ENV_ERROR),
        ("x", "a" * 1000, StopReason.AGENT_FAULT),
    ):
        chat = ScriptedChat(reply, refused)
        episode = await run_episode(SPEC, Going(next=said), TextAgent(), chat, in_place)
        assert episode.stop_reason is stop


async def test_too_large_a_first_request_is_the_environments_error() -> None:
    chat = ScriptedChat(RequestTooLarge("the body is larger than 1 MB"))
    episode = await run_episode(SPEC, Saying(first="x" * 999), TextAgent(), chat, in_place)
    assert episode.stop_reason is StopReason.ENV_ERROR


async def test_tools_that_are_no_json_are_the_environments_error() -> None:
    env = Saying(info={"tools": [{1, 2}]})
    episode = await run_episode(SPEC, env, TextAgent(), ScriptedChat("a"), in_place)
    assert episode.stop_reason is StopReason.ENV_ERROR
