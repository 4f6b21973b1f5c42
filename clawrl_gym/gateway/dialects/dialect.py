"""What a dialect is: an API of replies that clients speak, and its way to and from a chat request.

Inside there is one form of a request, that of chat completions (`wire/requests.py`), and one of a
reply, a `Turn` and the deltas that it is made of. A dialect reads its own requests into the former
and words the latter in its own terms. Sessions, kinds of turns, next states and samples do not
depend on it: the same conversation in three dialects is the same turns.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from clawrl_gym.core.types import Json, JsonObject, Turn
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.gateway.wire.requests import ChatRequest, CompletionRequest
from clawrl_gym.inference.generation import Delta


@dataclass(frozen=True, slots=True)
class DialectRequest:
    """A request for a reply, read from its dialect."""

    fields: ChatRequest | CompletionRequest
    body: JsonObject
    """The request in the form of chat completions; sessions are told by its fields."""
    unread: tuple[str, ...] = ()
    """Names of what had no effect, as the dialect calls them."""
    echo: JsonObject = field(default_factory=dict)
    """What the answer repeats of the request."""
    continues: str = ""
    """Id (`Answer.id`) of the answer that it continues: the conversation up to there comes before
    its messages. Empty: the messages are the whole conversation."""
    references: Mapping[int, str] = field(default_factory=dict)
    """Messages of `fields` that only stand for the reply of an earlier answer: index, and the
    answer's id."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What an answer says beside its turn."""

    id: str
    """Names the answer, and is a part of the ids of what it holds: 32 hexadecimal digits."""
    model: str
    session_id: str
    """The session's name, as its user knows it."""
    wants_usage: bool = True
    """Whether the end of a stream has the token counts."""
    echo: Json = field(default_factory=dict)
    """`DialectRequest.echo`."""
    created_s: float = field(default_factory=time.time)
    """Unix time at which it began; a stream says it before its turn has one."""


class ReplyEvents(Protocol):
    """The server-sent events of one streamed reply, in order."""

    @property
    def has_begun(self) -> bool:
        """A piece was made."""

    def piece(self, delta: Delta) -> bytes:
        """The events of a delta; the first ones open the stream. It is called for every token."""

    def last(self, turn: Turn) -> bytes:
        """The rest, and the end. The reply may have had no piece."""

    def failed(self, refusal: Refusal) -> bytes:
        """The end of a stream that failed."""


class Dialect(Protocol):
    """One API of replies. It keeps nothing: all is a function of its arguments."""

    @property
    def name(self) -> str:
        """Its name in metrics and logs, and to the process that reads large bodies."""

    @property
    def is_continued(self) -> bool:
        """Whether clients name its answers by their ids, instead of sending them back."""

    def read(self, body: object) -> DialectRequest:
        """A parsed body as a chat request. Raises Refusal (400) in the dialect's own terms."""

    def whole(self, turn: Turn, answer: Answer) -> Json:
        """The answer with a whole reply."""

    def events(self, answer: Answer) -> ReplyEvents:
        """The answer as a stream."""

    def error(self, refusal: Refusal) -> Json:
        """The body of an answer that is an error."""
