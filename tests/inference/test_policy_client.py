from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from aiohttp import web

from clawrl_gym.core.errors import ContextError, PolicyError, PolicyUnavailable, RequestError
from clawrl_gym.core.types import ChatBody
from clawrl_gym.inference.generation import ChatReply, Piece, message_of
from clawrl_gym.inference.vllm.client import Generation, PolicyClient, Sampling
from tests.inference.fake_vllm import (
    KEY,
    FakeVllm,
    end,
    event,
    running,
    says,
    sleeps,
    streams,
    whole,
)

RENDER = "/clawrl/render"
REPLY = "/clawrl/reply"
STREAM = "/clawrl/stream"


class ClientBody(ChatBody, total=False):
    """What clients send beside what the chat template reads."""

    stream: bool
    model: str


CHAT: ClientBody = {
    "messages": [{"role": "user", "content": "hello"}],
    "stream": True,
    "model": "theirs",
}
WITH_TOOL: ClientBody = {**CHAT, "tools": [{"function": {"name": "shell"}}]}
GREEDY = Sampling(0.0, 1.0, 8)


@pytest.fixture
async def vllm() -> AsyncIterator[FakeVllm]:
    async with running() as fake:
        yield fake


@pytest.fixture
async def client(vllm: FakeVllm) -> AsyncIterator[PolicyClient]:
    client = vllm.client()
    yield client
    await client.close()


async def test_render_asks_for_the_served_model_and_never_streams(
    vllm: FakeVllm, client: PolicyClient
) -> None:
    assert await client.render(CHAT) == [1, 2, 3]
    assert vllm.calls == [(RENDER, {"chat": {**CHAT, "model": "policy", "stream": False}})]


async def test_a_text_is_made_ids_by_vllm(vllm: FakeVllm, client: PolicyClient) -> None:
    assert await client.tokenize("hello") == [1, 2, 3]
    assert vllm.calls == [("/clawrl/tokenize", {"text": "hello"})]


async def test_generate_sends_ids_and_salts_the_cache_with_the_version(
    vllm: FakeVllm, client: PolicyClient
) -> None:
    vllm.version = "4"
    sampling = Sampling(0.7, 0.9, 8, seed=3, stop=("END",))
    await client.generate([1, 2], sampling, version=4, request_id="r1")
    (_, body) = vllm.calls[0]
    assert (body["chat"], body["parse"]) == (None, False)
    request = body["generate"]
    assert request["token_ids"] == [1, 2]
    assert request["cache_salt"] == "4"
    assert request["request_id"] == "r1"
    assert request["sampling_params"] == {
        "temperature": 0.7, "top_p": 0.9, "max_tokens": 8, "logprobs": 0, "seed": 3, "stop": ["END"]
    }  # fmt: skip


async def test_a_generation_holds_what_vllm_reported_and_masks_what_it_did_not(
    vllm: FakeVllm, client: PolicyClient
) -> None:
    vllm.answers[REPLY] = says(whole())
    made = await client.generate([1], GREEDY, version=4)
    assert made == Generation([1], [10, 11, 2], [-0.5, None, -0.25], [4, 4, 4], "stop", "hi")


async def test_a_chat_is_rendered_generated_and_read_in_one_request(
    vllm: FakeVllm, client: PolicyClient
) -> None:
    vllm.answers[REPLY] = says(whole([4, 5]))
    reply = await client.generate_chat(
        CHAT, GREEDY, version=4, required_prefix=[1, 2, 3], request_id="r1"
    )
    made = Generation([1, 2, 3, 4, 5], [10, 11, 2], [-0.5, None, -0.25], [4, 4, 4], "stop", "hi")
    assert reply == ChatReply([1, 2, 3, 4, 5], (made, {"role": "assistant", "content": "hi"}))
    ((path, body),) = vllm.calls
    assert (path, body["required_prefix"], body["parse"]) == (REPLY, [1, 2, 3], False)
    assert body["chat"] == {**CHAT, "model": "policy", "stream": False}
    assert "token_ids" not in body["generate"]
    assert (body["generate"]["cache_salt"], body["generate"]["request_id"]) == ("4", "r1")


