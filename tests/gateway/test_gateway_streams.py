"""Streamed replies: real streaming, keep-alives, clients that leave or stall, policies that die."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from clawrl_gym.core.errors import PolicyUnavailable, RequestError
from clawrl_gym.core.types import INTERRUPTED, Message, ToolCall
from clawrl_gym.inference.weights.adapters import Adapters
from tests.inference.test_policy_adapters import adapter_folder
from tests.support.fakes import FakePolicy, sampled
from tests.support.gateway_rig import HELLO, Bench, parse_events, text_of, user
from tests.support.narrow import plain_text
from tests.support.waiting import until

TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {}}}]


async def test_a_stream_has_the_openai_form(bench: Bench) -> None:
    bench.policy.is_one_by_one = True
    events = await bench.events(HELLO)
    assert events[-1] == "[DONE]"
    first, *middle, last = events[:-1]
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [event["choices"][0]["delta"] for event in middle] == [
        {"content": "o"},
        {"content": "k"},
    ]
    assert last["choices"][0] == {
        "index": 0,
        "delta": {},
        "logprobs": None,
        "finish_reason": "stop",
    }
    assert {event["id"] for event in events[:-1]} == {first["id"]}
    assert {event["object"] for event in events[:-1]} == {"chat.completion.chunk"}
    assert all("usage" not in event for event in events[:-1])
    assert (first["session_id"], last["turn_id"]) == ("s1", 1)


async def test_the_headers_of_a_stream_keep_proxies_from_holding_it_back(bench: Bench) -> None:
    bench.gateway.version = 3
    async with bench.stream(HELLO) as answer:
        headers = answer.headers
        await answer.read()
    assert headers["Content-Type"].startswith("text/event-stream")
    assert headers["Cache-Control"] == "no-cache"
    assert headers["X-Session-Id"] == "s1"
    assert headers["X-Weight-Version"] == "3"


async def test_usage_comes_in_a_chunk_of_its_own_when_it_is_asked_for(bench: Bench) -> None:
    """The reference's defect 1.8: `stream_options` was dropped and no usage was ever sent."""
    events = await bench.events(HELLO, stream_options={"include_usage": True})
    assert [event["usage"] for event in events[:-2]] == [None] * (len(events) - 2)
    usage = events[-2]
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 3
    assert usage["usage"]["total_tokens"] == usage["usage"]["prompt_tokens"] + 3


async def test_the_first_token_arrives_before_the_last_is_sampled(bench: Bench) -> None:
    """The reference's defect 1.8: a "stream" was the finished reply in two chunks."""
    bench.policy.piece_s = 0.05
    async with bench.stream(HELLO) as answer:
        first = b""
        while b'"o"' not in first:
            first += await answer.content.readany()
        assert b'finish_reason":"stop' not in first
        assert await bench.store.turns_of("s1") == []
        rest = first + await answer.read()
    assert text_of(parse_events(rest)) == "ok"


async def test_reasoning_is_streamed_and_recorded(bench: Bench) -> None:
    """The reference's defect 1.8: reasoning was dropped from streams."""

    said: Message = {"role": "assistant", "content": "42", "reasoning_content": "hm"}
    bench.policy = FakePolicy(said)
    await bench.restart()
    events = await bench.events(HELLO)
    deltas = [event["choices"][0]["delta"] for event in events[:-1]]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "hm"
    assert all(delta.get("reasoning") == delta.get("reasoning_content") for delta in deltas)
    assert text_of(events) == "42"
    (turn,) = await bench.store.turns_of("s1")
    assert turn.reply == said


