"""Requests for replies, as OpenAI clients send them: checked, and as chat templates read them.

What comes in is checked here and nowhere else. Each field is honoured, refused by name or without
effect by its nature (`request_fields.py`); unknown ones are let through, because every client sends
some, and named to it. What chat templates and parsers read is checked before it reaches them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from reprlib import Repr
from typing import Annotated, Literal, Self, TypeVar, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from clawrl_gym.config import SamplingConfig
from clawrl_gym.core.text import read_json, valid_escapes
from clawrl_gym.core.types import (
    ChatBody,
    FunctionCall,
    JsonObject,
    Message,
    Split,
    Tool,
    ToolCall,
)
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.gateway.wire.request_fields import (
    REFUSED,
    TEMPLATE_ARGUMENTS,
    WITHOUT_EFFECT,
    refuse_fields,
)
from clawrl_gym.gateway.wire.structured import (
    NamedTool,
    ResponseFormat,
    StructuredOutputs,
    ToolChoice,
    check_settings,
    forced_call,
    guided_forms,
    one_of,
    response_form,
    vllm_forms,
)
from clawrl_gym.gateway.wire.wire_messages import (
    WireMessage,
    as_tool_messages,
    check_depth,
    function_of,
)
from clawrl_gym.inference.generation import Sampling
from clawrl_gym.inference.structured import Structured

MOST_MESSAGES = 16_384
LONGEST_REPLY = 2**31 - 1
_MOST_TOOLS = 1024
_MOST_STOPS = 16
_MOST_TOKENS = 16_384
"""Token ids in one field of a request's sampling."""
_LARGEST_TOKEN = 2**31 - 1
TokenId = Annotated[int, Field(ge=0, le=_LARGEST_TOKEN)]
TokenIds = Annotated[list[TokenId], Field(max_length=_MOST_TOKENS)]
Bias = Annotated[float, Field(ge=-100, le=100, allow_inf_nan=False)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:~@+=-]{0,199}")
F = TypeVar("F", bound="Fields")


class Fields(BaseModel):
    """Base of what comes in: unknown fields are tolerated.

    Names of classes below it are in what clients read of a wrong field.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    @classmethod
    def check_offered(cls, body: object) -> None:
        """Raise Refusal for fields that want what is not offered."""


class _FirstError(FailFast):
    """Ends the reading of a list at its first error: one for each of its items helps nobody."""

    def __hash__(self) -> int:  # a part of a union's type must have one
        return hash(type(self))


class Labels(Fields):
    """Statements of the headers about a request's session."""

    task_id: str | None = Field(None, max_length=500, alias="X-Task-Id")
    group_id: int | None = Field(None, ge=0, lt=2**63, alias="X-Group-Id")
    split: Split = Field("train", alias="X-Split")
    evaluation: bool = Field(False, alias="X-Clawrl-Evaluation")
    """The request measures the policy: nothing of it is judged or trained on."""

    @field_validator("task_id")
    @classmethod
    def _printable(cls, task_id: str | None) -> str | None:
        if task_id is not None and not task_id.isprintable():
            raise ValueError("expected printable text in UTF-8")
        return task_id

    @property
    def is_live(self) -> bool:
        """Whether it is not an episode of ours."""
        return self.task_id is None and self.group_id is None


_LABELS = tuple(label.alias for label in Labels.model_fields.values() if label.alias)


class StreamOptions(Fields):
    """Options of a stream's end."""

    model_config = ConfigDict(extra="allow", frozen=True)

    include_usage: bool | None = None
    continuous_usage_stats: Literal[False] | None = None
    include_obfuscation: bool | None = None
    """No effect: the pieces of a stream are as long as they are."""


