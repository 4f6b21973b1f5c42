"""Answers that hold choices: what chat completions and plain completions have in common.

A stream's events differ from each other in little, so what they repeat is encoded once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from clawrl_gym.core.types import Json, JsonObject, Turn, Usage
from clawrl_gym.gateway.dialects.dialect import Answer
from clawrl_gym.gateway.wire.refusals import Refusal, error_json
from clawrl_gym.gateway.wire.sse import END_OF_STREAM, encode, event
from clawrl_gym.inference.generation import Delta


@dataclass(frozen=True, slots=True)
class ReplyFormat:
    """The wording of a reply in one of the two."""

    whole_object: str
    """The API's name for a reply."""
    chunk_object: str
    id_prefix: str
    opening: Mapping[str, object]
    """Fields of a stream's first choice."""
    ending: Mapping[str, object]
    """Fields of a stream's last choice."""
    reply: Callable[[Turn], Mapping[str, object]]
    """Fields of the choice of a whole reply."""
    delta: Callable[[Delta], str]
    """JSON text of a choice in between, which is made for every token."""

    def whole(self, turn: Turn, answer: Answer) -> Json:
        choice = {
            "index": 0,
            **self.reply(turn),
            "logprobs": None,
            "finish_reason": finish_reason_of(turn),
        }
        return {
            "id": f"{self.id_prefix}{answer.session_id}-{turn.index}",
            "object": self.whole_object,
            "created": int(turn.created_s),
            "model": answer.model,
            "session_id": answer.session_id,
            "choices": [choice],
            "usage": usage_of(turn),
        }


class Chunks:
    """The events of one streamed reply, in order."""

    def __init__(self, reply_format: ReplyFormat, answer: Answer) -> None:
        self._format = reply_format
        self._answer = answer
        self._base: JsonObject = {
            "id": reply_format.id_prefix + answer.id,
            "object": reply_format.chunk_object,
            "created": int(time.time()),
            "model": answer.model,
        }
        no_usage = ',"usage":null' if answer.wants_usage else ""
        self._before = f'data: {encode(self._base)[:-1]},"choices":[{{"index":0,'
        self._after = f',"logprobs":null,"finish_reason":null}}]{no_usage}}}\n\n'
        names: Json = {"session_id": answer.session_id}
        self._opening = self._event(reply_format.opening, None, names)

    @property
    def has_begun(self) -> bool:
        """A piece was made."""
        return not self._opening

    def piece(self, delta: Delta) -> bytes:
        """The event of a delta; the only event that is made again and again."""
        opening, self._opening = self._opening, b""
        return opening + f"{self._before}{self._format.delta(delta)}{self._after}".encode()

    def last(self, turn: Turn) -> bytes:
        """Why it ended, the usage if the request wants it, and the end."""
        names: Json = {"session_id": self._answer.session_id, "turn_id": turn.id}
        events = self._opening + self._event(self._format.ending, finish_reason_of(turn), names)
        if self._answer.wants_usage:
            events += event({**self._base, "choices": [], "usage": usage_of(turn)})
        return events + END_OF_STREAM

    def failed(self, refusal: Refusal) -> bytes:
        """The error; no end follows it."""
        return event(error_json(refusal))

    def _event(self, fields: Mapping[str, object], finish_reason: str | None, names: Json) -> bytes:
        choice = {"index": 0, **fields, "logprobs": None, "finish_reason": finish_reason}
        usage = {"usage": None} if self._answer.wants_usage else {}
        return event({**self._base, **names, "choices": [choice], **usage})


def usage_of(turn: Turn) -> Usage:
    """Tokens in and out."""
    prompt, sampled = len(turn.prompt_ids_T), len(turn.sampled_ids_T)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": sampled,
        "total_tokens": prompt + sampled,
    }


def finish_reason_of(turn: Turn) -> str:
    """The finish reason in OpenAI's words; a call that the request named is none."""
    is_named = isinstance(turn.template.get("tool_choice"), dict)
    has_calls = bool(turn.reply.get("tool_calls")) and not is_named
    return "tool_calls" if has_calls and turn.finish_reason == "stop" else turn.finish_reason
