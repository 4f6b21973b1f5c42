"""POST /v1/chat/completions: OpenAI's chat completions, the form that all dialects have inside."""

from __future__ import annotations

from clawrl_gym.core.types import Json, Turn
from clawrl_gym.gateway.dialects.choices import Chunks, ReplyFormat
from clawrl_gym.gateway.dialects.dialect import Answer, Dialect, DialectRequest, ReplyEvents
from clawrl_gym.gateway.wire.refusals import Refusal, error_json
from clawrl_gym.gateway.wire.requests import ChatRequest, parse_as
from clawrl_gym.gateway.wire.sse import encode


def in_both_names(reply: Json) -> Json:
    """A message or delta whose thoughts have their newer name, too: clients read one of them."""
    thoughts = reply.get("reasoning_content")
    return {**reply, "reasoning": thoughts} if thoughts else reply


_FORMAT = ReplyFormat(
    whole_object="chat.completion",
    chunk_object="chat.completion.chunk",
    id_prefix="chatcmpl-",
    opening={"delta": {"role": "assistant", "content": ""}},
    ending={"delta": {}},
    reply=lambda turn: {"message": in_both_names(turn.reply)},
    delta=lambda delta: f'"delta":{encode(in_both_names(delta))}',
)


class _Chat:
    name = "chat"
    is_continued = False

    def read(self, body: object) -> DialectRequest:
        chat = parse_as(ChatRequest, body)
        assert isinstance(body, dict)  # nothing else can be parsed
        return DialectRequest(chat, body, tuple(chat.unread))

    def whole(self, turn: Turn, answer: Answer) -> Json:
        return _FORMAT.whole(turn, answer)

    def events(self, answer: Answer) -> ReplyEvents:
        return Chunks(_FORMAT, answer)

    def error(self, refusal: Refusal) -> Json:
        return error_json(refusal)


CHAT: Dialect = _Chat()
