"""Requests for replies, as OpenAI clients send them.

What comes in is checked here and nowhere else; unknown fields are let through unread, because every
client sends some. What chat templates and parsers read is checked before it reaches them.
"""

from __future__ import annotations

import json
from typing import Any, Literal, cast

from pydantic import Field, field_validator

from clawrl_gym.config import SamplingConfig
from clawrl_gym.core.types import ChatBody, FunctionCall, Message, Tool, ToolCall
from clawrl_gym.gateway.wire import MOST_TOOLS, Wire, WireMessage, check_depth, function_of
from clawrl_gym.policy.generation import Sampling

MOST_MESSAGES = 16_384
LONGEST_REPLY = 2**31 - 1
_MOST_STOPS = 16


class StreamOptions(Wire):
    """How a stream ends."""

    include_usage: bool | None = None


class Wishes(Wire):
    """What requests for a reply have in common, whatever API they come by."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(None, ge=0, le=100)
    top_p: float | None = Field(None, gt=0, le=1)
    max_tokens: int | None = Field(None, ge=1, le=LONGEST_REPLY)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: str | list[str] | None = None
    n: Literal[1] | None = None
    logprobs: Literal[False] | None = None
    session_id: str | None = None
    turn_type: str | None = None
    session_done: bool | int | str | None = None

    @field_validator("stop")
    @classmethod
    def _few_stops(cls, stop: str | list[str] | None) -> str | list[str] | None:
        stops = [stop] if isinstance(stop, str) else stop or []
        if len(stops) > _MOST_STOPS:
            raise ValueError(f"got {len(stops)} stop texts, expected at most {_MOST_STOPS}")
        if "" in stops:
            raise ValueError("expected stop texts that are not empty")
        return stop

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def sampling(self, default: SamplingConfig) -> Sampling:
        """How to sample: the request's own wishes, else the configuration's."""
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        return Sampling(
            temperature=default.temperature if self.temperature is None else self.temperature,
            top_p=default.top_p if self.top_p is None else self.top_p,
            max_tokens=self.max_tokens or default.max_tokens,
            seed=self.seed,
            stop=stop,
        )


class ChatRequest(Wishes):
    """POST /v1/chat/completions."""

    messages: list[WireMessage] = Field(min_length=1, max_length=MOST_MESSAGES)
    max_completion_tokens: int | None = Field(None, ge=1, le=LONGEST_REPLY)
    tools: list[dict[str, Any]] | None = Field(None, max_length=MOST_TOOLS)
    tool_choice: Literal["auto", "none"] | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    @field_validator("tools")
    @classmethod
    def _tools(cls, tools: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
        for tool in tools or []:
            function_of(tool)
        return tools

    @field_validator("chat_template_kwargs")
    @classmethod
    def _not_deep(cls, values: dict[str, Any] | None) -> dict[str, Any] | None:
        check_depth(values)
        return values

    def plain_messages(self) -> list[Message]:
        return [message.plain() for message in self.messages]

    def body(self, messages: list[Message]) -> ChatBody:
        """What the chat template and the parsers read; nothing else reaches vLLM."""
        body = ChatBody(messages=[renderable(message) for message in messages])
        if self.tools is not None:
            body["tools"] = cast("list[Tool]", self.tools)  # functions are checked
        if self.tool_choice is not None:
            body["tool_choice"] = self.tool_choice
        if self.parallel_tool_calls is not None:
            body["parallel_tool_calls"] = self.parallel_tool_calls
        if self.chat_template_kwargs is not None:
            body["chat_template_kwargs"] = self.chat_template_kwargs
        return body

    def sampling(self, default: SamplingConfig) -> Sampling:
        newer = self.max_completion_tokens
        wishes = self if newer is None else self.model_copy(update={"max_tokens": newer})
        return super(ChatRequest, wishes).sampling(default)


def renderable(message: Message) -> Message:
    """As chat templates can read it: each call has its arguments as one JSON object.

    A reply that the token limit cut off in its call comes back so, and its conversation must be
    able to go on. What clients usually send is left as it is.
    """
    calls = message.get("tool_calls") or []
    mended: list[ToolCall] = [{**call, "function": _readable(call["function"])} for call in calls]
    if all(new["function"] is old["function"] for new, old in zip(mended, calls, strict=True)):
        return message
    return {**message, "tool_calls": mended}


def _readable(function: FunctionCall) -> FunctionCall:
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        return {**function, "arguments": json.dumps(arguments)}
    if not arguments:
        return {**function, "arguments": "{}"}
    try:
        value = json.loads(arguments)
        check_depth(value)
        is_object = isinstance(value, dict)
    except (ValueError, RecursionError):
        is_object = False
    return function if is_object else {**function, "arguments": json.dumps({"_": arguments})}
