"""The official Python client, unchanged, against the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from tests.support.fakes import FakePolicy
from tests.support.gateway_rig import Bench

HI: Any = [{"role": "user", "content": "hi"}]
TOOLS: Any = [{"type": "function", "function": {"name": "read", "parameters": {}}}]
ARGUMENTS = '{"path": "notes.txt"}'
CALLING: Any = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"type": "function", "function": {"name": "read", "arguments": ARGUMENTS}},
        {"type": "function", "function": {"name": "list", "arguments": "{}"}},
    ],
}


@pytest.fixture
async def client(bench: Bench) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{bench.url}/v1", api_key=bench.gateway.key) as client:
        yield client


async def calling(bench: Bench, client: AsyncOpenAI) -> AsyncOpenAI:
    """The gateway again, before a policy that calls two tools."""
    bench.policy = FakePolicy(CALLING)
    await bench.restart()
    return client.with_options(base_url=f"{bench.url}/v1", api_key=bench.gateway.key)


async def test_a_stream_is_read_chunk_by_chunk(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="tiny", messages=HI, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "ok"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 3
    assert all(chunk.usage is None for chunk in chunks[:-1])


async def test_its_own_accumulator_puts_tool_calls_together(
    bench: Bench, client: AsyncOpenAI
) -> None:
    client = await calling(bench, client)
    async with client.chat.completions.stream(model="tiny", messages=HI, tools=TOOLS) as stream:
        final = await stream.get_final_completion()
    message = final.choices[0].message
    assert final.choices[0].finish_reason == "tool_calls"
    assert message.tool_calls is not None
    assert [call.function.name for call in message.tool_calls] == ["read", "list"]
    assert message.tool_calls[0].function.arguments == ARGUMENTS
    assert len({call.id for call in message.tool_calls}) == 2


async def test_a_conversation_with_tools_goes_on(bench: Bench, client: AsyncOpenAI) -> None:
    client = await calling(bench, client)
    named: Any = {"extra_headers": {"X-Session-Id": "s1"}}
    first = await client.chat.completions.create(model="tiny", messages=HI, tools=TOOLS, **named)
    message = first.choices[0].message
    assert message.tool_calls is not None
    results: Any = [
        {"role": "tool", "tool_call_id": call.id, "content": "done"} for call in message.tool_calls
    ]
    await client.chat.completions.create(
        model="tiny", messages=[*HI, message.to_dict(), *results], tools=TOOLS, **named
    )
    states = await bench.store.next_states_of("s1")
    assert states == {1: results}
    assert bench.gateway.stats.fits["exact"] + bench.gateway.stats.fits["spliced"] == 1


async def test_headers_are_read_beside_the_answer(client: AsyncOpenAI) -> None:
    raw = await client.chat.completions.with_raw_response.create(model="tiny", messages=HI)
    assert raw.headers["X-Turn-Id"] == "1"
    assert raw.headers["X-Weight-Version"] == "0"
    answer = raw.parse()
    assert answer.choices[0].message.content == "ok"
    assert answer.to_dict()["session_id"] == raw.headers["X-Session-Id"]


async def test_a_streaming_response_is_read_line_by_line(client: AsyncOpenAI) -> None:
    async with client.chat.completions.with_streaming_response.create(
        model="tiny", messages=HI, stream=True
    ) as answer:
        assert answer.headers["X-Session-Id"]
        lines = [line async for line in answer.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"


async def test_plain_completions(client: AsyncOpenAI) -> None:
    answer = await client.completions.create(model="tiny", prompt="1 + 1 =")
    assert answer.choices[0].text == "ok"
    stream = await client.completions.create(model="tiny", prompt=[5, 6], stream=True)
    assert "".join([chunk.choices[0].text async for chunk in stream]) == "ok"


async def test_models(client: AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["tiny"]
    assert (await client.models.retrieve("tiny")).id == "tiny"
    with pytest.raises(openai.NotFoundError, match="expected 'tiny'"):
        await client.models.retrieve("gpt-4")


async def test_errors_become_its_own(bench: Bench, client: AsyncOpenAI) -> None:
    once = client.with_options(max_retries=0)
    with pytest.raises(openai.NotFoundError) as missing:
        await once.chat.completions.create(model="gpt-4", messages=HI)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match=r"got \[\]"):
        await once.chat.completions.create(model="tiny", messages=[])
    with pytest.raises(openai.AuthenticationError):
        await once.with_options(api_key="wrong").models.list()
    bench.policy.max_prompt = 5
    with pytest.raises(openai.BadRequestError) as long:
        await once.chat.completions.create(model="tiny", messages=HI, stream=True)
    assert long.value.code == "context_length_exceeded"


async def test_an_error_in_mid_stream_is_raised(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.timeout_s = 0.3
    bench.policy.piece_s = 2.0
    await bench.start()
    async with AsyncOpenAI(base_url=f"{bench.url}/v1", api_key=bench.gateway.key) as client:
        stream = await client.chat.completions.create(model="tiny", messages=HI, stream=True)
        with pytest.raises(openai.APIError, match=r"no reply within 0\.3 s"):
            [chunk async for chunk in stream]
    await bench.stop()


async def test_it_retries_what_took_too_long_and_gets_one_turn(
    bench: Bench, client: AsyncOpenAI
) -> None:
    bench.policy.delay_s = 30.0
    named: Any = {"extra_headers": {"X-Session-Id": "s1"}}
    asking = asyncio.ensure_future(
        client.with_options(timeout=0.3).chat.completions.create(model="tiny", messages=HI, **named)
    )
    await bench.policy.left.wait()
    bench.policy.delay_s = 0.0
    assert (await asking).choices[0].message.content == "ok"
    assert bench.policy.cancelled == 1
    assert len(await bench.store.turns_of("s1")) == 1


async def test_it_comes_back_after_overload(tmp_path: Path) -> None:
    bench = Bench(tmp_path, max_requests_per_s=1)
    await bench.start()
    async with AsyncOpenAI(base_url=f"{bench.url}/v1", api_key=bench.gateway.key) as client:
        for number in range(6):
            messages: Any = [{"role": "user", "content": str(number)}]
            answer = await client.chat.completions.create(model="tiny", messages=messages)
            assert answer.choices[0].message.content == "ok"
    assert bench.gateway.stats.refused >= 1
    await bench.stop()
