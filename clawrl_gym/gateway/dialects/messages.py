"""The Messages API of Anthropic: POST /v1/messages and /v1/messages/count_tokens.

A request becomes one of chat completions as vLLM's own converter makes it, so that its prompt is
the same. Fields that only chat completions has mean here what they mean there: they are honoured,
refused by name, or named as without effect. `messages_history.py` reads the conversation,
`messages_tools.py` the tools, and `messages_reply.py` words the reply.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from pydantic import ConfigDict, Field

from clawrl_gym.core.types import Json, JsonObject, Turn
from clawrl_gym.gateway.dialects.dialect import Answer, Dialect, DialectRequest
from clawrl_gym.gateway.dialects.messages_history import History
from clawrl_gym.gateway.dialects.messages_reply import MessageEvents, error_of, message_json
from clawrl_gym.gateway.dialects.messages_tools import ToolChoice, tools_in_chat
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.gateway.wire.request_fields import Refused, refuse_fields
from clawrl_gym.gateway.wire.requests import LONGEST_REPLY, ChatRequest, Fields, parse_as

REFUSED: Mapping[str, Refused] = {
    "compaction": Refused("the gateway shortens no history: ask for a summary in a message"),
    "container": Refused("the gateway runs no code and has no skills"),
    "mcp_servers": Refused("the gateway calls no tools: connect to the server yourself", ([],)),
    "prefill": Refused("a reply begins with its first token"),
    "thread": Refused("send the whole conversation"),
}
"""Fields that want what is not offered."""
WITHOUT_EFFECT = frozenset({
    "anthropic_beta", "anthropic_version", "betas", "billing_policy", "cache_control",
    "diagnostics", "fallback_credit_token", "fallbacks", "inference_geo", "service_tier", "speed",
    "user_profile_id", "workspace_id",
})  # fmt: skip
"""They say who pays, where and how fast it is served, and who answers when a model declines."""
_TERMS = {
    "stop": "stop_sequences",
    "response_format": "output_config.format",
    "reasoning_effort": "output_config.effort or thinking",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
    "user": "metadata.user_id",
}
"""Fields of chat completions, as this API calls them."""
_OLDER_SESSION = re.compile(r"_session_([0-9A-Za-z-]{8,64})$")
R = TypeVar("R", bound="CountRequest")


class Thinking(Fields):
    """Whether and how long the policy thinks."""

    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: int | None = None
    display: str | None = None

    @property
    def unread(self) -> Iterator[str]:
        """A reply thinks as long as it does, and its thoughts are always sent."""
        if self.type == "between_tools":
            yield "thinking.type"
        if self.budget_tokens is not None:
            yield "thinking.budget_tokens"
        if self.display not in (None, "summarized"):
            yield "thinking.display"


class OutputFormat(Fields):
    """The form of a reply's text."""

    type: Literal["json_schema"]
    json_schema: JsonObject | None = Field(None, alias="schema")

    @property
    def in_chat(self) -> JsonObject:
        schema = {"name": "json_schema", "schema": self.json_schema}
        return {"type": "json_schema", "json_schema": schema}


class OutputConfig(Fields):
    """Effort and form of a reply."""

    model_config = ConfigDict(extra="allow", frozen=True)

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


class CountRequest(Fields):
    """POST /v1/messages/count_tokens."""

    model_config = ConfigDict(extra="allow", frozen=True)

    model: str = Field(min_length=1)
    messages: list[JsonObject] = Field(min_length=1)
    system: str | list[JsonObject] | None = None
    tools: list[JsonObject] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None
    """An earlier name of `output_config.format`."""
    stop_sequences: list[str] | None = None
    metadata: JsonObject | None = None
    context_management: JsonObject | None = None

    @classmethod
    def check_offered(cls, body: object) -> None:
        refuse_fields(body, REFUSED)

    def in_chat(self) -> tuple[JsonObject, set[str]]:
        """The request as one of chat completions, and names of what had no effect. Raises Refusal
        (400)."""
        history = History()
        if self.system is not None:
            history.add_system(self.system, "system")
        for at, message in enumerate(self.messages):
            history.add(message, f"messages.{at}")
        body: JsonObject = {"model": self.model, "messages": history.messages}
        body |= self._tools(history) | self._output() | _session_of(self.metadata or {})
        if self.stop_sequences:
            body["stop"] = self.stop_sequences
        extra = self.model_extra or {}
        given = {
            name: value
            for name, value in extra.items()
            if value is not None and name not in WITHOUT_EFFECT
        }
        for name in given.keys() & body.keys():
            wrong = f"got {name} beside {_TERMS[name]}, which says the same: expected one of them"
            raise Refusal(400, wrong, param=name)
        return body | given, history.unread.union(self._unread())

    def _unread(self) -> Iterator[str]:
        if self.thinking is not None:
            yield from self.thinking.unread
        if self.output_config is not None:
            extra = self.output_config.model_extra or {}
            yield from (f"output_config.{name}" for name, value in extra.items() if value)
        if _clears(self.context_management or {}):
            yield "context_management"

    def _tools(self, history: History) -> JsonObject:
        tools = tools_in_chat(self.tools or [], history.tool_changes, history.unread)
        body: JsonObject = {"tools": tools} if tools else {}
        if self.tool_choice is not None:
            body["tool_choice"] = self.tool_choice.in_chat(tools)
            if self.tool_choice.disable_parallel_tool_use:
                body["parallel_tool_calls"] = False
        return body

    def _output(self) -> JsonObject:
        config, body = self.output_config or OutputConfig(), JsonObject()
        if config.effort is not None:
            body["reasoning_effort"] = config.effort
        if self.thinking is not None and self.thinking.type == "disabled":
            body["reasoning_effort"] = "none"
        form = config.format or self.output_format
        if form is not None and form.json_schema:
            body["response_format"] = form.in_chat
        return body


