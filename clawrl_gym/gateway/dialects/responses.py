"""OpenAI's Responses API (POST /v1/responses), as a dialect of chat requests.

Each field is honoured, refused by name or without effect by its nature. What chat completions has
too is decided on there (`wire/`); this file knows the rest, and the names that differ.
`tests/gateway/test_responses_fields.py` holds it against the request classes of OpenAI and vLLM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from pydantic import ConfigDict, Field, field_validator

from clawrl_gym.core.types import Json, JsonObject, Turn
from clawrl_gym.gateway.dialects.dialect import Answer, Dialect, DialectRequest, ReplyEvents
from clawrl_gym.gateway.dialects.responses_events import ResponseEvents
from clawrl_gym.gateway.dialects.responses_items import History, answer_id_of, history_of
from clawrl_gym.gateway.dialects.responses_reply import (
    ECHOED,
    beginning,
    ended,
    names_of,
    output_of,
)
from clawrl_gym.gateway.dialects.responses_tools import chosen, offered_tools
from clawrl_gym.gateway.wire.refusals import Refusal, error_json
from clawrl_gym.gateway.wire.request_fields import Refused, refuse_fields
from clawrl_gym.gateway.wire.requests import LONGEST_REPLY, ChatRequest, Fields, parse_as
from clawrl_gym.gateway.wire.wire_messages import check_depth

_LOGPROBS = "log-probs are recorded with the turn and not sent"
_WHOLE = "send previous_response_id, or the whole conversation as input"
_MOST_TOOLS = 1024
REFUSED: Mapping[str, Refused] = {
    "background": Refused("a response is the answer to its own request", (False,)),
    "context_management": Refused("a conversation is never compacted", ([],)),
    "conversation": Refused(_WHOLE),
    "enable_response_messages": Refused("the prompt is not repeated", (False,)),
    "image": Refused(
        "pictures are shown as they are",
        ({}, {"context_compression": "auto"}, {"context_compression": "disabled"}),
    ),
    "logprobs": Refused(_LOGPROBS, (False,)),
    "max_completion_tokens": Refused("send it as max_output_tokens"),
    "max_tokens": Refused("send it as max_output_tokens"),
    "messages": Refused("send them as input"),
    "n": Refused("one reply a request: send several requests", (1,)),
    "previous_input_messages": Refused(_WHOLE),
    "prompt": Refused("no prompts are stored: send instructions and input"),
    "reasoning_effort": Refused("send it as reasoning.effort"),
    "response_format": Refused("send it as text.format", ({"type": "text"},)),
    "top_logprobs": Refused(_LOGPROBS, (0,)),
    "truncation": Refused("a prompt that does not fit is refused, never cut", ("disabled",)),
    "verbosity": Refused("send it as text.verbosity", ("medium",)),
}
"""Beside those of chat completions."""
WITHOUT_EFFECT = frozenset({"access_programs", "max_tool_calls"})
"""They are about tools and models of OpenAI's own."""
_INCLUDABLE = frozenset({
    "code_interpreter_call.outputs", "computer_call_output.output.image_url",
    "file_search_call.results", "message.input_image.image_url", "reasoning.encrypted_content",
    "web_search_call.action.sources", "web_search_call.results",
})  # fmt: skip
"""What a response may include: items that it never has, and reasoning that is never encrypted."""
_USUAL = {"reasoning.context": "auto", "reasoning.mode": "standard"}
"""What has no effect, and the value with which nobody expects any."""
_IN_OWN_TERMS = {
    "max_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
    "tools.function.strict": "tools.strict",
    "verbosity": "text.verbosity",
}
"""Names in a chat request, and here."""


class TextOptions(Fields):
    """What the text of a response shall be like."""

    model_config = ConfigDict(extra="allow", frozen=True)

    format: JsonObject | None = None
    verbosity: str | None = None