async def test_a_chat_whose_prompt_begins_otherwise_generates_nothing(
    vllm: FakeVllm, client: PolicyClient
) -> None:
    vllm.answers[REPLY] = says({"prompt_ids": [7, 8, 9], "prefix_matched": False})
    reply = await client.generate_chat(CHAT, GREEDY, version=4, required_prefix=[1, 2])
    assert reply == ChatReply([7, 8, 9], None)


async def test_a_chat_with_tools_gets_what_the_parsers_make_of_the_reply(
    vllm: FakeVllm, client: PolicyClient
) -> None:
    deltas = [{"content": "so "}, {"content": "it is"}]
    vllm.answers[REPLY] = says(whole([4], deltas=deltas))
    reply = await client.generate_chat(WITH_TOOL, GREEDY, version=4)
    assert reply.whole is not None
    assert reply.whole[1] == {"role": "assistant", "content": "so it is"}
    assert vllm.calls[0][1]["parse"] is True


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"weight_versions": None}, "named no weight version for some of 3 tokens"),
        ({"logprobs": [-0.5]}, "1 log-probs for 3 tokens"),
        ({"finish_reason": "abort"}, "'abort'"),
    ],
)
async def test_a_chat_reply_that_lacks_something_is_an_error(
    vllm: FakeVllm, client: PolicyClient, changes: dict[str, Any], words: str
) -> None:
    vllm.answers[REPLY] = says(whole([4], **changes))
    with pytest.raises(PolicyError, match=words):
        await client.generate_chat(CHAT, GREEDY, version=4)


async def test_an_engine_that_dies_below_a_chat_reply_is_unavailable(
    vllm: FakeVllm, client: PolicyClient
) -> None:
    vllm.answers[REPLY] = says({"error": {"message": "EngineCore died", "code": 500}}, 500)
    with pytest.raises(PolicyUnavailable, match="EngineCore died"):
        await client.generate_chat(CHAT, GREEDY, version=4)


async def test_a_stream_that_comes_at_once_has_the_versions_that_its_end_tells(
    vllm: FakeVllm, client: PolicyClient
) -> None:
    vllm.answers[STREAM] = streams({**event([10, 11, 2]), "versions": []} | end(3))
    async with aclosing(client.stream([1], GREEDY, CHAT, version=4)) as pieces:
        (piece,) = [piece async for piece in pieces]
    assert piece.versions_T == [4, 4, 4]


async def test_each_token_has_the_version_of_its_span(vllm: FakeVllm, client: PolicyClient) -> None:
    spans = [{"version": "4", "start": 0, "end": 1}, {"version": "5", "start": 1, "end": 3}]
    vllm.answers[REPLY] = says(whole(weight_versions=spans))
    assert (await client.generate([1], GREEDY, version=4)).versions_T == [4, 5, 5]


@pytest.mark.parametrize(
    "spans",
    [
        None,
        [],
        [{"version": "4", "start": 0, "end": 2}],
        [{"version": "4", "start": 1, "end": 3}],
        [{"version": "default", "start": 0, "end": 3}],
    ],
)
async def test_a_token_without_a_version_is_an_error(
    vllm: FakeVllm, client: PolicyClient, spans: object
) -> None:
    vllm.answers[REPLY] = says(whole(weight_versions=spans))
    with pytest.raises(PolicyError, match="named no weight version for some of 3 tokens"):
        await client.generate([1], GREEDY, version=4)


async def test_a_chat_whose_prompt_is_given_is_not_rendered(
    vllm: FakeVllm, client: PolicyClient
) -> None:
    vllm.answers[REPLY] = says(whole(deltas=[{"content": "it is"}]))
    reply = await client.generate_chat(WITH_TOOL, GREEDY, version=4, prompt_ids=[7, 8])
    assert reply.prompt_ids_T == [7, 8]
    assert reply.whole is not None
    generation, message = reply.whole
    assert generation.prompt_ids_T == [7, 8]
    assert message == {"role": "assistant", "content": "it is"}
    ((_, body),) = vllm.calls
    assert (body["generate"]["token_ids"], body["parse"]) == ([7, 8], True)
    assert "required_prefix" not in body


