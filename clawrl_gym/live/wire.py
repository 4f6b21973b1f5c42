"""The OpenAI wire form at the gateway's border: requests in, answers and errors out.

What comes in is checked here and nowhere else; unknown fields are let through unread, because every
client sends some.
"""

from __future__ import annotations

import json
import re
from dataclasses import fields
from typing import Any, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from clawrl_gym.config import SamplingConfig
from clawrl_gym.policy.client import Sampling
from clawrl_gym.store import SessionRow
from clawrl_gym.types import Message, Split, StopReason, Turn, TurnKind

W = TypeVar("W", bound="Wire")
_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:~@+=-]{0,199}")
_RENDERED = ("tools", "tool_choice", "parallel_tool_calls", "chat_template_kwargs")
_KEPT = ("tool_calls", "tool_call_id", "reasoning_content")


class Refusal(Exception):
    """A request that the gateway does not serve, and the answer to it."""

    def __init__(
        self, status: int, message: str, code: str = "invalid_request", param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param


class Wire(BaseModel):
    """Base of what comes in: unknown fields are tolerated."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class TextPart(Wire):
    type: Literal["text"]
    text: str


class WireMessage(Wire):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None

    def plain(self) -> Message:
        """As stored and rendered: text parts joined, `developer` under its older name."""
        content = self.content
        if isinstance(content, list):
            content = "\n".join(part.text for part in content)
        role = "system" if self.role == "developer" else self.role
        kept = {key: getattr(self, key) for key in _KEPT if getattr(self, key)}
        return cast(Message, {"role": role, "content": content, **kept})


class ChatRequest(Wire):
    """POST /v1/chat/completions."""

    messages: list[WireMessage] = Field(min_length=1)
    temperature: float | None = Field(None, ge=0, le=100)
    top_p: float | None = Field(None, gt=0, le=1)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: str | list[str] | None = None
    n: Literal[1] | None = None
    stream: Literal[False] | None = None
    logprobs: Literal[False] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    @field_validator("stop")
    @classmethod
    def _few_stops(cls, stop: str | list[str] | None) -> str | list[str] | None:
        if isinstance(stop, list) and len(stop) > 16:
            raise ValueError(f"got {len(stop)} stop texts, expected at most 16")
        return stop

    def plain_messages(self) -> list[Message]:
        return [message.plain() for message in self.messages]

    def body(self, messages: list[Message]) -> dict[str, Any]:
        """What the chat template and the parsers read; nothing else reaches vLLM."""
        read = {key: getattr(self, key) for key in _RENDERED}
        given = {key: value for key, value in read.items() if value is not None}
        return {"messages": messages, **given}

    def sampling(self, default: SamplingConfig) -> Sampling:
        """How to sample: the request's own wishes, else the configuration's."""
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        longest = self.max_completion_tokens or self.max_tokens or default.max_tokens
        return Sampling(
            temperature=default.temperature if self.temperature is None else self.temperature,
            top_p=default.top_p if self.top_p is None else self.top_p,
            max_tokens=longest,
            seed=self.seed,
            stop=stop,
        )


class EndRequest(Wire):
    """POST /sessions/ID/end."""

    reward: float | None = Field(None, allow_inf_nan=False)
    stop_reason: StopReason = StopReason.TERMINATED
    next_state: list[WireMessage] | None = None
    error: str | None = None
    split: Split | None = None


class Labels(Wire):
    """What the headers say about a request."""

    task_id: str | None = Field(None, max_length=500, alias="X-Task-Id")
    group_id: int | None = Field(None, ge=0, lt=2**63, alias="X-Group-Id")
    split: Split = Field("train", alias="X-Split")
    kind: TurnKind = Field("main", alias="X-Turn-Type")

    @field_validator("task_id")
    @classmethod
    def _clean(cls, task_id: str | None) -> str | None:
        if task_id is not None and not task_id.isprintable():
            raise ValueError("expected printable text in UTF-8")
        return task_id


_NOT_OFFERED = {
    "stream": "streamed replies are not offered yet: send stream=false",
    "n": "one reply a request: send n=1, or several requests in sessions of their own",
    "logprobs": "log-probs are recorded with the turn and not sent: send logprobs=false",
}


def parse_json(raw: bytes) -> Any:
    """The JSON of a request. Raises Refusal (400) for anything that is not clean JSON."""
    try:
        text = raw.decode()
        value = json.loads(text, parse_constant=_no_constant)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"got a body that is not JSON ({error}), expected JSON") from None
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def parse_as(model: type[W], values: Any) -> W:
    """`values` as `model`. Raises Refusal (400) saying what was got and expected."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        wrong = max(error.errors(include_url=False), key=lambda item: len(item["loc"]))
    where = ".".join(str(part) for part in wrong["loc"]) or "body"
    got = repr(wrong["input"])[:100]
    if where in _NOT_OFFERED:
        raise Refusal(400, f"got {where}={got}; {_NOT_OFFERED[where]}", param=where)
    raise Refusal(400, f"{where}: got {got}: {wrong['msg']}", param=where)


def session_id_of(text: str) -> str:
    """Raises Refusal (400) for what cannot name a session."""
    if _SESSION_ID.fullmatch(text) is None:
        raise Refusal(
            400,
            f"got session id {text[:80]!r}, expected 1 to 200 letters, digits or ._:~@+=-",
            param="session_id",
        )
    return text


def error_json(status: int, message: str, code: str, param: str | None = None) -> dict[str, Any]:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def completion_json(turn: Turn, model: str) -> dict[str, Any]:
    """The answer to a chat request."""
    prompt, sampled = len(turn.prompt_ids_T), len(turn.sampled_ids_T)
    called = bool(turn.reply.get("tool_calls")) and turn.finish_reason == "stop"
    return {
        "id": f"chatcmpl-{turn.session_id}-{turn.index}",
        "object": "chat.completion",
        "created": int(turn.created_s),
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": turn.reply,
                "logprobs": None,
                "finish_reason": "tool_calls" if called else turn.finish_reason,
            }
        ],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": sampled,
            "total_tokens": prompt + sampled,
        },
    }


def turn_json(turn: Turn, next_state: list[Message] | None) -> dict[str, Any]:
    """A turn as GET /sessions/ID shows it."""
    return {
        "id": turn.id,
        "index": turn.index,
        "kind": turn.kind,
        "messages": turn.messages,
        "reply": turn.reply,
        "next_state": next_state,
        "finish_reason": turn.finish_reason,
        "prompt_tokens": len(turn.prompt_ids_T),
        "sampled_tokens": len(turn.sampled_ids_T),
        "versions": sorted(set(turn.versions_T)),
        "created_s": turn.created_s,
    }


def session_json(row: SessionRow) -> dict[str, Any]:
    """A session's own fields as GET /sessions/ID shows them."""
    return {item.name: getattr(row, item.name) for item in fields(row)}