class GenerationRequest(Fields):
    """Common fields of requests for a reply, in whatever API."""

    model_config = ConfigDict(extra="allow", frozen=True)

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(None, ge=0, le=100)
    top_p: float | None = Field(None, gt=0, le=1)
    max_tokens: int | None = Field(None, ge=1, le=LONGEST_REPLY)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: str | list[str] | None = None
    stop_token_ids: TokenIds | None = None
    ignore_eos: bool | None = None
    min_tokens: int | None = Field(None, ge=0, le=LONGEST_REPLY)
    top_k: int | None = Field(None, ge=-1, le=_LARGEST_TOKEN)
    min_p: float | None = Field(None, ge=0, le=1)
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: float | None = Field(None, gt=0, le=100)
    logit_bias: Annotated[dict[TokenId, Bias], Field(max_length=_MOST_TOKENS)] | None = None
    allowed_token_ids: TokenIds | None = None
    bad_words: list[str] | None = Field(None, max_length=1024)
    skip_special_tokens: bool | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: str | JsonObject | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
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

    @field_validator("bad_words")
    @classmethod
    def _some_words(cls, words: list[str] | None) -> list[str] | None:
        if words and not all(word.strip() for word in words):
            raise ValueError("expected words that are not empty")
        return words

    @model_validator(mode="after")
    def _has_one_form(self) -> Self:
        form = self.structured
        if form is not None:
            check_settings(form, {
                "allowed_token_ids": self.allowed_token_ids, "bad_words": self.bad_words,
                "min_tokens": self.min_tokens, "ignore_eos": self.ignore_eos,
            })  # fmt: skip
        return self

    @classmethod
    def check_offered(cls, body: object) -> None:
        refuse_fields(body)

    @property
    def structured(self) -> Structured | None:
        """The form that the reply is sampled in. Raises Refusal (400)."""
        return one_of(self._forms())

    def _forms(self) -> Iterator[Structured]:
        yield from response_form(self.response_format)
        yield from vllm_forms(self.structured_outputs)
        yield from guided_forms({
            "json": self.guided_json, "regex": self.guided_regex, "choice": self.guided_choice,
            "grammar": self.guided_grammar,
        })  # fmt: skip

    @property
    def unread(self) -> list[str]:
        """Names of what had no effect, though somebody may think that it has."""
        named = {name for name, value in (self.model_extra or {}).items() if value is not None}
        of_stream = (self.stream_options and self.stream_options.model_extra) or {}
        return [
            *sorted(named - REFUSED.keys() - WITHOUT_EFFECT),
            *sorted(f"stream_options.{name}" for name, value in of_stream.items() if value),
        ]

    @property
    def wants_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def sampling(self, default: SamplingConfig) -> Sampling:
        """Sampling settings: the request's own, else the configuration's."""
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        return Sampling(
            temperature=default.temperature if self.temperature is None else self.temperature,
            top_p=default.top_p if self.top_p is None else self.top_p,
            max_tokens=self.max_tokens or default.max_tokens,
            seed=self.seed,
            stop=stop,
            top_k=max(0, self.top_k or 0),
            min_p=self.min_p or 0.0,
            presence_penalty=self.presence_penalty or 0.0,
            frequency_penalty=self.frequency_penalty or 0.0,
            repetition_penalty=self.repetition_penalty or 1.0,
            logit_bias=tuple((self.logit_bias or {}).items()),
            allowed_token_ids=tuple(self.allowed_token_ids or ()),
            bad_words=tuple(self.bad_words or ()),
            stop_token_ids=tuple(self.stop_token_ids or ()),
            min_tokens=self.min_tokens or 0,
            ignore_eos=bool(self.ignore_eos),
            skip_special_tokens=self.skip_special_tokens is not False,
            structured=self.structured,
        )


