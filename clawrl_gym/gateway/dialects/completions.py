"""POST /v1/completions: OpenAI's plain completions, a text or ids that a reply continues.

A completion is not part of a conversation: it is a side turn.
"""

from __future__ import annotations

from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import Json, Turn
from clawrl_gym.gateway.dialects.choices import Chunks, ReplyFormat
from clawrl_gym.gateway.dialects.dialect import Answer, Dialect, DialectRequest, ReplyEvents
from clawrl_gym.gateway.wire.refusals import Refusal, error_json
from clawrl_gym.gateway.wire.requests import CompletionRequest, parse_as
from clawrl_gym.gateway.wire.sse import encode

_FORMAT = ReplyFormat(
    whole_object="text_completion",
    chunk_object="text_completion",
    id_prefix="cmpl-",
    opening={"text": ""},
    ending={"text": ""},
    reply=lambda turn: {"text": text_of(turn.reply)},
    delta=lambda delta: f'"text":{encode(delta.get("content", ""))}',
)


class _Completions:
    name = "completions"
    is_continued = False

    def read(self, body: object) -> DialectRequest:
        completion = parse_as(CompletionRequest, body)
        assert isinstance(body, dict)  # nothing else can be parsed
        return DialectRequest(completion, body | {"turn_type": "side"}, tuple(completion.unread))

    def whole(self, turn: Turn, answer: Answer) -> Json:
        return _FORMAT.whole(turn, answer)

    def events(self, answer: Answer) -> ReplyEvents:
        return Chunks(_FORMAT, answer)

    def error(self, refusal: Refusal) -> Json:
        return error_json(refusal)


COMPLETIONS: Dialect = _Completions()
