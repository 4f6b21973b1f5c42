"""Replies in the terms of the Messages API: whole, as a stream, and the errors in their place.

A reply is blocks: its thoughts, its text, its calls. In a stream, thoughts and text go out as they
come. Calls go out with the end: only then is it known whether their arguments are JSON, and SDKs
fail on a stream where they are not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import Json, JsonObject, Turn
from clawrl_gym.dialogue.call_failures import object_of
from clawrl_gym.gateway.dialects.dialect import Answer
from clawrl_gym.gateway.dialects.messages_history import NO_OBJECT
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.gateway.wire.requests import renderable
from clawrl_gym.gateway.wire.sse import encode
from clawrl_gym.inference.generation import Delta

_NOT_CACHED = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
_STOP_REASONS = {"length": "max_tokens", "content_filter": "refusal"}
_EMPTY = {"thinking": {"thinking": "", "signature": ""}, "text": {"text": ""}}
"""Fields of a block that begins."""
_DELTAS = {
    "thinking": ("thinking_delta", "thinking"),
    "text": ("text_delta", "text"),
    "tool_use": ("input_json_delta", "partial_json"),
}
"""Type and field of the deltas of a block."""
_AFTER = "}}\n\n"
"""A delta behind its text."""
_ERRORS = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def message_json(turn: Turn, answer: Answer) -> Json:
    """The answer with a whole reply."""
    reason, sequence = _stop_of(turn)
    return {
        **_head(answer),
        "content": list(_blocks(turn, answer)),
        "stop_reason": reason,
        "stop_sequence": sequence,
        "usage": _usage(len(turn.prompt_ids_T), len(turn.sampled_ids_T)),
    }


def error_of(refusal: Refusal) -> Json:
    """The body of an answer that is an error."""
    other = "invalid_request_error" if refusal.status < 500 else "api_error"
    kind = _ERRORS.get(refusal.status, other)
    return {"type": "error", "error": {"type": kind, "message": str(refusal)}}


class MessageEvents:
    """The events of one streamed reply, in order."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        message = {
            **_head(answer),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage(0, 0),
        }
        self._opening = _event("message_start", {"message": message})
        self._kind = ""
        """Kind of the open block; empty: none is."""
        self._blocks = 0
        """Number of blocks that were begun."""
        self._before = ""
        """A delta of the open block up to its text; made for every token."""

    @property
    def has_begun(self) -> bool:
        """A piece was made."""
        return not self._opening

    def piece(self, delta: Delta) -> bytes:
        """Thoughts and text of a delta; a ping where it has none."""
        events, self._opening = self._opening, ""
        if delta.get("reasoning_content"):
            events += self._said("thinking", delta["reasoning_content"])
        if delta.get("content"):
            events += self._said("text", delta["content"])
        return (events or _PING).encode()

    def last(self, turn: Turn) -> bytes:
        """Calls, why it ended, the usage, and the end."""
        events, self._opening = self._opening, ""
        was_silent = not self._blocks
        for block in _blocks(turn, self._answer):
            kind = str(block["type"])
            if kind == "tool_use":
                events += self._begin(kind, {**block, "input": {}})
                events += self._before + encode(encode(block["input"])) + _AFTER
            elif was_silent:
                events += self._said(kind, str(block[kind]))
        events += self._end()
        reason, sequence = _stop_of(turn)
        fields = {
            "delta": {"stop_reason": reason, "stop_sequence": sequence},
            "usage": _usage(len(turn.prompt_ids_T), len(turn.sampled_ids_T)),
            "turn_id": turn.id,
        }
        return (events + _event("message_delta", fields) + _event("message_stop", {})).encode()

    def failed(self, refusal: Refusal) -> bytes:
        """The end of a stream that failed."""
        return _event("error", error_of(refusal)).encode()

    def _said(self, kind: str, text: str) -> str:
        begin = "" if kind == self._kind else self._begin(kind, {"type": kind, **_EMPTY[kind]})
        return f"{begin}{self._before}{encode(text)}{_AFTER}"

    def _begin(self, kind: str, block: Json) -> str:
        end, index = self._end(), self._blocks
        self._kind, self._blocks = kind, index + 1
        delta, field = _DELTAS[kind]
        self._before = (
            f'event: content_block_delta\ndata: {{"type":"content_block_delta","index":{index},'
            f'"delta":{{"type":"{delta}","{field}":'
        )
        return end + _event("content_block_start", {"index": index, "content_block": block})

    def _end(self) -> str:
        """The end of the open block."""
        kind, self._kind, index = self._kind, "", self._blocks - 1
        events = ""
        if kind == "thinking":
            delta = {"type": "signature_delta", "signature": self._answer.id}
            events = _event("content_block_delta", {"index": index, "delta": delta})
        return events + _event("content_block_stop", {"index": index}) if kind else ""


def _event(kind: str, fields: Json) -> str:
    return f"event: {kind}\ndata: {encode({'type': kind, **fields})}\n\n"


_PING = _event("ping", {})


def _head(answer: Answer) -> JsonObject:
    return {
        "id": f"msg_{answer.id}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "session_id": answer.session_id,
    }


def _usage(prompt: int, sampled: int) -> Json:
    return {"input_tokens": prompt, "output_tokens": sampled, **_NOT_CACHED}


def _blocks(turn: Turn, answer: Answer) -> Iterator[JsonObject]:
    """The blocks of a whole reply, of which there is always one.

    Its thoughts are signed, though nobody checks it: some clients take unsigned ones for text.
    """
    thoughts, text = turn.reply.get("reasoning_content"), text_of(turn.reply)
    calls = turn.reply.get("tool_calls") or []
    if thoughts:
        yield {"type": "thinking", "thinking": thoughts, "signature": answer.id}
    if text or not (thoughts or calls):
        yield {"type": "text", "text": text}
    for call, readable in zip(calls, renderable(turn.reply).get("tool_calls") or [], strict=True):
        function = call["function"]
        yield {
            "type": "tool_use",
            "id": call.get("id") or "",
            "name": function.get("name") or "",
            "input": _input_of(function.get("arguments"), readable["function"].get("arguments")),
        }


def _input_of(arguments: object, readable: object) -> JsonObject:
    """A call's arguments as the chat template would read them: one JSON object, which holds their
    text where they are none."""
    fields = object_of(str(readable))
    try:
        json.dumps(fields, allow_nan=False)  # 1e999 is JSON, and infinite once it is read
    except ValueError:
        fields = None
    return {NO_OBJECT: str(arguments)} if fields is None else fields


def _stop_of(turn: Turn) -> tuple[str, str | None]:
    """Why a reply ended, and the stop text if that did. A call that a stop text cut short is not to
    be carried out."""
    calls = turn.reply.get("tool_calls") or []
    if turn.finish_reason in _STOP_REASONS:
        return _STOP_REASONS[turn.finish_reason], None
    is_whole = bool(calls) and _is_whole(calls[-1]["function"].get("arguments"))
    if turn.stop_text is not None and not is_whole:
        return "stop_sequence", turn.stop_text
    return "tool_use" if calls else "end_turn", None


def _is_whole(arguments: object) -> bool:
    return not isinstance(arguments, str) or object_of(arguments or "{}") is not None