class ChatRequest(GenerationRequest):
    """POST /v1/chat/completions."""

    messages: Annotated[list[WireMessage], _FirstError()] = Field(
        min_length=1, max_length=MOST_MESSAGES
    )
    max_completion_tokens: int | None = Field(None, ge=1, le=LONGEST_REPLY)
    tools: list[JsonObject] | None = Field(None, max_length=_MOST_TOOLS)
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: JsonObject | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = (
        None
    )
    add_special_tokens: Literal[False] | None = None
    documents: list[dict[str, str]] | None = Field(None, max_length=MOST_MESSAGES)

    @field_validator("messages", mode="before")
    @classmethod
    def _of_tools(cls, messages: object) -> object:
        return as_tool_messages(messages)

    @field_validator("tools")
    @classmethod
    def _functions(cls, tools: list[JsonObject] | None) -> list[JsonObject] | None:
        for tool in tools or []:
            function_of(tool)
        return tools

    @field_validator("tool_choice", mode="before")
    @classmethod
    def _known(cls, choice: object) -> object:
        if not isinstance(choice, dict) and choice not in (None, "auto", "none", "required"):
            raise ValueError("expected 'auto', 'none', 'required' or a tool by its name")
        return choice

    @field_validator("chat_template_kwargs")
    @classmethod
    def _not_deep(cls, kwargs: JsonObject | None) -> JsonObject | None:
        check_depth(kwargs)
        own = sorted((kwargs or {}).keys() & TEMPLATE_ARGUMENTS)
        if own:
            raise ValueError(f"got {', '.join(own)}, which the gateway sets: leave it out")
        return kwargs

    @property
    def unread(self) -> list[str]:
        of_messages = {name for message in self.messages for name in message.unread}
        is_strict = any(function_of(tool).get("strict") for tool in self.tools or [])
        is_free = self.structured is None
        of_tools = ["tools.function.strict"] if is_strict and is_free else []
        return [*super().unread, *of_tools, *sorted(of_messages)]

    @property
    def has_pictures(self) -> bool:
        return any(message.has_pictures for message in self.messages)

    def plain_messages(self) -> list[Message]:
        return [message.plain() for message in self.messages]

    def body(self, messages: list[Message]) -> ChatBody:
        """The input of the chat template and the parsers; nothing else reaches the engine."""
        body = ChatBody(messages=[renderable(message) for message in messages])
        if self.tools is not None:
            body["tools"] = cast(list[Tool], self.tools)  # each has been checked
        if self.tool_choice is not None:
            named = self.tool_choice
            body["tool_choice"] = named.model_dump() if isinstance(named, NamedTool) else named
        if self.parallel_tool_calls is not None:
            body["parallel_tool_calls"] = self.parallel_tool_calls
        if self.chat_template_kwargs is not None:
            body["chat_template_kwargs"] = self.chat_template_kwargs
        if self.reasoning_effort is not None:
            body["reasoning_effort"] = self.reasoning_effort
        if self.documents is not None:
            body["documents"] = self.documents
        return body

    def _forms(self) -> Iterator[Structured]:
        yield from super()._forms()
        call = forced_call(self.tool_choice, self.tools)
        if call is not None:
            yield call

    def sampling(self, default: SamplingConfig) -> Sampling:
        newer = self.max_completion_tokens
        request = self if newer is None else self.model_copy(update={"max_tokens": newer})
        return super(ChatRequest, request).sampling(default)


class CompletionRequest(GenerationRequest):
    """POST /v1/completions."""

    prompt: str | list[int] | list[str] | list[list[int]]
    add_special_tokens: Literal[True] | None = None

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
    """The message as chat templates can read it: each call's arguments as one JSON object.

    A reply that the token limit cut off in its call comes back so, and its conversation must be
    able to continue. What clients usually send is left as it is.
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
        check_depth(fields)
        is_object = isinstance(fields, dict)
    except (ValueError, RecursionError):
        is_object = False
    if not is_object:
        return {**function, "arguments": json.dumps({"_": arguments})}
    valid = valid_escapes(arguments, "client")  # the template reads what is escaped in it
    return function if valid == arguments else {**function, "arguments": valid}


_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 100


def parse_json(raw: bytes) -> object:
    """The JSON of a request, its texts made valid. Raises Refusal (400) for what is not JSON."""
    try:
        body: object = read_json(raw, "client")
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"got a body that is not JSON ({error}), expected JSON") from None
    return body


def parse_as(model: type[F], body: object) -> F:
    """`body` as `model`. Raises Refusal (400) saying what was got and expected."""
    model.check_offered(body)
    try:
        return model.model_validate(body)
    except ValidationError as error:
        wrong = max(error.errors(include_url=False), key=lambda entry: len(entry["loc"]))
    where = ".".join(str(part) for part in wrong["loc"]) or "body"
    sent = _SHORT.repr(wrong["input"])
    raise Refusal(400, f"{where}: got {sent}: {wrong['msg']}", param=where)


def labels_of(headers: Mapping[str, str]) -> Labels:
    """The labels in a request's headers. Raises Refusal (400)."""
    labels = parse_as(Labels, {name: headers[name] for name in _LABELS if name in headers})
    return labels.model_copy(update={"split": "heldout"}) if labels.evaluation else labels


def session_id_of(text: str) -> str:
    """A valid session id. Raises Refusal (400) for a text that is none."""
    if _SESSION_ID.fullmatch(text) is None:
        raise Refusal(
            400,
            f"got session id {text[:80]!r}, expected 1 to 200 letters, digits or ._:~@+=-",
            param="session_id",
        )
    return text
