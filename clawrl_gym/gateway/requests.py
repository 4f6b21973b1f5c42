"""Requests for replies, as OpenAI clients send them: checked, and as chat templates read them.

What comes in is checked here and nowhere else; unknown fields are let through unread, because every
client sends some. What chat templates and parsers read is checked before it reaches them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from reprlib import Repr
from typing import Annotated, Literal, TypeVar, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from clawrl_gym.config import SamplingConfig
from clawrl_gym.core.types import (
    ChatBody,
    Content,
    FunctionCall,
    JsonObject,
    Message,
    Split,
    Tool,
    ToolCall,
)
from clawrl_gym.core.types import (
    ContentPart as PlainPart,
)
from clawrl_gym.gateway.refusals import Refusal
from clawrl_gym.policy.generation import Sampling

MOST_MESSAGES = 16_384
LONGEST_REPLY = 2**31 - 1
_MOST_TOOLS = 1024
_MOST_STOPS = 16
_LARGEST_TOKEN = 2**31 - 1
_DEEPEST = 64
"""Levels of JSON in what is passed on; templates and parsers recurse over it."""
_NAMELESS = "expected a function.name each"
_OPTIONAL = ("tool_calls", "tool_call_id", "reasoning_content")
"""Fields of a message that are passed on where they hold something."""
_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:~@+=-]{0,199}")
F = TypeVar("F", bound="Fields")


class Fields(BaseModel):
    """Base of what comes in: unknown fields are tolerated.

    Names of classes below it are in what clients read of a wrong field.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)


class _FirstError(FailFast):
    """Ends the reading of a list at its first error: one for each of its items helps nobody."""

    def __hash__(self) -> int:  # a part of a union's type must have one
        return hash(type(self))


class ImageUrl(Fields):
    """Where a picture is."""

    url: str


class ContentPart(Fields):
    """A part of a message's content: a text or a picture."""

    type: str
    text: str = ""
    image_url: ImageUrl | None = Field(None, validate_default=True)

    @field_validator("type")
    @classmethod
    def _text_or_picture(cls, kind: str) -> str:
        if kind == "image_url":
            return kind
        if kind not in ("text", "input_text", "output_text"):
            raise ValueError("expected 'text' or 'image_url'")
        return "text"

    @field_validator("image_url", mode="before")
    @classmethod
    def _with_url(cls, image_url: object, info: ValidationInfo) -> object:
        if image_url is None and info.data.get("type") == "image_url":
            raise ValueError("expected {'url': 'data:image/...'}")
        return {"url": image_url} if isinstance(image_url, str) else image_url

    def plain(self) -> PlainPart:
        if self.image_url is None or self.type == "text":
            return {"type": "text", "text": self.text}
        return {"type": "image_url", "image_url": {"url": self.image_url.url}}


class WireMessage(Fields):
    """One chat message."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[ContentPart], _FirstError()] | None = None
    tool_calls: list[JsonObject] | None = Field(None, max_length=_MOST_TOOLS)
    tool_call_id: str | None = None
    reasoning_content: str | None = None

    @field_validator("tool_calls")
    @classmethod
    def _calls_of_functions(cls, calls: list[JsonObject] | None) -> list[JsonObject] | None:
        for call in calls or []:
            function = _function_of(call)
            if not isinstance(function.get("arguments", ""), str | dict | None):
                raise ValueError("expected arguments as JSON text")
        return calls

    @property
    def has_pictures(self) -> bool:
        parts = self.content if isinstance(self.content, list) else []
        return any(part.type == "image_url" for part in parts)

    def plain(self) -> Message:
        """As rendered: text parts joined unless a picture is among them, `developer` under its
        older name."""
        content: Content
        if not isinstance(self.content, list):
            content = self.content
        elif self.has_pictures:
            content = [part.plain() for part in self.content]
        else:
            content = "\n".join(part.text for part in self.content)
        role = "system" if self.role == "developer" else self.role
        optional = {name: getattr(self, name) for name in _OPTIONAL if getattr(self, name)}
        return cast(Message, {"role": role, "content": content, **optional})


class Labels(Fields):
    """What the headers say about a request's session."""

    task_id: str | None = Field(None, max_length=500, alias="X-Task-Id")
    group_id: int | None = Field(None, ge=0, lt=2**63, alias="X-Group-Id")
    split: Split = Field("train", alias="X-Split")

    @field_validator("task_id")
    @classmethod
    def _printable(cls, task_id: str | None) -> str | None:
        if task_id is not None and not task_id.isprintable():
            raise ValueError("expected printable text in UTF-8")
        return task_id

    @property
    def is_live(self) -> bool:
        """It is no episode of ours."""
        return self.task_id is None and self.group_id is None


_LABELS = tuple(label.alias for label in Labels.model_fields.values() if label.alias)


class StreamOptions(Fields):
    """How a stream ends."""

    include_usage: bool | None = None


class GenerationRequest(Fields):
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


