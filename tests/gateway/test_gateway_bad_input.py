"""What clients must not send: each is answered by an OpenAI error, and none by a 500."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawrl_gym.config import GatewayConfig
from clawrl_gym.gateway.admission.admission import TokenBucket
from clawrl_gym.gateway.wire.request_fields import REFUSED
from tests.gateway.gateway_bodies import CHATS, ENDS, OPINIONS, TEXTS, mostly
from tests.support.gateway_rig import HELLO, Bench, parse_events, user
from tests.support.waiting import PATIENCE_S, until

CHAT = "/v1/chat/completions"
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


@pytest.fixture
async def hasty(tmp_path: Path) -> AsyncIterator[Bench]:
    """It waits for half a second for a body."""
    bench = Bench(tmp_path, body_timeout_s=0.5)
    await bench.start()
    yield bench
    await bench.stop()


def deep(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"messages": "hello"}, "messages: got 'hello'"),
        ({"messages": {}}, "messages"),
        ({"messages": [None]}, "messages.0: got None"),
        ({"messages": [{"content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": {"a": 1}}]}, "messages.0.content"),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
                ]
            },
            "this policy reads text only",
        ),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "tool_calls"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": 3}}]}]},
            "function.name",
        ),
        ({"tools": "all"}, "tools: got 'all'"),
        ({"tools": [3]}, "tools.0: got 3"),
        ({"tools": [{"type": "web_search"}]}, "expected {'type': 'function'"),
        ({"tools": [{"type": "function", "function": {}}]}, "expected a function.name"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "expected a function.name"),
        ({"tools": [TOOL] * 1025}, "at most 1024 items"),
        ({"tools": [{**TOOL, "more": deep(70)}]}, "at most 64 levels"),
        ({"chat_template_kwargs": deep(70)}, "at most 64 levels"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.NamedTool.function: got"),
        ({"response_format": "json"}, "response_format: got 'json'"),
        ({"structured_outputs": {"regex": 3}}, "structured_outputs.regex: got 3"),
        ({"guided_json": 3}, "guided_json"),
        ({"stream": "perhaps"}, "stream: got 'perhaps'"),
        ({"stream_options": 3}, "stream_options: got 3"),
        ({"temperature": "warm"}, "temperature: got 'warm'"),
        ({"max_tokens": 10**30}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens: got 1.5"),
        ({"seed": 2**64}, "seed"),
        ({"stop": ""}, "not empty"),
        ({"stop": [1]}, "stop"),
        ({"model": 3}, "model: got 3"),
        ({"session_id": 3}, "session_id: got 3"),
        ({"logprobs": True, "top_logprobs": 2}, "log-probs are recorded"),
    ],
)
async def test_wrong_types_are_told_by_name(
    bench: Bench, fields: dict[str, Any], says: str
) -> None:
    status, answer, _ = await bench.chat(**{"messages": HELLO, **fields})
    assert status == 400, answer
    assert answer["error"]["type"] == "invalid_request_error"
    assert says in answer["error"]["message"]
    assert bench.policy.bodies == []


async def test_fields_that_nobody_knows_are_tolerated(bench: Bench) -> None:
    fields: dict[str, Any] = {
        "reasoning_effort": "high",
        "store": True,
        "metadata": {"a": 1},
        "logit_bias": {},
    }
    messages: Any = [{**user("hi"), "name": "me", "weight": 1, "refusal": None}]
    assert (await bench.say(messages, **fields))["content"] == "ok"


async def test_a_call_without_a_name_that_the_policy_made_may_be_said_again(bench: Bench) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "", "arguments": "{}"}}
    answer: Any = {"role": "tool", "tool_call_id": "c1", "content": "There is no such tool."}
    said: Any = {"role": "assistant", "content": "", "tool_calls": [call]}
    assert (await bench.say([*HELLO, said, answer], tools=[TOOL]))["content"] == "ok"
    assert bench.policy.bodies[0]["messages"][1]["tool_calls"] == [call]


async def test_huge_tool_lists_that_are_allowed_reach_the_policy(bench: Bench) -> None:
    tools = [{"type": "function", "function": {"name": f"f{n}"}} for n in range(1000)]
    assert (await bench.chat(HELLO, tools=tools))[0] == 200
    assert len(bench.policy.bodies[0]["tools"]) == 1000


async def test_a_call_that_was_cut_off_does_not_end_its_conversation(bench: Bench) -> None:
    """Templates read arguments as JSON; what came back of a cut reply is shown as text."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": '}}
    messages: Any = [user("x"), {"role": "assistant", "tool_calls": [call]}, user("go on")]
    assert (await bench.chat(messages, tools=[TOOL]))[0] == 200
    (told,) = bench.policy.bodies[0]["messages"][1]["tool_calls"]
    assert json.loads(str(told["function"]["arguments"])) == {"_": '{"a": '}
    (turn,) = await bench.store.turns_of("s1")
    assert turn.messages[1]["tool_calls"] == [call], "it is kept as it was sent"