async def test_tool_calls_and_reasoning_are_what_vllms_parsers_found(
    vllm: FakeVllm, client: PolicyClient
) -> None:
    function = {"name": "shell", "arguments": ""}
    call = {"index": 0, "id": "c1", "type": "function", "function": function}
    more = {"index": 0, "function": {"arguments": "{}"}}
    deltas = [{"reasoning_content": "hm"}, {}, {"tool_calls": [call]}, {"tool_calls": [more]}]
    vllm.answers[REPLY] = says(whole([4], deltas=deltas))
    reply = await client.generate_chat(WITH_TOOL, GREEDY, version=4)
    called = {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": "{}"}}
    assert reply.whole is not None
    assert reply.whole[1] == {
        "role": "assistant", "content": None, "tool_calls": [called], "reasoning_content": "hm"
    }  # fmt: skip


async def test_a_reply_that_a_text_or_the_budget_ended_keeps_its_last_token() -> None:
    ended_by_text = Generation([1], [10, 11], [None, None], [0, 0], "stop", "h", stop_text="i")
    ended_by_budget = Generation([1], [10, 11], [None, None], [0, 0], "length", "hi")
    assert ended_by_text.spoken_ids_T == ended_by_budget.spoken_ids_T == [10, 11]


@pytest.mark.parametrize("body", [CHAT, WITH_TOOL])
async def test_an_empty_reply_is_an_empty_message(
    vllm: FakeVllm, client: PolicyClient, body: ClientBody
) -> None:
    empty: dict[str, Any] = {"ids": [2], "logprobs": [None], "text": "", "deltas": []} | end(1)
    vllm.answers[REPLY] = says(whole([4], **empty))
    reply = await client.generate_chat(body, GREEDY, version=4)
    assert reply.whole is not None
    assert reply.whole[1] == {"role": "assistant", "content": ""}


async def test_a_reasoning_parser_sees_every_reply(vllm: FakeVllm) -> None:
    vllm.answers[REPLY] = says(whole([4], deltas=[{"reasoning_content": "a"}, {"content": "b"}]))
    client = PolicyClient(vllm.base_url, "the key", "policy", 5.0, 8, always_parse=True)
    try:
        reply = await client.generate_chat(CHAT, GREEDY, version=4)
        assert reply.whole is not None
        message = reply.whole[1]
        assert message == {"role": "assistant", "content": "b", "reasoning_content": "a"}
        assert vllm.calls[0][1]["parse"] is True
    finally:
        await client.close()


@pytest.mark.parametrize(
    ("status", "said", "kind"),
    [
        (400, "This model's maximum context length is 1024 tokens.", ContextError),
        (400, "longer than the maximum model length of 1024", ContextError),
        (400, "messages: Input should be a valid list", RequestError),
        (404, "no such model", PolicyError),
        (503, "shutting down", PolicyUnavailable),
    ],
)
async def test_a_refusal_is_an_error_of_its_kind_with_vllms_words(
    vllm: FakeVllm, client: PolicyClient, status: int, said: str, kind: type[PolicyError]
) -> None:
    vllm.answers[RENDER] = says({"error": {"message": said}}, status)
    with pytest.raises(
        PolicyError, match=f"answered {RENDER} with {status}: {said[:20]}"
    ) as caught:
        await client.render(CHAT)
    assert type(caught.value) is kind


async def test_a_wrong_key_is_refused(vllm: FakeVllm) -> None:
    client = PolicyClient(vllm.base_url, "another", "policy", 5.0, 8)
    try:
        with pytest.raises(PolicyError, match="401"):
            await client.render(CHAT)
        assert not await client.healthy()
    finally:
        await client.close()


async def test_a_server_that_is_slow_or_gone_is_unavailable(vllm: FakeVllm) -> None:
    vllm.answers[RENDER] = sleeps(1.0)
    slow = vllm.client(timeout_s=0.05)
    gone = PolicyClient("http://127.0.0.1:1", "k", "policy", 1.0, 8)
    try:
        with pytest.raises(PolicyUnavailable, match=r"did not answer .* within 0\.05 s"):
            await slow.render(CHAT)
        with pytest.raises(PolicyUnavailable, match="cannot be reached"):
            await gone.render(CHAT)
        assert not await gone.healthy()
    finally:
        await slow.close()
        await gone.close()


async def test_a_server_whose_engine_died_is_dead_and_one_that_hangs_is_unresponsive(
    vllm: FakeVllm, client: PolicyClient
) -> None:
    gone = PolicyClient("http://127.0.0.1:1", "k", "policy", 1.0, 8)
    try:
        assert await client.health(1.0) == "healthy"
        vllm.answers["/health"] = says({}, 503)
        assert await client.health(1.0) == await gone.health(1.0) == "dead"
        vllm.answers["/health"] = sleeps(1.0)
        assert await client.health(0.05) == "unresponsive"
    finally:
        await gone.close()


async def test_metrics_are_summed_over_engines(vllm: FakeVllm, client: PolicyClient) -> None:
    text = (
        "# HELP vllm:num_requests_running Number of requests\n"
        'vllm:num_requests_running{engine="0",model_name="policy"} 3.0\n'
        'vllm:num_requests_running{engine="1",model_name="policy"} 2.0\n'
        'vllm:num_requests_waiting{engine="0"} 1.0\n'
        'vllm:kv_cache_usage_perc{engine="0"} 0.25\n'
        'vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 1.0\n'
        'vllm:num_preemptions_total{engine="0"} 7.0\n'
        'vllm:cache_config_info{block_size="16",kv_cache_max_concurrency="12.5",x="None"} 1.0\n'
        'vllm:request_success_total{engine="0",finished_reason="stop"} 20.0\n'
        'vllm:request_success_total{engine="0",finished_reason="length"} 3.0\n'
    )

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(text=text)

    vllm.answers["/metrics"] = answer
    assert await client.metrics() == {
        "running": 5.0, "waiting": 1.0, "kv_usage": 0.25, "prompt_tokens": 0.0, "tokens": 0.0,
        "preemptions": 7.0, "requests": 23.0,
        "contexts": 12.5,
    }  # fmt: skip


async def test_closing_twice_and_using_it_again_is_fine(
    vllm: FakeVllm, client: PolicyClient
) -> None:
    await client.close()
    await client.close()
    assert await client.render(CHAT) == [1, 2, 3]


async def pieces_of(stream: AsyncIterator[Piece]) -> list[Piece]:
    return [piece async for piece in stream]


HELLO = (
    event([10], delta={"content": "h"}),
    event([11, 12], delta={"content": "i"}),
    event([2], **end(4)),
)


async def test_a_stream_comes_in_pieces_and_ends_with_the_whole(
    vllm: FakeVllm, client: PolicyClient
) -> None:
    vllm.answers[STREAM] = streams(*HELLO)
    pieces = await pieces_of(client.stream([1, 2], GREEDY, CHAT, version=4, request_id="r"))
    assert [piece.ids_T for piece in pieces] == [[10], [11, 12], [2]]
    assert [piece.versions_T for piece in pieces] == [[4], [4, 4], [4]]
    assert message_of(piece.delta for piece in pieces) == {"role": "assistant", "content": "hi"}
    assert [piece.generation for piece in pieces[:-1]] == [None, None]
    assert pieces[-1].generation == Generation(
        [1, 2], [10, 11, 12, 2], [-0.5] * 4, [4] * 4, "stop", "hi"
    )
    (_, asked) = vllm.calls[0]
    assert asked["chat"] is None, "plain text needs no parser, and so no second copy of the chat"
    assert asked["generate"]["token_ids"] == [1, 2]
    assert asked["generate"]["cache_salt"] == "4"
    assert asked["generate"]["request_id"] == "r"


async def test_a_request_with_tools_is_streamed_through_vllms_parsers(
    vllm: FakeVllm, client: PolicyClient
) -> None:
    vllm.answers[STREAM] = streams(event([10, 2], delta={"content": "h"}, **end(2)))
    (piece,) = await pieces_of(client.stream([1], GREEDY, WITH_TOOL, version=4))
    assert piece.generation is not None
    assert piece.generation.text is None, "the parsed reply is no plain text"
    assert vllm.calls[0][1]["parse"] is True
    assert vllm.calls[0][1]["chat"]["tools"] == WITH_TOOL["tools"]


async def test_a_chat_is_rendered_and_streamed_in_one_call(
    vllm: FakeVllm, client: PolicyClient
) -> None:
    vllm.answers[STREAM] = streams({"prompt_ids": [7, 8], "prefix_matched": True}, *HELLO)
    first, *rest = await pieces_of(client.stream_chat(CHAT, GREEDY, version=4, required_prefix=[7]))
    assert first == Piece([], [], {}, prompt_ids_T=[7, 8])
    assert rest[-1].generation is not None
    assert rest[-1].generation.prompt_ids_T == [7, 8]
    assert "token_ids" not in vllm.calls[0][1]["generate"]
    assert vllm.calls[0][1]["required_prefix"] == [7]


async def test_a_prompt_that_does_not_go_on_from_the_turn_before_is_only_told(
    vllm: FakeVllm, client: PolicyClient
) -> None:
    vllm.answers[STREAM] = streams({"prompt_ids": [7, 8], "prefix_matched": False})
    pieces = await pieces_of(client.stream_chat(CHAT, GREEDY, version=4, required_prefix=[9]))
    assert pieces == [Piece([], [], {}, prompt_ids_T=[7, 8])]


async def test_a_reply_that_broke_off_goes_on_as_one(vllm: FakeVllm, client: PolicyClient) -> None:
    vllm.answers[STREAM] = streams(
        event([12], "5", delta={"content": "o"}), event([2], "5", **end(4, "5", first=2))
    )
    before = [
        Piece([10], [-1.0], {"content": "h"}, versions_T=[4]),
        Piece([11], [None], {"content": "ell"}, versions_T=[4]),
    ]
    sampling = Sampling(1.0, 1.0, 8, seed=3)
    *_, last = await pieces_of(client.stream([1], sampling, None, version=5, resume_from=before))
    assert last.generation == Generation(
        [1], [10, 11, 12, 2], [-1.0, None, -0.5, -0.5], [4, 4, 5, 5], "stop", "hello"
    )
    (_, asked) = vllm.calls[0]
    assert asked["resume_from"] == [10, 11]
    assert asked["generate"]["sampling_params"]["max_tokens"] == 6
    assert "seed" not in asked["generate"]["sampling_params"]


async def test_a_reply_of_unknown_versions_cannot_be_gone_on_with(client: PolicyClient) -> None:
    with pytest.raises(PolicyError, match="without weight versions"):
        client.stream([1], GREEDY, None, version=5, resume_from=[Piece([10], [-1.0], {})])


async def test_a_stream_that_breaks_off_is_unavailable(
    vllm: FakeVllm, client: PolicyClient
) -> None:
    for done in (True, False):
        vllm.answers[STREAM] = streams(HELLO[0], done=done)
        stream = client.stream([1], GREEDY, None, version=4)
        assert (await anext(stream)).ids_T == [10]
        with pytest.raises(PolicyUnavailable, match="broke the stream off"):
            await anext(stream)


@pytest.mark.parametrize(
    ("code", "said", "kind"),
    [
        (400, "This model's maximum context length is 1024 tokens.", ContextError),
        (400, "top_p must be in (0, 1]", RequestError),
        (500, "EngineCore encountered an issue", PolicyUnavailable),
    ],
)
async def test_an_error_within_a_stream_is_an_error_of_its_kind(
    vllm: FakeVllm, client: PolicyClient, code: int, said: str, kind: type[PolicyError]
) -> None:
    vllm.answers[STREAM] = streams({"error": {"message": said, "code": code}})
    with pytest.raises(PolicyError, match=f"answered {STREAM} with {code}") as caught:
        await pieces_of(client.stream([1], GREEDY, None, version=4))
    assert type(caught.value) is kind


async def test_a_stream_may_take_its_time_but_not_fall_silent(vllm: FakeVllm) -> None:
    slow = vllm.client(timeout_s=0.5)
    try:
        vllm.answers[STREAM] = streams(*HELLO, pause_s=0.05, bytes_each=20)
        assert (await pieces_of(slow.stream([1], GREEDY, None, version=4)))[-1].generation
        vllm.answers[STREAM] = sleeps(5.0)
        with pytest.raises(PolicyUnavailable, match=r"did not answer .* within 0\.5 s"):
            await pieces_of(slow.stream([1], GREEDY, None, version=4))
    finally:
        await slow.close()


async def test_a_stream_that_was_read_to_its_end_leaves_its_connection_for_the_next(
    vllm: FakeVllm, client: PolicyClient
) -> None:
    ports = set()

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        ports.add(request.transport.get_extra_info("peername"))
        return await streams(*HELLO)(request)

    vllm.answers[STREAM] = answer
    for _ in range(3):
        await pieces_of(client.stream([1], GREEDY, None, version=4))
    assert len(ports) == 1


async def test_closing_a_stream_closes_its_connection(vllm: FakeVllm, client: PolicyClient) -> None:
    """That is how vLLM learns that nobody listens."""
    left = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"data: %b\n\n" % json.dumps(HELLO[0]).encode())
                await asyncio.sleep(0.01)
        except (ConnectionError, asyncio.CancelledError):
            left.set()
            raise

    vllm.answers[STREAM] = endless
    async with aclosing(client.stream([1], GREEDY, None, version=4)) as stream:
        await anext(stream)
    async with asyncio.timeout(60):
        await left.wait()


