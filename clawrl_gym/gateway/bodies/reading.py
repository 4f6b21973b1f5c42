"""The content of a request's body: parsed, checked, classified and digested.

All of it is a function of the body's bytes, so it runs in this process or in another one
(`bodies.py`); the result is small, but for the words of the conversation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, Self, TypeVar

from clawrl_gym.config import LiveConfig
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import ChatBody, JsonObject, Message
from clawrl_gym.gateway.wire.identify import Origin, Reading, RequestRules
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.gateway.wire.requests import (
    ChatRequest,
    CompletionRequest,
    GenerationRequest,
    parse_as,
    parse_json,
)

BYTES_PER_TOKEN = 32
"""Text of more bytes than this a token fits no context: JSON escapes take 6 bytes a letter, and a
token is 1 to 5 letters."""
_NAMES = ("session_id", "session_done", "user", "metadata")
R = TypeVar("R", bound=GenerationRequest)


@dataclass(frozen=True, slots=True)
class Sender:
    """Facts beside the body that its meaning depends on."""

    user: str
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers, names in lower case."""

    @classmethod
    def of(cls, origin: Origin) -> Self:
        return cls(origin.user, dict(origin.lowercase_headers))


@dataclass(frozen=True, slots=True)
class ReadRequest(Generic[R]):
    """A request for a reply, as it was read."""

    fields: R
    """The request's fields; a chat's come without its messages."""
    body: JsonObject
    """The fields that identify its session; of a request with pictures all but its messages."""
    messages: list[Message]
    """Messages, with pictures as they were sent."""
    has_pictures: bool = False
    chat: ChatBody | None = None
    """The chat template's input; None for a plain completion, and with pictures."""
    reading: Reading | None = None
    """The reading; None with pictures: these get their names first."""
    unread: tuple[str, ...] = ()
    """Names of what had no effect, in its messages, too."""


class RequestReader:
    """Reads bodies; it remembers nothing of them."""

    def __init__(self, live: LiveConfig, context: int | None = None) -> None:
        """`context`: tokens of a prompt with its reply; None: any number. Raises ConfigError for
        rules and patterns that cannot be used."""
        self.rules = RequestRules(live)
        self._context = context

    def json(self, raw: bytes, sender: Sender) -> object:
        """Any body. Raises Refusal (400)."""
        return parse_json(raw)

    def chat(self, raw: bytes, sender: Sender) -> ReadRequest[ChatRequest]:
        """POST /v1/chat/completions. Raises Refusal (400)."""
        chat, body = _parsed(raw, ChatRequest)
        messages = chat.plain_messages()
        self._check_length(messages)
        fields = chat.model_copy(update={"messages": []})
        if chat.has_pictures:
            others = {name: value for name, value in body.items() if name != "messages"}
            return ReadRequest(
                fields, others, messages, has_pictures=True, unread=tuple(chat.unread)
            )
        reading = self.rules.read(messages, body, sender.user, sender.headers)
        return ReadRequest(
            fields, _named(body), messages, chat=chat.body(messages), reading=reading,
            unread=tuple(chat.unread),
        )  # fmt: skip

    def text(self, raw: bytes, sender: Sender) -> ReadRequest[CompletionRequest]:
        """POST /v1/completions, a side turn; ids stand for the message that they are not. Raises
        Refusal (400)."""
        completion, body = _parsed(raw, CompletionRequest)
        prompt = completion.one_prompt
        content = prompt if isinstance(prompt, str) else json.dumps(prompt)
        messages: list[Message] = [{"role": "user", "content": content}]
        if isinstance(prompt, str):
            self._check_length(messages)
        side = {**body, "turn_type": "side"}
        reading = self.rules.read(messages, side, sender.user, sender.headers)
        reading = replace(reading, kind="side", rule="completion")
        unread = tuple(completion.unread)
        return ReadRequest(completion, _named(body), messages, reading=reading, unread=unread)

    def _check_length(self, messages: list[Message]) -> None:
        """Before it is hashed, recorded and tokenised: a text that can never fit."""
        if self._context is None:
            return
        length = sum(len(text_of(message)) for message in messages)
        if length > BYTES_PER_TOKEN * self._context:
            raise Refusal(
                400,
                f"got messages of {length} characters, more than {BYTES_PER_TOKEN} for each of the "
                f"{self._context} tokens of the policy's maximum context length "
                "(policy.max_model_len): send a shorter history",
                "context_length_exceeded",
                "messages",
            )


def _parsed(raw: bytes, model: type[R]) -> tuple[R, JsonObject]:
    body = parse_json(raw)
    fields = parse_as(model, body)
    assert isinstance(body, dict)  # nothing else can be parsed
    return fields, body


def _named(body: JsonObject) -> JsonObject:
    """The fields that sessions are told by, and of `metadata` no more than that."""
    named = {name: body[name] for name in _NAMES if name in body}
    metadata = named.pop("metadata", None)
    if isinstance(metadata, dict) and "session_id" in metadata:
        named["metadata"] = {"session_id": metadata["session_id"]}
    return named