async def test_100_mb_are_refused_without_being_read(bench: Bench) -> None:
    """Announced, they are not waited for."""
    async with bench.connection() as (reader, writer):
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {bench.gateway.key}\r\n"
        writer.write(f"{head}Content-Length: {100 * 2**20}\r\n\r\n".encode() + b"{" * 1000)
        status = await asyncio.wait_for(reader.readline(), PATIENCE_S)
        assert b"413" in status


async def test_100_mb_that_come_unannounced_are_refused_at_the_limit(bench: Bench) -> None:
    sent = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(100):
            sent += 1
            yield b" " * 2**20

    try:
        async with bench.http.post(CHAT, data=chunks()) as answer:
            assert answer.status == 413
            assert (await answer.json())["error"]["code"] == "body_too_large"
    except aiohttp.ClientError:  # it stopped reading before we stopped writing
        pass
    assert bench.gateway.stats.answers[CHAT, 413] == 1
    assert bench.policy.bodies == []


async def test_a_small_body_that_unpacks_to_a_large_one_is_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path, max_body_mb=1)
    await bench.start()
    packed = gzip.compress(b" " * 2**24)
    headers = {"Content-Encoding": "gzip"}
    async with bench.http.post(CHAT, data=packed, headers=headers) as answer:
        assert answer.status in (400, 413)
        assert (await answer.json())["error"]["message"]
    await bench.stop()


async def test_a_body_that_is_not_packed_as_it_says_is_refused(bench: Bench) -> None:
    headers = {"Content-Encoding": "gzip"}
    async with bench.http.post(CHAT, data=b"{}", headers=headers) as answer:
        assert answer.status == 400


async def test_a_client_that_sends_its_body_slowly_is_refused(hasty: Bench) -> None:
    async with hasty.connection() as (reader, writer):
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {hasty.gateway.key}\r\n"
        writer.write(f"{head}Content-Length: 1000\r\n\r\n".encode())
        for _ in range(4):
            writer.write(b" ")
            await asyncio.sleep(0.1)
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
        assert b"408" in answer.splitlines()[0]
        assert hasty.gateway.stats.inside == 0


async def test_a_body_that_breaks_off_frees_its_place(hasty: Bench) -> None:
    async with hasty.connection() as (_, writer):
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {hasty.gateway.key}\r\n"
        writer.write(f"{head}Content-Length: 1000\r\n\r\n".encode() + b'{"messages": [')
        await until(lambda: hasty.gateway.stats.inside == 1)
        await until(lambda: not hasty.gateway.stats.inside)


async def test_a_method_that_a_path_does_not_have_is_an_openai_error(bench: Bench) -> None:
    status, answer, _ = await bench.get(CHAT)
    assert (status, answer["error"]["type"]) == (405, "invalid_request_error")


async def test_more_requests_a_second_than_allowed_are_told_when_to_come(tmp_path: Path) -> None:
    bench = Bench(tmp_path, max_requests_per_s=0.2)
    await bench.start()
    assert (await bench.chat(HELLO))[0] == 200
    status, answer, headers = await bench.chat([user("again")])
    assert (status, answer["error"]["code"]) == (429, "rate_limit_exceeded")
    assert answer["error"]["type"] == "rate_limit_error"
    assert 1 <= int(headers["Retry-After"]) <= 5
    assert (await bench.get("/v1/sessions"))[0] == 200, "only requests for replies count"
    await bench.stop()


def test_a_rate_allows_bursts_of_some_seconds() -> None:
    bucket = TokenBucket(2.0)
    assert [bucket.take() for _ in range(10)] == [0.0] * 10
    assert 0 < bucket.take() <= 0.5


