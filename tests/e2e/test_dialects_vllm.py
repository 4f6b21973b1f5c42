"""Three dialects before a real vLLM: its own renderers and its own ids are the referee."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.core.types import Turn
from clawrl_gym.inference.vllm.client import PolicyClient
from tests.e2e.test_gateway_vllm import Rig
from tests.support.tiny_models import TEMPLATE

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(3600)]

MODEL = "policy"
WORDS = "copy the file a.txt to b.csv and print its first lines then count words of every log"
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}
TOKENS = 12


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture(scope="module")
def rig(loop: asyncio.AbstractEventLoop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    rig = Rig(tmp_path_factory.mktemp("rig"))
    try:
        loop.run_until_complete(rig.start())
        yield rig
    finally:
        loop.run_until_complete(rig.stop())


def said(draw: random.Random) -> str:
    return " ".join(draw.choices(WORDS.split(), k=draw.randint(1, 12)))


def chat_of(draw: random.Random) -> tuple[str, Any]:
    system, asked, replied, more = (said(draw) for _ in range(4))
    call = {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": "{}"}}
    messages: list[Any] = [
        {"role": "system", "content": system},
        {"role": "user", "content": asked},
        {"role": "assistant", "content": replied, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": more},
    ]
    tools = [{"type": "function", "function": {"name": "shell", "parameters": SCHEMA}}]
    return "chat/completions", {"messages": messages, "tools": tools, "max_tokens": TOKENS}


def messages_of(draw: random.Random) -> tuple[str, Any]:
    system, asked, replied, more = (said(draw) for _ in range(4))
    use = {"type": "tool_use", "id": "c1", "name": "shell", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": more}
    messages: list[Any] = [
        {"role": "user", "content": asked},
        {"role": "assistant", "content": [{"type": "text", "text": replied}, use]},
        {"role": "user", "content": [result]},
    ]
    tools = [{"name": "shell", "input_schema": SCHEMA}]
    body = {"system": system, "messages": messages, "tools": tools, "max_tokens": TOKENS}
    return "messages", body


def responses_of(draw: random.Random) -> tuple[str, Any]:
    system, asked, replied, more = (said(draw) for _ in range(4))
    part = {"type": "output_text", "text": replied, "annotations": []}
    message = {
        "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [part],
    }  # fmt: skip
    call = {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c1", "output": more}
    items = [{"role": "user", "content": asked}, message, call, output]
    tools = [{"type": "function", "name": "shell", "parameters": SCHEMA}]
    body = {"instructions": system, "input": items, "tools": tools, "max_output_tokens": TOKENS}
    return "responses", body


DIALECTS = {"chat": chat_of, "messages": messages_of, "responses": responses_of}


STRICT = (
    "{%- for message in messages %}{% if message.role == 'system' and not loop.first %}"
    "{{ raise_exception('the system message comes first') }}{% endif %}{% endfor %}"
) + TEMPLATE
"""As Qwen3.5's."""


async def streamed(rig: Rig, session: str, route: str, body: Any) -> Turn:
    async with rig.http.post(f"/sessions/{session}/v1/{route}", json=body) as answer:
        told = await answer.text()
        assert answer.status == 200, told
    (turn,) = await rig.turns(session)
    return turn


async def rendered_by_vllm(client: PolicyClient, route: str, body: Any) -> list[int]:
    """The prompt ids of vLLM's own converter and renderer."""
    answer = await client._connections.post(f"/v1/{route}/render", body)
    ids: list[int] = answer["token_ids"]
    return ids


async def sampled_by_vllm(client: PolicyClient, prompt_ids: list[int], seed: int) -> Any:
    """Ids, log-probs and versions of vLLM's own route, for a prompt and a seed."""
    sampling = {"temperature": 1.0, "seed": seed, "max_tokens": TOKENS, "logprobs": 0}
    body = {
        "token_ids": prompt_ids, "model": client._model, "sampling_params": sampling,
        "cache_salt": "0",
    }  # fmt: skip
    (choice,) = (await client._connections.post("/inference/v1/generate", body))["choices"]
    return choice


@pytest.mark.parametrize("dialect", DIALECTS)
def test_streamed_turns_have_vllms_own_ids(
    rig: Rig, loop: asyncio.AbstractEventLoop, dialect: str, request: pytest.FixtureRequest
) -> None:
    """The prompt is what vLLM's converter of the dialect makes of it; ids and log-probs are, to
    the last bit, what its own route samples by the same seed."""
    count = 1000 if request.config.getoption("nightly") else 25

    async def check() -> None:
        policy = rig.fleet.of("reference")
        assert isinstance(policy, PolicyClient)
        for number in range(count):
            route, body = DIALECTS[dialect](random.Random(number))
            body = {"model": policy._model, **body}
            wishes = {"stream": True, "seed": number, "temperature": 1.0}
            turn = await streamed(rig, f"{dialect}-{number}", route, body | wishes)
            assert turn.prompt_ids_T == await rendered_by_vllm(policy, route, body)
            own = await sampled_by_vllm(policy, turn.prompt_ids_T, number)
            assert turn.sampled_ids_T == own["token_ids"]
            own_logprobs = [entry["logprob"] for entry in own["logprobs"]["content"]]
            assert turn.logprobs_T == own_logprobs
            assert turn.versions_T == [0] * len(turn.sampled_ids_T)

    loop.run_until_complete(asyncio.wait_for(check(), 3000))


@pytest.fixture
def strict_rig(loop: asyncio.AbstractEventLoop, tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path, STRICT)
    try:
        loop.run_until_complete(rig.start())
        yield rig
    finally:
        loop.run_until_complete(rig.stop())


def test_reminders_in_the_middle_reach_a_template_that_wants_them_first(
    strict_rig: Rig, loop: asyncio.AbstractEventLoop
) -> None:
    """Claude Code writes system messages between others; vLLM's own converter is the referee."""

    async def check() -> None:
        policy = strict_rig.fleet.of("reference")
        assert isinstance(policy, PolicyClient)
        route, body = messages_of(random.Random(1))
        body["messages"] += [
            {"role": "system", "content": "Be brief."}, {"role": "user", "content": "go on"}
        ]  # fmt: skip
        body = {"model": policy._model, **body}
        turn = await streamed(strict_rig, "reminded", route, body | {"stream": True})
        assert turn.prompt_ids_T == await rendered_by_vllm(policy, route, body)
        assert [message["role"] for message in turn.messages][-2:] == ["system", "user"]

    loop.run_until_complete(asyncio.wait_for(check(), 300))