class ChatRequest(GenerationRequest):
    """POST /v1/chat/completions."""

    messages: Annotated[list[WireMessage], _FirstError()] = Field(
        min_length=1, max_length=MOST_MESSAGES
    )
    max_completion_tokens: int | None = Field(None, ge=1, le=LONGEST_REPLY)
    tools: list[JsonObject] | None = Field(None, max_length=_MOST_TOOLS)
    tool_choice: Literal["auto", "none"] | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: JsonObject | None = None

    @field_validator("tools")
    @classmethod
    def _functions(cls, tools: list[JsonObject] | None) -> list[JsonObject] | None:
        for tool in tools or []:
            if not _function_of(tool)["name"]:
                raise ValueError(_NAMELESS)
        return tools

    @field_validator("chat_template_kwargs")
    @classmethod
    def _not_deep(cls, kwargs: JsonObject | None) -> JsonObject | None:
        _check_depth(kwargs)
        return kwargs

    @property
    def has_pictures(self) -> bool:
        return any(message.has_pictures for message in self.messages)

    def plain_messages(self) -> list[Message]:
        return [message.plain() for message in self.messages]

    def body(self, messages: list[Message]) -> ChatBody:
        """What the chat template and the parsers read; nothing else reaches vLLM."""
        body = ChatBody(messages=[renderable(message) for message in messages])
        if self.tools is not None:
            body["tools"] = cast(list[Tool], self.tools)  # each has been checked
        if self.tool_choice is not None:
            body["tool_choice"] = self.tool_choice
        if self.parallel_tool_calls is not None:
            body["parallel_tool_calls"] = self.parallel_tool_calls
        if self.chat_template_kwargs is not None:
            body["chat_template_kwargs"] = self.chat_template_kwargs
        return body

    def sampling(self, default: SamplingConfig) -> Sampling:
        newer = self.max_completion_tokens
        request = self if newer is None else self.model_copy(update={"max_tokens": newer})
        return super(ChatRequest, request).sampling(default)


class CompletionRequest(GenerationRequest):
    """POST /v1/completions."""

    prompt: str | list[int] | list[str] | list[list[int]]
    best_of: Literal[1] | None = None
    echo: Literal[False] | None = None
    suffix: Literal[""] | None = None

    @field_validator("prompt")
    @classmethod
    def _one(cls, prompt: str | list[int] | list[str] | list[list[int]]) -> str | list[int]:
        if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
            if len(prompt) > 1:
                raise ValueError(f"got {len(prompt)} prompts, expected one a request")
            prompt = prompt[0]
        if not prompt:
            raise ValueError("expected a prompt that is not empty")
        if isinstance(prompt, str):
            return prompt
        ids = cast(list[int], prompt)  # by its type it is a text or ids, and one of them by now
        if not 0 <= min(ids) <= max(ids) <= _LARGEST_TOKEN:
            raise ValueError("expected token ids from 0 on")
        return ids

    @property
    def one_prompt(self) -> str | list[int]:
        """Text or ids."""
        return cast("str | list[int]", self.prompt)  # the validator leaves nothing else


def renderable(message: Message) -> Message:
    """As chat templates can read it: each call has its arguments as one JSON object.

    A reply that the token limit cut off in its call comes back so, and its conversation must be
    able to go on. What clients usually send is left as it is.
    """
    calls = message.get("tool_calls") or []
    mended: list[ToolCall] = [
        {**call, "function": _with_object(call["function"])} for call in calls
    ]
    if all(new["function"] is old["function"] for new, old in zip(mended, calls, strict=True)):
        return message
    return {**message, "tool_calls": mended}


def _with_object(function: FunctionCall) -> FunctionCall:
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        return {**function, "arguments": json.dumps(arguments)}
    if not arguments:
        return {**function, "arguments": "{}"}
    try:
        fields = json.loads(arguments)
        _check_depth(fields)
        is_object = isinstance(fields, dict)
    except (ValueError, RecursionError):
        is_object = False
    return function if is_object else {**function, "arguments": json.dumps({"_": arguments})}


def _function_of(tool_or_call: JsonObject) -> JsonObject:
    """The function of a tool or of a call, whose name may be empty: a policy may have called so,
    and its client says it again. Raises ValueError for anything else."""
    function = tool_or_call.get("function")
    if tool_or_call.get("type", "function") != "function" or not isinstance(function, dict):
        raise ValueError("expected {'type': 'function', 'function': {...}} each")
    if not isinstance(function.get("name"), str):
        raise ValueError(_NAMELESS)
    _check_depth(tool_or_call)
    return function


def _check_depth(value: object, levels: int = _DEEPEST) -> None:
    """Raises ValueError for JSON that is nested too deeply to be passed on."""
    if not levels:
        raise ValueError(f"expected at most {_DEEPEST} levels of JSON")
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in items:
        if isinstance(item, dict | list):
            _check_depth(item, levels - 1)


_NOT_OFFERED = {
    "n": "one reply a request: send n=1, or several requests in sessions of their own",
    "logprobs": "log-probs are recorded with the turn and not sent: send logprobs=false",
    "tool_choice": "replies are sampled freely and calls cannot be forced: send 'auto' or 'none'",
}
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 100


def parse_json(raw: bytes) -> object:
    """The JSON of a request. Raises Refusal (400) for anything that is not clean JSON."""
    try:
        text = raw.decode()
        body: object = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(body, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"got a body that is not JSON ({error}), expected JSON") from None
    return body


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is too large for a number")
    return number


def parse_as(model: type[F], body: object) -> F:
    """`body` as `model`. Raises Refusal (400) saying what was got and expected."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        wrong = max(error.errors(include_url=False), key=lambda entry: len(entry["loc"]))
    where = ".".join(str(part) for part in wrong["loc"]) or "body"
    sent = _SHORT.repr(wrong["input"])
    if where in _NOT_OFFERED:
        raise Refusal(400, f"got {where}={sent}; {_NOT_OFFERED[where]}", param=where)
    raise Refusal(400, f"{where}: got {sent}: {wrong['msg']}", param=where)


def labels_of(headers: Mapping[str, str]) -> Labels:
    """The labels in a request's headers. Raises Refusal (400)."""
    return parse_as(Labels, {name: headers[name] for name in _LABELS if name in headers})


def session_id_of(text: str) -> str:
    """Raises Refusal (400) for what cannot name a session."""
    if _SESSION_ID.fullmatch(text) is None:
        raise Refusal(
            400,
            f"got session id {text[:80]!r}, expected 1 to 200 letters, digits or ._:~@+=-",
            param="session_id",
        )
    return text