def test_a_rate_fills_again_as_time_passes_and_no_further_than_a_burst() -> None:
    now_s = 0.0
    bucket = TokenBucket(2.0, lambda: now_s)
    assert [bucket.take() for _ in range(11)] == [0.0] * 10 + [0.5]
    now_s += 0.25
    assert bucket.take() == 0.25
    now_s += 0.25
    assert [bucket.take() for _ in range(2)] == [0.0, 0.5]
    now_s += 1.5
    assert [bucket.take() for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    now_s += 3600.0
    assert [bucket.take() for _ in range(11)] == [0.0] * 10 + [0.5]


async def test_more_open_sessions_than_allowed_are_refused(tmp_path: Path) -> None:
    bench = Bench(tmp_path, max_sessions=2)
    await bench.start()
    for name in ("a", "b"):
        assert (await bench.chat(HELLO, name))[0] == 200
    status, _, headers = await bench.chat(HELLO, "c")
    assert status == 429
    assert headers["Retry-After"]
    assert (await bench.chat([user("more")], "a"))[0] == 200, "those that are open go on"
    await bench.post("/v1/sessions/b/end", {})
    assert (await bench.chat(HELLO, "c"))[0] == 200
    await bench.stop()


REQUESTS = st.one_of(
    st.tuples(st.just(CHAT), mostly(CHATS)),
    st.tuples(st.just("/sessions/s1/v1/chat/completions"), CHATS),
    st.tuples(st.just("/v1/completions"), mostly(TEXTS)),
    st.tuples(st.just("/v1/feedback"), mostly(OPINIONS)),
    st.tuples(st.just("/v1/sessions/s1/end"), mostly(ENDS)),
    st.tuples(st.just("/sessions/new/end"), ENDS),
)
PRINTABLE = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=12)
HEADERS = st.dictionaries(
    st.sampled_from(
        [
            "X-Session-Id",
            "X-Turn-Type",
            "X-Session-Done",
            "X-Group-Id",
            "X-Task-Id",
            "X-Split",
            "X-Stainless-Retry-Count",
        ]
    ),
    st.sampled_from(["1", "main", "train", "yes", "9" * 30, "9" * 5000]) | PRINTABLE,
    max_size=2,
)


class Live:
    """One gateway for all examples, on a loop of its own."""

    def __init__(self, folder: Path) -> None:
        self.loop = asyncio.new_event_loop()
        self.bench = Bench(folder)
        self.loop.run_until_complete(self.bench.start())

    def close(self) -> None:
        self.loop.run_until_complete(self.bench.stop())
        self.loop.close()

    def ask(self, path: str, body: Any, headers: dict[str, str]) -> tuple[int, bytes, list[str]]:
        """Status, body, and what the client is told of as having no effect."""

        async def ask() -> tuple[int, bytes, list[str]]:
            async with self.bench.http.post(path, json=body, headers=headers) as answer:
                named = answer.headers.get("X-Without-Effect", "")
                return answer.status, await answer.read(), named.split(", ")

        return self.loop.run_until_complete(ask())


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    live = Live(tmp_path_factory.mktemp("live"))
    yield live
    live.close()


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(request=REQUESTS, headers=HEADERS)
def test_no_request_of_the_apis_form_is_answered_by_a_500(
    live: Live, request: tuple[str, Any], headers: dict[str, str]
) -> None:
    path, body = request
    status, raw, named = live.ask(path, body, headers)
    assert status in (200, 400, 404, 409, 429), raw
    if status == 200 and raw.startswith(b"data:"):
        assert parse_events(raw)[-1] == "[DONE]", raw
    elif status == 200:
        assert "error" not in json.loads(raw)
    else:
        error = json.loads(raw)["error"]
        assert error["message"]
        assert set(error) == {"message", "type", "param", "code"}
    assert live.bench.gateway.stats.failed == 0
    if status == 200 and path.endswith("completions"):
        assert "nobody_knows" in named or body.get("nobody_knows") is None
        for name in REFUSED.keys() & body.keys():
            assert body[name] in (None, *REFUSED[name].neutral), "refused or neutral"


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(raw=st.binary(max_size=200))
def test_no_bytes_are_answered_by_a_500(live: Live, raw: bytes) -> None:
    async def ask() -> int:
        async with live.bench.http.post(CHAT, data=raw) as answer:
            return answer.status

    assert live.loop.run_until_complete(ask()) == 400


def test_the_limits_of_a_configuration_are_themselves_checked() -> None:
    with pytest.raises(ValueError, match="max_body_mb"):
        GatewayConfig(max_body_mb=0)
