"""The content of a request's body: parsed, checked, classified and digested.

All of it is a function of the body's bytes, so it runs in this process or in another one
(`bodies.py`); the result is small, but for the words of the conversation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from clawrl_gym.config import LiveConfig
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import ChatBody, Json, JsonObject, Message
from clawrl_gym.gateway.dialects.dialect import DialectRequest
from clawrl_gym.gateway.dialects.table import READERS
from clawrl_gym.gateway.wire.identify import Origin, Reading, RequestRules
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.gateway.wire.requests import ChatRequest, CompletionRequest, parse_json

BYTES_PER_TOKEN = 32
"""Text of more bytes than this a token fits no context: JSON escapes take 6 bytes a letter, and a
token is 1 to 5 letters."""
_NAMES = ("session_id", "session_done", "user", "metadata")


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
class ReadRequest:
    """A request for a reply, as it was read."""

    fields: ChatRequest | CompletionRequest
    """The request's fields; a chat's come without its messages."""
    body: Json
    """The fields that identify its session; where it has no reading, all but its messages."""
    messages: list[Message]
    """Messages, with pictures as they were sent."""
    has_pictures: bool = False
    chat: ChatBody | None = None
    """The chat template's input; None for a plain completion, and where there is no reading."""
    reading: Reading | None = None
    """The reading; None where the messages are not whole yet: pictures get their names first, and
    earlier answers are put in."""
    unread: tuple[str, ...] = ()
    """Names of what had no effect, in its messages, too."""
    echo: Json = field(default_factory=dict)
    continues: str = ""
    references: Mapping[int, str] = field(default_factory=dict)
    """`echo`, `continues` and `references` are the `DialectRequest`'s."""


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

    def request(self, reader: str, raw: bytes, sender: Sender) -> ReadRequest:
        """A request for a reply; `reader`: one of `READERS`. Raises Refusal (400)."""
        request = READERS[reader](parse_json(raw))
        if isinstance(request.fields, ChatRequest):
            return self._chat(request, request.fields, sender)
        return self._completion(request, request.fields, sender)

    def _chat(self, request: DialectRequest, chat: ChatRequest, sender: Sender) -> ReadRequest:
        messages = chat.plain_messages()
        self._check_length(messages)
        read = ReadRequest(
            fields=chat.model_copy(update={"messages": []}),
            body={name: value for name, value in request.body.items() if name != "messages"},
            messages=messages,
            has_pictures=chat.has_pictures,
            unread=request.unread,
            echo=request.echo,
            continues=request.continues,
            references=request.references,
        )
        if chat.has_pictures or request.continues or request.references:
            return read
        reading = self.rules.read(messages, request.body, sender.user, sender.headers)
        return replace(read, body=_named(request.body), chat=chat.body(messages), reading=reading)

    def _completion(
        self, request: DialectRequest, completion: CompletionRequest, sender: Sender
    ) -> ReadRequest:
        """A side turn; ids stand for the message that they are not."""
        prompt = completion.one_prompt
        content = prompt if isinstance(prompt, str) else json.dumps(prompt)
        messages: list[Message] = [{"role": "user", "content": content}]
        if isinstance(prompt, str):
            self._check_length(messages)
        reading = self.rules.read(messages, request.body, sender.user, sender.headers)
        reading = replace(reading, kind="side", rule="completion")
        body = _named(request.body)
        return ReadRequest(completion, body, messages, reading=reading, unread=request.unread)

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


def _named(body: JsonObject) -> JsonObject:
    """The fields that sessions are told by, and of `metadata` no more than that."""
    named = {name: body[name] for name in _NAMES if name in body}
    metadata = named.pop("metadata", None)
    if isinstance(metadata, dict) and "session_id" in metadata:
        named["metadata"] = {"session_id": metadata["session_id"]}
    return named