class ReasoningOptions(Fields):
    """How a model shall think. A summary is not made: the reasoning itself is sent."""

    model_config = ConfigDict(extra="allow", frozen=True)

    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class ResponsesRequest(Fields):
    """POST /v1/responses."""

    model_config = ConfigDict(extra="allow", frozen=True)

    input: str | list[JsonObject]
    instructions: str | None = None
    tools: list[JsonObject] | None = Field(None, max_length=_MOST_TOOLS)
    tool_choice: str | JsonObject | None = None
    max_output_tokens: int | None = Field(None, ge=1, le=LONGEST_REPLY)
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    include: list[str] | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    metadata: JsonObject | None = None

    @field_validator("tools", "tool_choice", "text", "reasoning", "metadata", mode="before")
    @classmethod
    def _not_deep(cls, value: object) -> object:
        check_depth(value)
        return value

    @classmethod
    def check_offered(cls, body: object) -> None:
        refuse_fields(body, REFUSED)

    @property
    def continues(self) -> str:
        """Id of the answer that it continues; empty for none. Raises Refusal (400)."""
        sent = self.previous_response_id
        answer = answer_id_of(sent)
        if sent is None or (answer and sent.startswith("resp_")):
            return answer or ""
        wrong = f"previous_response_id: got {sent!r:.100}, expected the id of a response"
        raise Refusal(400, wrong, param="previous_response_id")

    @property
    def passed_on(self) -> JsonObject:
        """The fields that chat completions has under the same name."""
        own = REFUSED.keys() | WITHOUT_EFFECT
        extra = self.model_extra or {}
        passed = {name: value for name, value in extra.items() if name not in own}
        kept = {"store": self.store, "metadata": self.metadata}
        return passed | {name: value for name, value in kept.items() if value is not None}

    @property
    def options(self) -> JsonObject:
        """The fields that chat completions has under another name."""
        text, reasoning = self.text or TextOptions(), self.reasoning or ReasoningOptions()
        options = {
            "max_tokens": self.max_output_tokens,
            "response_format": _response_format(text.format),
            "verbosity": text.verbosity,
            "reasoning_effort": reasoning.effort,
        }
        return {name: value for name, value in options.items() if value is not None}

    @property
    def unread(self) -> list[str]:
        """Names of what had no effect and is not passed on."""
        options = {
            f"{of}.{name}": value
            for of, part in (("text", self.text), ("reasoning", self.reasoning))
            for name, value in ((part and part.model_extra) or {}).items()
        }
        return [
            *(f"include.{name}" for name in self.include or [] if name not in _INCLUDABLE),
            *(name for name, value in options.items() if value not in (None, _USUAL.get(name))),
        ]


def _response_format(wanted: JsonObject | None) -> JsonObject | None:
    """`text.format` in the form of chat completions."""
    if wanted is None or wanted.get("type") == "text":
        return None
    if wanted.get("type") != "json_schema":
        return wanted
    schema = {name: value for name, value in wanted.items() if name != "type"}
    return {"type": "json_schema", "json_schema": schema}


def _read(body: object) -> DialectRequest:
    request = parse_as(ResponsesRequest, body)
    if "message.output_text.logprobs" in (request.include or []):
        raise Refusal(
            400, f"include: got message.output_text.logprobs: {_LOGPROBS}", param="include"
        )
    history = history_of(request.instructions, request.input)
    offered = offered_tools(request.tools or [])
    functions, choice = chosen(request.tool_choice, offered)
    chat: JsonObject = {**request.passed_on, **request.options, "messages": history.messages}
    if functions:
        chat["tools"] = functions
    if choice is not None:
        chat["tool_choice"] = choice
    try:
        fields = parse_as(ChatRequest, chat)
    except Refusal as refusal:
        raise _in_own_terms(refusal, history) from None
    unread = {*map(_own_name, fields.unread), *request.unread, *history.unread, *offered.unread}
    sent = cast(JsonObject, body)  # it has been read as an object
    return DialectRequest(
        fields,
        chat,
        unread=tuple(sorted(unread)),
        echo={name: sent[name] for name in ECHOED if sent.get(name) is not None},
        continues=request.continues,
        references=history.references,
    )


def _own_name(name: str) -> str:
    if name.startswith("messages."):
        return "input." + name.removeprefix("messages.")
    return _IN_OWN_TERMS.get(name, name)


def _in_own_terms(refusal: Refusal, history: History) -> Refusal:
    """A refusal of the chat request, as one of the request that it was made of."""
    param = refusal.param or ""
    first, *rest = param.split(".")
    own = _IN_OWN_TERMS.get(first, first)
    if first == "messages":
        at = history.sources[int(rest[0])] if rest and rest[0].isdigit() else None
        own, rest = "input" if at is None else f"input.{at}", rest[1:]
    named = ".".join([own, *rest])
    message = str(refusal).replace(param, named, 1) if param else str(refusal)
    return Refusal(refusal.status, message, refusal.code, named or None)


@dataclass(frozen=True, slots=True)
class _Responses:
    """The dialect."""

    name: str = "responses"
    is_continued: bool = True

    def read(self, body: object) -> DialectRequest:
        return _read(body)

    def whole(self, turn: Turn, answer: Answer) -> Json:
        output = output_of(turn, answer, names_of(answer))
        return beginning(answer) | ended(turn, output)

    def events(self, answer: Answer) -> ReplyEvents:
        return ResponseEvents(answer)

    def error(self, refusal: Refusal) -> Json:
        return error_json(refusal)


RESPONSES: Dialect = _Responses()
