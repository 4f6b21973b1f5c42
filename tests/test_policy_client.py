from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from clawrl_gym.errors import ContextError, PolicyError, RequestError
from clawrl_gym.policy.client import Generation, PolicyClient, PolicyUnavailable, Sampling
from tests.fake_vllm import FakeVllm, choice, running, says, sleeps

GENERATE = "/inference/v1/generate"
RENDER = "/v1/chat/completions/render"
DERENDER = "/v1/chat/completions/derender"
CHAT = {"messages": [{"role": "user", "content": "hello"}], "stream": True, "model": "theirs"}
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
    assert vllm.calls == [(RENDER, {**CHAT, "model": "policy", "stream": False})]


async def test_generate_sends_ids_and_salts_the_cache_with_the_version(
    vllm: FakeVllm, client: PolicyClient
) -> None:
    vllm.version = "4"
    sampling = Sampling(0.7, 0.9, 8, seed=3, stop=("END",))
    await client.generate([1, 2], sampling, version=4, request_id="r1")
    (_, body) = vllm.calls[0]
    assert body["token_ids"] == [1, 2]
    assert body["cache_salt"] == "4"
    assert body["request_id"] == "r1"
    assert body["sampling_params"] == {
        "temperature": 0.7, "top_p": 0.9, "max_tokens": 8, "logprobs": 0, "seed": 3, "stop": ["END"]
    }  # fmt: skip


async def test_a_generation_holds_what_vllm_reported_and_masks_what_it_did_not(
    vllm: FakeVllm, client: PolicyClient
) -> None:
    vllm.answers[GENERATE] = says({"choices": [choice("4")]})
    made = await client.generate([1], GREEDY, version=4)
    assert made == Generation([1], [10, 11, 2], [-0.5, None, -0.25], [4, 4, 4], "stop", "hi")


async def test_each_token_has_the_version_of_its_span(vllm: FakeVllm, client: PolicyClient) -> None:
    spans = [{"version": "4", "start": 0, "end": 1}, {"version": "5", "start": 1, "end": 3}]
    vllm.answers[GENERATE] = says({"choices": [choice(weight_versions=spans)]})
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
    vllm.answers[GENERATE] = says({"choices": [choice(weight_versions=spans)]})
    with pytest.raises(PolicyError, match="named no weight version for some of 3 tokens"):
        await client.generate([1], GREEDY, version=4)


async def test_log_probs_of_another_length_than_the_ids_are_an_error(
    vllm: FakeVllm, client: PolicyClient
) -> None:
    short = {"content": [{"logprob": -1.0}]}
    vllm.answers[GENERATE] = says({"choices": [choice(logprobs=short)]})
    with pytest.raises(PolicyError, match="1 log-probs for 3 tokens"):
        await client.generate([1], GREEDY, version=4)


async def test_an_aborted_request_is_no_reply(vllm: FakeVllm, client: PolicyClient) -> None:
    vllm.answers[GENERATE] = says({"choices": [choice(finish_reason="abort")]})
    with pytest.raises(PolicyError, match="'abort'"):
        await client.generate([1], GREEDY, version=4)


async def test_plain_text_needs_no_second_request(vllm: FakeVllm, client: PolicyClient) -> None:
    made = Generation([1], [10, 2], [None, None], [0, 0], "stop", "hi")
    assert await client.parse(CHAT, made) == {"role": "assistant", "content": "hi"}
    assert vllm.calls == []


async def test_tool_calls_are_parsed_by_vllm_without_the_end_token(
    vllm: FakeVllm, client: PolicyClient
) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": "{}"}}
    raw = {"role": "assistant", "content": None, "tool_calls": [call], "reasoning": "hm"}
    vllm.answers[DERENDER] = says({"choices": [{"message": raw}]})
    made = Generation([1], [10, 2], [None, None], [0, 0], "stop", "hi")
    message = await client.parse({**CHAT, "tools": [{}]}, made)
    assert message == {
        "role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "hm"
    }  # fmt: skip
    assert vllm.calls[0][1]["generate_response"]["choices"][0]["token_ids"] == [10]
    assert vllm.calls[0][1]["prompt_token_ids"] == [1]


async def test_a_reply_that_a_text_or_the_budget_ended_keeps_its_last_token() -> None:
    ended_by_text = Generation([1], [10, 11], [None, None], [0, 0], "stop", "h", stop_text="i")
    ended_by_budget = Generation([1], [10, 11], [None, None], [0, 0], "length", "hi")
    assert ended_by_text.spoken_ids_T == ended_by_budget.spoken_ids_T == [10, 11]


async def test_an_empty_reply_is_an_empty_message(vllm: FakeVllm, client: PolicyClient) -> None:
    made = Generation([1], [2], [None], [0], "stop", "")
    message = await client.parse({**CHAT, "tools": [{}]}, made)
    assert message == {"role": "assistant", "content": ""}
    assert vllm.calls == []


async def test_a_reasoning_parser_sees_every_reply(vllm: FakeVllm) -> None:
    vllm.answers[DERENDER] = says({"choices": [{"message": {"content": "b", "reasoning": "a"}}]})
    client = PolicyClient(vllm.base_url, "the key", "policy", 5.0, 8, always_parse=True)
    try:
        made = Generation([1], [10, 2], [None, None], [0, 0], "stop", "hi")
        message = await client.parse(CHAT, made)
        assert message == {"role": "assistant", "content": "b", "reasoning_content": "a"}
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


async def test_metrics_are_summed_over_engines(vllm: FakeVllm, client: PolicyClient) -> None:
    text = (
        "# HELP vllm:num_requests_running Number of requests\n"
        'vllm:num_requests_running{engine="0",model_name="policy"} 3.0\n'
        'vllm:num_requests_running{engine="1",model_name="policy"} 2.0\n'
        'vllm:num_requests_waiting{engine="0"} 1.0\n'
        'vllm:kv_cache_usage_perc{engine="0"} 0.25\n'
        'vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 1.0\n'
    )

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(text=text)

    vllm.answers["/metrics"] = answer
    assert await client.metrics() == {"running": 5.0, "waiting": 1.0, "kv_usage": 0.25}


async def test_closing_twice_and_using_it_again_is_fine(
    vllm: FakeVllm, client: PolicyClient
) -> None:
    await client.close()
    await client.close()
    assert await client.render(CHAT) == [1, 2, 3]
