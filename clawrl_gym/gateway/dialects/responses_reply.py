"""A reply as the Responses API words it: the response object and its output items.

A response is made of a part that is known when it begins and of one that is known at its end, so
that a stream writes the former only once. The ids of all items are made of the answer's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import FunctionCall, Json, JsonObject, Message, Turn
from clawrl_gym.gateway.dialects.dialect import Answer
from clawrl_gym.gateway.dialects.responses_tools import CallName, custom_input, offered_tools
from clawrl_gym.gateway.wire.refusals import Refusal

ECHOED: Json = {
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": None,
    "safety_identifier": None,
    "store": True,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "user": None,
}
"""What a response repeats of its request, and what stands for nothing."""


@dataclass(frozen=True, slots=True)
class ItemWords:
    """How a stream words one kind of output item."""

    event: str
    """Beginning of the names of its events."""
    text: str
    """The field that holds its text, in the event that ends it."""
    part: str | None = None
    """Type of the part of its content that holds its text; None: the item itself does."""


ITEMS = {
    "reasoning": ItemWords("response.reasoning_text", "text", "reasoning_text"),
    "message": ItemWords("response.output_text", "text", "output_text"),
    "function_call": ItemWords("response.function_call_arguments", "arguments"),
    "custom_tool_call": ItemWords("response.custom_tool_call_input", "input"),
}


def names_of(answer: Answer) -> dict[str, CallName]:
    """What the client calls its tools, by the names that the model knows."""
    tools = cast(list[JsonObject], answer.echo.get("tools") or [])  # `read` has checked them
    return offered_tools(tools).names


def beginning(answer: Answer) -> JsonObject:
    """The fields of a response that are known before its reply."""
    return {
        "id": f"resp_{answer.id}",
        "object": "response",
        "created_at": int(answer.created_s),
        "model": answer.model,
        "session_id": answer.session_id,
        "background": False,
        "service_tier": "default",
        "top_logprobs": 0,
        "truncation": "disabled",
        **ECHOED,
        **answer.echo,
    }


def in_progress() -> JsonObject:
    """The other fields of a response without a reply."""
    return {
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "output": [],
        "usage": None,
    }


def ended(turn: Turn, output: list[JsonObject]) -> JsonObject:
    """The other fields of a response with its reply."""
    is_cut = is_cut_off(turn)
    return {
        **in_progress(),
        "status": "incomplete" if is_cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
        "completed_at": None if is_cut else int(turn.created_s),
        "output": output,
        "usage": _usage_of(turn),
        "turn_id": turn.id,
    }


def failed(refusal: Refusal) -> JsonObject:
    """The other fields of a response that failed."""
    code = "server_error" if refusal.status >= 500 else "invalid_prompt"
    if refusal.status == 429:
        code = "rate_limit_exceeded"
    if refusal.code == "context_length_exceeded":
        code = refusal.code  # clients know it: they shorten the conversation and ask again
    return {
        **in_progress(),
        "status": "failed",
        "error": {"code": code, "message": str(refusal)},
    }


def is_cut_off(turn: Turn) -> bool:
    return turn.finish_reason == "length"


def output_of(turn: Turn, answer: Answer, names: dict[str, CallName]) -> list[JsonObject]:
    """The items of a reply; the last one of a reply that was cut off is incomplete."""
    reply: Message = turn.reply
    items: list[JsonObject] = []
    if thoughts := reply.get("reasoning_content"):
        items.append(reasoning_item(answer.id, thoughts))
    if text := text_of(reply):
        items.append(message_item(answer.id, text))
    for index, call in enumerate(reply.get("tool_calls") or []):
        items.append(call_item(answer.id, index, call.get("id", ""), call["function"], names))
    if items and is_cut_off(turn) and "status" in items[-1]:
        items[-1]["status"] = "incomplete"
    return items


def reasoning_item(answer_id: str, text: str) -> JsonObject:
    return {
        "type": "reasoning",
        "id": f"rs_{answer_id}",
        "summary": [],
        "content": [part_of("reasoning", text)],
        "status": "completed",
    }


def message_item(answer_id: str, text: str) -> JsonObject:
    return {
        "type": "message",
        "id": f"msg_{answer_id}",
        "role": "assistant",
        "content": [part_of("message", text)],
        "status": "completed",
    }


def call_item(
    answer_id: str, index: int, call_id: str, function: FunctionCall, names: dict[str, CallName]
) -> JsonObject:
    """A call of a tool by the name that the client has for it."""
    flat, arguments = function.get("name", ""), str(function.get("arguments") or "")
    called = names.get(flat, CallName(flat))
    if called.is_custom:
        return {
            "type": "custom_tool_call",
            "id": f"ctc_{answer_id}_{index}",
            "call_id": call_id,
            "name": called.name,
            "input": custom_input(arguments),
        }
    namespace = {"namespace": called.namespace} if called.namespace else {}
    return {
        "type": "function_call",
        "id": f"fc_{answer_id}_{index}",
        "call_id": call_id,
        "name": called.name,
        **namespace,
        "arguments": arguments,
        "status": "completed",
    }


def part_of(kind: str, text: str) -> JsonObject:
    """The content of a reasoning item or of a message."""
    annotations: JsonObject = {"annotations": []} if kind == "message" else {}
    return {"type": ITEMS[kind].part, "text": text, **annotations, **logprobs_of(kind)}


def logprobs_of(kind: str) -> JsonObject:
    """A message says that it has none."""
    return {"logprobs": []} if kind == "message" else {}


def text_in(item: JsonObject) -> str:
    """The text of an output item, its arguments or its input."""
    words = ITEMS[str(item["type"])]
    holder = cast(list[JsonObject], item["content"])[0] if words.part else item
    return str(holder[words.text])


def _usage_of(turn: Turn) -> JsonObject:
    prompt, sampled = len(turn.prompt_ids_T), len(turn.sampled_ids_T)
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": sampled,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + sampled,
    }
