"""The Responses dialect reads a request as vLLM does, and knows every field of it.

A later version of OpenAI's client or of vLLM that adds a field fails here until it is decided on.
"""

from __future__ import annotations

import json
from typing import Any, get_type_hints

from openai.types.responses import response_create_params as openai_params

from clawrl_gym.gateway.dialects.responses import (
    REFUSED,
    RESPONSES,
    WITHOUT_EFFECT,
    ResponsesRequest,
)
from clawrl_gym.gateway.wire import request_fields
from clawrl_gym.gateway.wire.requests import ChatRequest
from tests.gateway.responses_bodies import BODIES, by_vllm


def our_chat(body: dict[str, Any]) -> dict[str, Any]:
    """What the gateway sends to the engine for a request."""
    fields = RESPONSES.read(body).fields
    assert isinstance(fields, ChatRequest)
    return dict(fields.body(fields.plain_messages()))


def read_by_vllm() -> dict[str, Any]:
    asked = [["theirs", body] for body in BODIES] + [["ours", our_chat(body)] for body in BODIES]
    return by_vllm(json.dumps(asked))


def as_rendered(message: dict[str, Any]) -> dict[str, Any]:
    """A message as templates see it: texts joined, `developer` under its older name, arguments as
    the object that they are, and nothing that is empty."""
    content = message.get("content")
    if isinstance(content, list) and all("text" in part for part in content):
        content = "\n".join(part["text"] for part in content)
    elif isinstance(content, list):
        content = [part.get("text") or picture_of(part) for part in content]
    calls = [
        (call["id"], call["function"]["name"], arguments_of(call))
        for call in message.get("tool_calls") or []
    ]
    rendered = {
        "role": "system" if message["role"] == "developer" else message["role"],
        "content": content,
        "tool_calls": calls,
        "reasoning": message.get("reasoning"),
        "tool_call_id": message.get("tool_call_id"),
    }
    return {name: value for name, value in rendered.items() if value}


def picture_of(part: dict[str, Any]) -> str:
    image = part["image_url"]
    return str(image["url"] if isinstance(image, dict) else image)


def arguments_of(call: dict[str, Any]) -> object:
    """Ours are made an object where a reply was cut off; vLLM's template would fail on them."""
    try:
        return json.loads(call["function"]["arguments"] or "{}")
    except ValueError:
        return {"_": call["function"]["arguments"]}


def test_messages_and_tools_are_those_that_vllm_makes() -> None:
    assert len(BODIES) >= 40
    read = read_by_vllm()["read"]
    for body, theirs, ours in zip(BODIES, read[: len(BODIES)], read[len(BODIES) :], strict=True):
        assert isinstance(theirs, list), (body, theirs)
        assert isinstance(ours, list), (body, ours)
        for one, other in zip(ours[0], theirs[0], strict=True):
            assert as_rendered(one) == as_rendered(other), body["input"]
        assert ours[1] == theirs[1], body["tools"]


def test_every_field_of_openai_and_vllm_is_decided_on() -> None:
    kinds = (
        openai_params.ResponseCreateParamsNonStreaming,
        openai_params.ResponseCreateParamsStreaming,
    )
    openai = {name for kind in kinds for name in get_type_hints(kind)}
    vllm = set(read_by_vllm()["fields"])
    assert (len(openai), len(vllm)) > (30, 50)
    refused = REFUSED.keys() | request_fields.REFUSED.keys()
    without_effect = WITHOUT_EFFECT | request_fields.WITHOUT_EFFECT
    honoured = ResponsesRequest.model_fields.keys() | ChatRequest.model_fields.keys()
    assert openai | vllm <= refused | without_effect | honoured


def test_a_field_has_one_fate() -> None:
    honoured = ResponsesRequest.model_fields.keys()
    assert REFUSED.keys() & WITHOUT_EFFECT == set()
    assert honoured & (REFUSED.keys() | WITHOUT_EFFECT) == set()
    twice = REFUSED.keys() & request_fields.REFUSED.keys()
    assert twice <= {
        "logprobs", "n", "prompt", "reasoning_effort", "response_format", "top_logprobs",
        "verbosity",
    }, "of these the way to ask is another one here"  # fmt: skip