async def test_tool_calls_are_streamed_bit_by_bit(bench: Bench) -> None:
    arguments = '{"path": "notes.txt"}'
    call: ToolCall = {"type": "function", "function": {"name": "read", "arguments": arguments}}
    bench.policy = FakePolicy({"role": "assistant", "content": "so: ", "tool_calls": [call]})
    await bench.restart()
    events = await bench.events(HELLO, tools=TOOLS)
    deltas = [event["choices"][0]["delta"] for event in events[:-1]]
    calls = [part for delta in deltas for part in delta.get("tool_calls", [])]
    assert {part["index"] for part in calls} == {0}
    assert [part["function"]["name"] for part in calls if "name" in part["function"]] == ["read"]
    assert "".join(part["function"].get("arguments") or "" for part in calls) == arguments
    assert text_of(events) == "so: "
    assert events[-2]["choices"][0]["finish_reason"] == "tool_calls"
    (turn,) = await bench.store.turns_of("s1")
    assert turn.reply["tool_calls"][0]["function"] == {"name": "read", "arguments": arguments}
    assert turn.reply["tool_calls"][0]["id"] == calls[0]["id"]


async def test_a_streamed_turn_holds_exactly_what_the_policy_reported(bench: Bench) -> None:
    bench.gateway.version = 2
    await bench.events(HELLO)
    (turn,) = await bench.store.turns_of("s1")
    assert turn.prompt_ids_T == bench.policy.prompts[0]
    assert turn.sampled_ids_T == sampled("ok")
    assert turn.logprobs_T == [-0.5] * 3
    assert turn.versions_T == [2] * 3
    assert turn.finish_reason == "stop"
    assert (turn.messages, turn.reply) == (HELLO, {"role": "assistant", "content": "ok"})


async def test_the_end_goes_out_after_the_turn_is_on_disk(bench: Bench) -> None:
    """A turn is acknowledged to nobody before it is stored."""
    add_turn = bench.store.add_turn
    may_store = asyncio.Event()

    async def slow(*args: Any, **kwargs: Any) -> int:
        await may_store.wait()
        return await add_turn(*args, **kwargs)

    bench.store.add_turn = slow  # type: ignore[method-assign]
    bench.policy.is_one_by_one = True
    async with bench.stream(HELLO) as answer:
        told = b""
        while b'"k"' not in told:
            told += await answer.content.readany()
        await asyncio.sleep(0.25)  # comments come, the end does not
        told += answer.content.read_nowait()
        assert b'"finish_reason":"stop"' not in told
        may_store.set()
        rest = await answer.read()
    assert b'"finish_reason":"stop"' in rest


async def test_streamed_turns_extend_each_other(bench: Bench) -> None:
    """Also where the reply tokenises otherwise than it was sampled."""
    bench.policy = FakePolicy("cab")
    await bench.restart()
    messages = list(HELLO)
    for _ in range(3):
        said: Message = {"role": "assistant", "content": text_of(await bench.events(messages))}
        messages += [said, user("again")]
    one, two, three = await bench.store.turns_of("s1")
    for before, after in ((one, two), (two, three)):
        used_T = before.prompt_ids_T + before.sampled_ids_T
        assert after.prompt_ids_T[: len(used_T)] == used_T
    assert bench.gateway.stats.fits == {"first": 1, "spliced": 2}


async def test_a_retry_gets_the_stored_reply_as_a_stream(bench: Bench) -> None:
    replies = iter(["one", "two"])
    bench.policy = FakePolicy(lambda _: next(replies))
    await bench.restart()
    assert text_of(await bench.events(HELLO)) == "one"
    events = await bench.events(HELLO)
    assert text_of(events) == "one"
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    assert (await bench.say(HELLO))["content"] == "one", "plain, too"
    assert len(await bench.store.turns_of("s1")) == 1
    assert bench.gateway.stats.replayed == 2


async def test_a_client_that_says_it_retries_gets_the_stored_reply(bench: Bench) -> None:
    replies = iter(["one", "two", "three"])
    bench.policy = FakePolicy(lambda _: next(replies))
    await bench.restart()
    path, body = "/sessions/s1/v1/chat/completions", {"messages": HELLO}
    said = []
    for count in ("0", "1", "0"):
        _, answer, _ = await bench.post(path, body, X_Stainless_Retry_Count=count)
        said.append(answer["choices"][0]["message"]["content"])
    assert said == ["one", "one", "two"], "count 0 after a delivered reply wants another one"


