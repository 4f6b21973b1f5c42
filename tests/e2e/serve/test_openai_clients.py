"""The official `openai` clients, Python and JavaScript, against the real `serve`: unchanged."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.e2e.npm_packages import node
from tests.e2e.openclaw_client import beside_packages
from tests.e2e.serving import Serving

pytestmark = [pytest.mark.vllm, pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]

MODEL = "policy"
ASKED: list[Any] = [{"role": "user", "content": "Read the file garden.txt"}]
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "read",
            "description": "Read a file",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}},
                "required": ["path"],
            },
        },
    }
]


@pytest.fixture
def client(serving: Serving) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{serving.url}/v1", api_key=serving.key, max_retries=0, timeout=120
    ) as one:
        yield one


def test_python_lists_and_finds_the_model(client: openai.OpenAI) -> None:
    assert MODEL in [entry.id for entry in client.models.list()]
    assert client.models.retrieve(MODEL).id == MODEL


def test_python_gets_a_plain_answer_with_usage(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=ASKED, max_completion_tokens=32)
    choice = answer.choices[0]
    assert choice.message.role == "assistant"
    assert choice.finish_reason in ("stop", "length")
    assert answer.usage is not None
    assert 1 <= answer.usage.completion_tokens <= 32
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_python_streams_token_by_token_and_ends_with_usage(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model=MODEL,
            messages=ASKED,
            max_completion_tokens=32,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert deltas[0].role == "assistant"
    texts = [delta.content for delta in deltas if delta.content]
    usage = chunks[-1].usage
    assert usage is not None
    assert chunks[-1].choices == []
    assert len(texts) >= min(3, usage.completion_tokens - 1)
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] is not None


def test_python_gathers_tool_calls_from_a_stream(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model=MODEL, messages=ASKED, tools=TOOLS, max_completion_tokens=48, temperature=0
    ) as stream:
        for _ in stream:
            pass
        message = stream.get_final_completion().choices[0].message
    assert_read(message.model_dump())


def test_python_gets_errors_as_its_own_exceptions(serving: Serving) -> None:
    with (
        openai.OpenAI(base_url=f"{serving.url}/v1", api_key="sk-wrong", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.chat.completions.create(model=MODEL, messages=ASKED)
    with (
        openai.OpenAI(base_url=f"{serving.url}/v1", api_key=serving.key, max_retries=0) as client,
        pytest.raises(openai.NotFoundError) as refused,
    ):
        client.chat.completions.create(model="no-such-model", messages=ASKED)
    assert refused.value.code == "model_not_found"


def test_python_completes_plain_text(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt="One, two,", max_tokens=4)
    assert isinstance(answer.choices[0].text, str)


@pytest.fixture(scope="module")
def javascript(serving: Serving) -> dict[str, Any]:
    """What the JavaScript client got."""
    done = subprocess.run(
        [node(), str(beside_packages("openai_client.mjs"))],
        env={
            **os.environ,
            "OPENAI_BASE_URL": f"{serving.url}/v1",
            "OPENAI_API_KEY": serving.key,
        },
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.openclaw
def test_javascript_gets_plain_answers_and_the_models(javascript: dict[str, Any]) -> None:
    assert MODEL in javascript["models"]
    assert_read(javascript["plain"]["choices"][0]["message"])
    assert isinstance(javascript["text"]["choices"][0]["text"], str)


@pytest.mark.openclaw
def test_javascript_streams_tool_calls_and_usage(javascript: dict[str, Any]) -> None:
    chunks = javascript["chunks"]
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] > 0
    assert_read(javascript["gathered"]["choices"][0]["message"])


@pytest.mark.openclaw
def test_javascript_gets_errors_as_its_own_exceptions(javascript: dict[str, Any]) -> None:
    assert javascript["refusal"] == {
        "kind": "NotFoundError",
        "status": 404,
        "code": "model_not_found",
    }


def assert_read(message: dict[str, Any]) -> None:
    """The message is the call that the tiny policy has learned to make."""
    (call,) = message["tool_calls"]
    assert call["id"]
    assert call["function"]["name"] == "read"
    assert json.loads(call["function"]["arguments"]) == {"path": "garden.txt"}