async def test_who_waits_for_an_engine_that_is_gone_is_told_when_connections_are_closed(
    vllm: FakeVllm,
) -> None:
    """A machine that is gone ends no connection: the answer would be waited for until its limit."""
    vllm.answers[RENDER] = sleeps(60)
    vllm.answers[STREAM] = sleeps(60)
    client = vllm.client(timeout_s=60)

    async def first_piece() -> Piece:
        async with aclosing(client.stream([1], GREEDY, None, version=1)) as pieces:
            return await anext(pieces)

    waiting = [asyncio.ensure_future(client.render(CHAT)), asyncio.ensure_future(first_piece())]
    async with asyncio.timeout(60):
        while len(vllm.calls) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await client.close()
        errors = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(error) for error in errors] == [PolicyUnavailable, PolicyUnavailable]


async def test_requests_follow_an_engine_that_moves(vllm: FakeVllm) -> None:
    urls = ["http://127.0.0.1:9", vllm.base_url]
    client = PolicyClient(lambda: urls[0], KEY, "policy", 5.0, 2)
    try:
        with pytest.raises(PolicyUnavailable):
            await client.render(CHAT)
        del urls[0]
        assert await client.render(CHAT) == [1, 2, 3]
    finally:
        await client.close()


async def test_log_probs_of_given_ids_are_read_without_any_setting_of_the_sampling(
    vllm: FakeVllm, client: PolicyClient
) -> None:
    rows = [None, {"8": {"logprob": -0.5}, "9": {"logprob": -2.0}}, {"9": {"logprob": -0.25}}]
    vllm.answers["/inference/v1/generate"] = says({"prompt_logprobs": rows})
    assert await client.logprobs([7, 8, 9], version=4) == [-0.5, -0.25]
    ((_, body),) = vllm.calls
    assert body["token_ids"] == [7, 8, 9]
    assert body["model"] == "policy"
    assert body["sampling_params"] == {"temperature": 1.0, "max_tokens": 1, "prompt_logprobs": 0}
    assert body["priority"] == -1, "it waits for no other request"
    assert body["cache_salt"] == "4"
    for answer in ({"prompt_logprobs": rows}, {"prompt_logprobs": None}):
        vllm.answers["/inference/v1/generate"] = says(answer)
        count = len(answer["prompt_logprobs"] or [])
        with pytest.raises(PolicyError, match=f"sent log-probs of {count} ids, expected 4"):
            await client.logprobs([7, 8, 9, 5], version=4)