async def test_equal_streams_at_once_make_one_turn(bench: Bench) -> None:
    bench.policy.delay_s = 0.1
    streams = await asyncio.gather(*(bench.events(HELLO) for _ in range(4)))
    assert [text_of(events) for events in streams] == ["ok"] * 4
    assert len(await bench.store.turns_of("s1")) == 1


async def test_an_early_failure_is_a_proper_status(bench: Bench) -> None:
    bench.policy.max_prompt = 5
    body = {"messages": HELLO, "stream": True}
    status, answer, _ = await bench.post("/v1/chat/completions", body)
    assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
    bench.policy.max_prompt = None
    bench.policy.refusal = RequestError("the template knows no such role")
    status, answer, _ = await bench.post("/v1/chat/completions", body)
    assert (status, answer["error"]["message"]) == (400, "the template knows no such role")


async def test_a_stream_that_waits_is_kept_alive_by_comments(bench: Bench) -> None:
    """A swap, a restart: clients and proxies see that the connection lives."""
    with bench.gateway.hold_requests():
        asking = asyncio.create_task(read_stream(bench))
        await asyncio.sleep(0.6)
        assert bench.policy.prompts == []
    raw = await asking
    assert raw.startswith(b": waiting\n\n")
    assert raw.count(b": waiting\n\n") >= 3
    assert text_of(parse_events(raw)) == "ok"


async def read_stream(bench: Bench) -> bytes:
    async with bench.stream(HELLO) as answer:
        return await answer.read()


async def test_a_stream_that_is_answered_at_once_has_no_comments(bench: Bench) -> None:
    assert b": waiting" not in await read_stream(bench)