class MessagesRequest(CountRequest):
    """POST /v1/messages."""

    max_tokens: int = Field(ge=1, le=LONGEST_REPLY)
    stream: bool | None = None

    def in_chat(self) -> tuple[JsonObject, set[str]]:
        if self.messages[-1].get("role") == "assistant":
            at = f"messages.{len(self.messages) - 1}"
            raise Refusal(
                400,
                f"{at}: got an assistant message as the last one, expected one of the user: the "
                "beginning of a reply cannot be given",
                param=at,
            )
        body, unread = super().in_chat()
        body["max_tokens"] = self.max_tokens
        if self.stream:
            body = {"stream_options": {"include_usage": True}} | body | {"stream": True}
        return body, unread


@dataclass(frozen=True, slots=True)
class Messages:
    """The dialect."""

    @property
    def name(self) -> str:
        return "messages"

    @property
    def is_continued(self) -> bool:
        return False

    def read(self, body: object) -> DialectRequest:
        return _read(MessagesRequest, body)

    def whole(self, turn: Turn, answer: Answer) -> Json:
        return message_json(turn, answer)

    def events(self, answer: Answer) -> MessageEvents:
        return MessageEvents(answer)

    def error(self, refusal: Refusal) -> Json:
        return error_of(refusal)


MESSAGES: Dialect = Messages()


def read_count(body: object) -> DialectRequest:
    """A request that only wants its prompt's tokens counted. Raises Refusal (400)."""
    return _read(CountRequest, body)


def count_json(tokens: int) -> Json:
    """The answer to such a request."""
    return {"input_tokens": tokens}


def models_json(names: Sequence[str]) -> Json:
    """The answer to GET /v1/models, for clients that send `anthropic-version`."""
    fields = {"type": "model", "created_at": "1970-01-01T00:00:00Z", "lifecycle": "active"}
    return {
        "data": [{**fields, "id": name, "display_name": name} for name in names],
        "has_more": False,
        "first_id": names[0] if names else None,
        "last_id": names[-1] if names else None,
    }


def _read(model: type[R], body: object) -> DialectRequest:
    chat, unread = parse_as(model, body).in_chat()
    try:
        fields = parse_as(ChatRequest, chat)
    except Refusal as refusal:
        raise _in_our_terms(refusal) from None
    names = {name.replace("tools.function.", "tools.") for name in fields.unread}
    return DialectRequest(fields, chat, tuple(sorted(names | unread)))


def _in_our_terms(refusal: Refusal) -> Refusal:
    """A refusal of the chat request, with this API's name of the field."""
    theirs, dot, rest = (refusal.param or "").partition(".")
    ours = _TERMS.get(theirs)
    if ours is None:
        return refusal
    message = str(refusal).replace(theirs, ours, 1)
    return Refusal(refusal.status, message, refusal.code, ours + dot + rest)


def _session_of(metadata: JsonObject) -> JsonObject:
    """The session that a request's metadata names, else its user. Claude Code writes both into
    `user_id`: as JSON, or one behind the other."""
    user = metadata.get("user_id")
    named = metadata.get("session_id")
    if isinstance(user, str) and named is None:
        older = _OLDER_SESSION.search(user)
        named = older[1] if older is not None else _session_in_json(user)
    if isinstance(named, str):
        return {"metadata": {"session_id": named}}
    return {"user": user} if isinstance(user, str) else {}


def _session_in_json(user: str) -> object:
    if not user.startswith("{"):
        return None
    try:
        fields = json.loads(user)
    except (ValueError, RecursionError):
        return None
    return fields.get("session_id") if isinstance(fields, dict) else None


def _clears(management: JsonObject) -> bool:
    """Whether a request wants parts of its history left out."""
    edits = management.get("edits")
    rest = [edit for edit in edits if not _keeps_all(edit)] if isinstance(edits, list) else edits
    return bool(rest or management.keys() - {"edits"})


def _keeps_all(edit: object) -> bool:
    return isinstance(edit, dict) and edit.get("keep") == "all"
