"""Requests of the Responses API that vLLM takes, too, and how vLLM reads them."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from typing import Any

from clawrl_gym.core.types import Message, Turn

Item = dict[str, Any]


def user(text: object, **others: object) -> Item:
    return {"role": "user", "content": text, **others}


def said(text: str, **others: object) -> Item:
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {"type": "message", "role": "assistant", "content": [part]}
    return message | {"id": "msg_1", "status": "completed"} | others


def thought(text: str, **others: object) -> Item:
    part = {"type": "reasoning_text", "text": text}
    return {"type": "reasoning", "id": "rs_1", "summary": [], "content": [part], **others}


def summarized(text: str) -> Item:
    summary = [{"type": "summary_text", "text": text}]
    return {"type": "reasoning", "id": "rs_1", "summary": summary}


def call(number: int = 1, name: str = "look", arguments: str = '{"at": "x"}') -> Item:
    named = {"call_id": f"call_{number}", "name": name, "arguments": arguments}
    return {"type": "function_call", **named}


def output(number: int = 1, text: object = "found") -> Item:
    return {"type": "function_call_output", "call_id": f"call_{number}", "output": text}


def custom_call(text: str = "*** Begin Patch") -> Item:
    return {"type": "custom_tool_call", "call_id": "call_9", "name": "patch", "input": text}


def custom_output(text: object = "done") -> Item:
    return {"type": "custom_tool_call_output", "call_id": "call_9", "output": text}


def text_part(text: str) -> Item:
    return {"type": "input_text", "text": text}


LOOK: Item = {
    "type": "function",
    "name": "look",
    "description": "Looks at something.",
    "strict": False,
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
}
BARE: Item = {"type": "function", "name": "stop", "parameters": None, "strict": None}
PATCH: Item = {"type": "custom", "name": "patch", "description": "Changes files."}
SPACE: Item = {
    "type": "namespace",
    "name": "mcp__files",
    "description": "Files of the project.",
    "tools": [
        {"type": "function", "name": "read", "description": "Reads.", "parameters": {}},
        {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": True},
    ],
}
SEARCH: Item = {"type": "web_search"}
PICTURE: Item = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"}
HI = user("Hello")
TYPED: Item = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Yes?"}],
}

INPUTS: list[object] = [
    "Hello",
    "",
    [HI],
    [user([text_part("Hello")])],
    [user([text_part("Hello"), text_part("you")])],
    [user([text_part("What is it?"), PICTURE])],
    [user("Hello", type="message")],
    [{"role": "system", "content": "Be short."}, HI],
    [{"role": "developer", "content": [text_part("Be short.")]}, HI],
    [HI, {"role": "assistant", "content": "Yes?"}, user("Go on")],
    [HI, TYPED, user("Go on")],
    [HI, said("Yes?"), user("Go on")],
    [HI, said("Yes?", phase="final_answer"), user("Go on")],
    [HI, said("First."), said("Second."), user("Go on")],
    [HI, thought("A person."), said("Yes?"), user("Go on")],
    [HI, summarized("A person."), said("Yes?"), user("Go on")],
    [HI, said("Yes?"), thought("A person."), user("Go on")],
    [HI, thought("One."), thought("Two."), said("Yes?"), user("Go on")],
    [HI, call(), output()],
    [HI, call(arguments=""), output()],
    [HI, call(arguments="not JSON"), output()],
    [HI, call() | {"id": "fc_1", "status": "completed"}, output() | {"id": "fco_1"}],
    [HI, call(1), call(2), output(1), output(2)],
    [HI, call(1), output(1), call(2), output(2)],
    [HI, thought("Look."), call(), output()],
    [HI, thought("Look."), said("I look."), call(1), call(2), output(1), output(2)],
    [HI, said("I look."), thought("Look."), call(), output()],
    [HI, call(), said("I look."), output()],
    [HI, call(1), said("I look."), call(2), output(1), output(2)],
    [HI, call(), output(), said("It is there."), user("Thanks")],
    [HI, call(), output(), thought("Found."), call(2), output(2), said("Done."), user("Bye")],
    [HI, call(), output(text=[text_part("a"), text_part("b")])],
    [HI, call(), output(text=[text_part("a"), PICTURE])],
    [HI, call(name="read") | {"namespace": "mcp__files"}, output()],
    [HI, custom_call(), custom_output()],
    [HI, custom_call('with "quotes", \\ and \n lines: ä 😀'), custom_output([text_part("ok")])],
    [HI, said("I patch."), custom_call(), call(1), custom_output(), output(1)],
    [thought("Nobody spoke."), said("Hello?"), HI],
    [HI, {"role": "assistant", "content": "Yes?"}, call(), output()],
    [HI, user("Hello again"), user("And again")],
]
TOOLS: list[list[Item]] = [
    [],
    [LOOK],
    [BARE],
    [LOOK, BARE, PATCH],
    [SPACE],
    [SEARCH],
    [LOOK, SEARCH, PATCH, SPACE],
    [PATCH | {"description": None}],
    [LOOK | {"strict": True}],
    [LOOK | {"defer_loading": True}],
]
BODIES: list[Item] = [
    {"model": "policy", "input": items, "tools": TOOLS[at % len(TOOLS)]}
    | ({"instructions": "You are a model."} if at % 2 else {})
    for at, items in enumerate(INPUTS)
] + [{"model": "policy", "input": "Hello", "tools": tools} for tools in TOOLS]

VLLM = """
import json, sys
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.openai.responses.utils import construct_input_messages, construct_tool_dicts

def plain(message):
    fields = dict(message)
    if not isinstance(fields.get("content"), str | None):
        fields["content"] = [dict(part) for part in fields["content"]]
    if fields.get("tool_calls"):
        fields["tool_calls"] = [dict(call) for call in fields["tool_calls"]]
    return fields

def theirs(body):
    request = ResponsesRequest.model_validate(body)
    messages = construct_input_messages(
        request_instructions=request.instructions, request_input=request.input
    )
    return messages, construct_tool_dicts(request.tools, request.tool_choice)

def ours(chat):
    request = ChatCompletionRequest.model_validate(chat | {"model": "policy"})
    return request.messages, request.tools and [tool.model_dump() for tool in request.tools]

def read(way, request):
    try:
        messages, tools = {"theirs": theirs, "ours": ours}[way](request)
        return [[*map(plain, messages)], tools or []]
    except ValueError as error:
        return str(error)

told = [read(way, request) for way, request in json.load(sys.stdin)]
print(json.dumps({"fields": [*ResponsesRequest.model_fields], "read": told}))
"""
"""In a process of its own: importing vLLM changes the one that does."""


def turn_of(reply: Message, finish_reason: str = "stop") -> Turn:
    return Turn(
        session_id="mine",
        index=0,
        kind="main",
        prompt_ids_T=[1, 2, 3],
        sampled_ids_T=[4, 5],
        logprobs_T=[-0.1, -0.2],
        versions_T=[0, 0],
        finish_reason=finish_reason,
        messages=[],
        reply=reply,
        created_s=1_700_000_009.5,
        id=7,
    )


@cache
def by_vllm(requests: str) -> Item:
    """The fields of vLLM's request, and what it reads of `requests`: pairs of whose they are and
    a request, as JSON."""
    told = subprocess.run(
        [sys.executable, "-c", VLLM],
        input=requests,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert told.returncode == 0, told.stderr[-2000:]
    told_json: Item = json.loads(told.stdout.splitlines()[-1])
    return told_json