async def test_a_late_failure_is_an_error_event(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.timeout_s = 0.5
    await bench.start()
    bench.policy.down = 1000
    events = await bench.events(HELLO)
    assert len(events) == 1, "an error, and nothing that looks like an end"
    assert events[0]["error"]["code"] == "policy_unavailable"
    assert events[0]["error"]["type"] == "server_error"
    assert await bench.store.turns_of("s1") == []
    await bench.stop()


async def test_requests_wait_while_the_policy_is_down(bench: Bench) -> None:
    bench.policy.down = 2
    assert text_of(await bench.events(HELLO)) == "ok"
    assert bench.gateway.stats.waited == 2


async def test_another_policy_takes_over_before_the_first_piece(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.policy.down = 1000
    bench.others = [FakePolicy("from the other")]
    await bench.start()
    assert text_of(await bench.events(HELLO)) == "from the other"
    assert (await bench.say([user("x")], "s2"))["content"] == "from the other"
    assert bench.gateway.stats.failed == 0
    await bench.stop()


async def test_another_policy_goes_on_after_the_last_piece(tmp_path: Path) -> None:
    """No token is lost or said twice, and each has its version."""
    bench = Bench(tmp_path)
    bench.policy = FakePolicy("hello there")
    bench.policy.dies_after = 5
    bench.others = [FakePolicy("hello there")]
    await bench.start()
    bench.gateway.version = 4
    assert text_of(await bench.events(HELLO)) == "hello there"
    (turn,) = await bench.store.turns_of("s1")
    assert turn.sampled_ids_T == sampled("hello there")
    assert turn.versions_T == [4] * len(turn.sampled_ids_T)
    assert bench.gateway.stats.interrupted == 0
    await bench.stop()


async def test_a_reply_keeps_its_adapter_while_newer_ones_come_and_a_policy_dies(
    tmp_path: Path,
) -> None:
    adapters = Adapters(tmp_path / "adapters")
    folder = adapter_folder(tmp_path / "next")
    adapters.promote(await adapters.stage("", 1, folder))
    bench = Bench(tmp_path)
    bench.versions = adapters
    bench.policy = FakePolicy("hello there")
    bench.policy.dies_after = 5
    bench.policy.piece_s = 0.02
    await bench.start()
    asking = asyncio.create_task(bench.events(HELLO))
    await asyncio.sleep(0.05)
    adapters.promote(await adapters.stage("", 2, folder))
    assert text_of(await asking) == "hello there"
    await bench.say(HELLO, "s2")
    first, second = (*await bench.store.turns_of("s1"), *await bench.store.turns_of("s2"))
    assert set(first.versions_T) == {1}
    assert set(second.versions_T) == {2}
    assert [adapter.name for adapter in adapters.alive] == ["policy@2"]
    await bench.stop()


async def test_a_policy_that_dies_after_the_last_piece_has_said_it_all(tmp_path: Path) -> None:
    class Late(FakePolicy):
        async def stream(self, *args: Any, **kwargs: Any) -> Any:
            async for piece in super().stream(*args, **kwargs):
                yield piece
            raise PolicyUnavailable("it died")

    bench = Bench(tmp_path)
    bench.policy = Late("whole")
    await bench.start()
    assert text_of(await bench.events(HELLO)) == "whole"
    (turn,) = await bench.store.turns_of("s1")
    assert (turn.finish_reason, turn.sampled_ids_T) == ("stop", sampled("whole"))
    await bench.stop()


async def test_a_stream_without_versions_is_not_gone_on_with(tmp_path: Path) -> None:
    class Untold(FakePolicy):
        async def stream(self, *args: Any, **kwargs: Any) -> Any:
            async for piece in super().stream(*args, **kwargs):
                yield type(piece)(piece.ids_T, piece.logprobs_T, piece.delta, piece.generation)

    bench = Bench(tmp_path)
    bench.policy = Untold("hello there")
    bench.policy.dies_after = 5
    await bench.start()
    events = await bench.events(HELLO)
    assert text_of(events[:-1]) == "hello"
    assert events[-1]["error"]["code"] == "policy_unavailable"
    (turn,) = await bench.store.turns_of("s1")
    assert (turn.finish_reason, turn.versions_T) == (INTERRUPTED, [-1] * 5)
    await bench.stop()


async def test_a_client_that_leaves_cancels_the_generation_and_what_came_is_kept(
    bench: Bench,
) -> None:
    bench.policy = FakePolicy("a long reply")
    bench.policy.piece_s = 0.05
    await bench.restart()
    async with bench.stream(HELLO) as answer:
        told = b""
        while b'"l"' not in told:
            told += await answer.content.readany()
    async with asyncio.timeout(60):
        await bench.policy.left.wait()
    await until(lambda: bench.gateway.stats.interrupted == 1)
    (turn,) = await bench.store.turns_of("s1")
    assert turn.finish_reason == INTERRUPTED
    assert "a long reply".startswith(plain_text(turn.reply) or "-")
    assert len(turn.sampled_ids_T) == len(turn.versions_T) == len(turn.logprobs_T) < 13
    assert turn.prompt_ids_T == bench.policy.prompts[0]
    assert bench.gateway.stats.inside == 0


async def test_an_interrupted_reply_is_never_replayed(bench: Bench) -> None:
    bench.policy = FakePolicy("a long reply")
    bench.policy.piece_s = 0.05
    await bench.restart()
    async with bench.stream(HELLO) as answer:
        await answer.content.readany()
    await until(lambda: bench.gateway.stats.interrupted == 1)
    bench.policy.piece_s = 0.0
    assert (await bench.say(HELLO))["content"] == "a long reply"
    reasons = [turn.finish_reason for turn in await bench.store.turns_of("s1")]
    assert reasons == [INTERRUPTED, "stop"]


async def test_a_client_that_leaves_while_it_waits_leaves_nothing(bench: Bench) -> None:
    bench.policy.delay_s = 30
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await bench.events(HELLO)
    async with asyncio.timeout(60):
        await bench.policy.left.wait()
    assert await bench.store.turns_of("s1") == []


async def test_a_client_that_leaves_after_its_turn_is_stored_gets_it_again(bench: Bench) -> None:
    """The reply was whole but its end did not arrive: the client asks again."""
    add_turn = bench.store.add_turn
    stored = asyncio.Event()

    async def slow(*args: Any, **kwargs: Any) -> int:
        turn_id = await add_turn(*args, **kwargs)
        stored.set()
        await asyncio.sleep(0.2)
        return turn_id

    bench.store.add_turn = slow  # type: ignore[method-assign]
    async with bench.stream(HELLO):
        async with asyncio.timeout(60):
            await stored.wait()
    await until(lambda: bench.gateway.stats.inside == 0)
    body = {"model": "tiny", "messages": HELLO}
    path = "/sessions/s1/v1/chat/completions"
    assert (await bench.post(path, body, X_Stainless_Retry_Count="0"))[0] == 200
    (turn,) = await bench.store.turns_of("s1")
    assert turn.finish_reason == "stop"


def request_of(bench: Bench, body: Any) -> bytes:
    raw = json.dumps(body).encode()
    head = "POST /sessions/s1/v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
    head += f"Authorization: Bearer {bench.gateway.key}\r\nContent-Length: {len(raw)}\r\n\r\n"
    return head.encode() + raw


async def test_a_client_that_reads_nothing_is_cut_off(bench: Bench) -> None:
    """What it does not read is bounded, and it is not waited for forever."""
    bench.policy = FakePolicy("x" * 150_000)
    bench.policy.is_one_by_one = True
    await bench.restart()
    loop = asyncio.get_running_loop()
    with socket.socket() as small:
        small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        small.setblocking(False)
        await loop.sock_connect(small, ("127.0.0.1", bench.port))
        await loop.sock_sendall(small, request_of(bench, {"messages": HELLO, "stream": True}))
        await until(lambda: bench.gateway.stats.inside == 1)
        await until(lambda: bench.gateway.stats.inside == 0)
    (turn,) = await bench.store.turns_of("s1")
    assert turn.finish_reason == INTERRUPTED
    assert len(turn.sampled_ids_T) < 150_000


async def test_a_client_that_reads_slowly_gets_everything(bench: Bench) -> None:
    bench.policy = FakePolicy("x" * 20_000)
    bench.policy.is_one_by_one = True
    await bench.restart()
    async with bench.stream(HELLO) as answer:
        raw = b""
        while data := await answer.content.read(65_536):
            raw += data
            await asyncio.sleep(0.005)
    assert text_of(parse_events(raw)) == "x" * 20_000


async def test_a_half_closed_connection_is_a_client_that_left(bench: Bench) -> None:
    bench.policy.delay_s = 30
    async with bench.connection() as (reader, writer):
        writer.write(request_of(bench, {"messages": HELLO, "stream": True}))
        await until(lambda: bench.policy.bodies)  # it generates
        writer.write_eof()
        async with asyncio.timeout(60):
            await bench.policy.left.wait()
        await until(lambda: bench.gateway.stats.inside == 0)
        await reader.read()


async def test_a_gateway_that_stops_keeps_what_its_streams_had_sampled(bench: Bench) -> None:
    bench.policy = FakePolicy("a long reply")
    bench.policy.piece_s = 0.5
    await bench.restart()
    async with bench.stream(HELLO) as answer:
        await answer.content.readany()
        await bench.gateway.stop()
        with pytest.raises(aiohttp.ClientError):
            await answer.read()
    (turn,) = await bench.store.turns_of("s1")
    assert turn.finish_reason == INTERRUPTED


async def test_a_reply_without_any_text_is_a_whole_stream(bench: Bench) -> None:
    bench.policy = FakePolicy("")
    await bench.restart()
    events = await bench.events(HELLO)
    assert [event["choices"][0]["delta"] for event in events[:-1]] == [
        {"role": "assistant", "content": ""},
        {},
    ]
    assert events[-1] == "[DONE]"
