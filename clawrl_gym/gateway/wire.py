"""The gateway's border: JSON in, checked, and refusals out in the OpenAI form."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from reprlib import Repr
from typing import Any, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from clawrl_gym.core.errors import ClawError, ContextError, PolicyError, RequestError
from clawrl_gym.core.types import Message, Split

W = TypeVar("W", bound="Wire")
MOST_TOOLS = 1024
_DEEPEST = 64
"""Levels of JSON in what is passed on; templates and parsers recurse over it."""
_KEPT = ("tool_calls", "tool_call_id", "reasoning_content")
_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:~@+=-]{0,199}")


class Refusal(Exception):
    """A request that the gateway does not serve, and the answer to it."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str = "invalid_request",
        param: str | None = None,
        retry_after_s: float = 1.0,
    ) -> None:
        """`retry_after_s` is told with 429 and 503 only."""
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.retry_after_s = retry_after_s


class Wire(BaseModel):
    """Base of what comes in: unknown fields are tolerated."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class ImageUrl(Wire):
    """Where a picture is."""

    url: str


class ContentPart(Wire):
    """A part of a message's content: a text or a picture."""

    type: str
    text: str = ""
    image_url: ImageUrl | None = Field(None, validate_default=True)

    @field_validator("type")
    @classmethod
    def _known(cls, kind: str) -> str:
        if kind == "image_url":
            return kind
        if kind not in ("text", "input_text", "output_text"):
            raise ValueError("expected 'text' or 'image_url'")
        return "text"

    @field_validator("image_url", mode="before")
    @classmethod
    def _form(cls, told: Any, info: ValidationInfo) -> Any:
        if told is None and info.data.get("type") == "image_url":
            raise ValueError("expected {'url': 'data:image/...'}")
        return {"url": told} if isinstance(told, str) else told

    def plain(self) -> dict[str, Any]:
        if self.image_url is None or self.type == "text":
            return {"type": "text", "text": self.text}
        return {"type": "image_url", "image_url": {"url": self.image_url.url}}


class WireMessage(Wire):
    """One chat message."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ContentPart] | None = None
    tool_calls: list[dict[str, Any]] | None = Field(None, max_length=MOST_TOOLS)
    tool_call_id: str | None = None
    reasoning_content: str | None = None

    @field_validator("tool_calls")
    @classmethod
    def _calls(cls, calls: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
        for call in calls or []:
            function = function_of(call)
            if not isinstance(function.get("arguments", ""), str | dict | None):
                raise ValueError("expected arguments as JSON text")
        return calls

    @property
    def _shows(self) -> bool:
        parts = self.content if isinstance(self.content, list) else []
        return any(part.type == "image_url" for part in parts)

    def plain(self) -> Message:
        """As rendered: text parts joined unless a picture is among them, `developer` under its
        older name."""
        content: Any = self.content
        if isinstance(self.content, list) and self._shows:
            content = [part.plain() for part in self.content]
        elif isinstance(self.content, list):
            content = "\n".join(part.text for part in self.content)
        role = "system" if self.role == "developer" else self.role
        kept = {key: getattr(self, key) for key in _KEPT if getattr(self, key)}
        return cast(Message, {"role": role, "content": content, **kept})


class Labels(Wire):
    """What the headers say about a request's session."""

    task_id: str | None = Field(None, max_length=500, alias="X-Task-Id")
    group_id: int | None = Field(None, ge=0, lt=2**63, alias="X-Group-Id")
    split: Split = Field("train", alias="X-Split")

    @field_validator("task_id")
    @classmethod
    def _clean(cls, task_id: str | None) -> str | None:
        if task_id is not None and not task_id.isprintable():
            raise ValueError("expected printable text in UTF-8")
        return task_id


def function_of(told: dict[str, Any]) -> dict[str, Any]:
    """The function of a tool or of a call. Raises ValueError for anything else."""
    function = told.get("function")
    if told.get("type", "function") != "function" or not isinstance(function, dict):
        raise ValueError("expected {'type': 'function', 'function': {...}} each")
    if not isinstance(function.get("name"), str) or not function["name"]:
        raise ValueError("expected a function.name each")
    check_depth(told)
    return function


def check_depth(value: object, left: int = _DEEPEST) -> None:
    """Raises ValueError for JSON that is nested too deeply to be passed on."""
    if not left:
        raise ValueError(f"expected at most {_DEEPEST} levels of JSON")
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in items:
        if isinstance(item, dict | list):
            check_depth(item, left - 1)


_NOT_OFFERED = {
    "n": "one reply a request: send n=1, or several requests in sessions of their own",
    "logprobs": "log-probs are recorded with the turn and not sent: send logprobs=false",
    "tool_choice": "replies are sampled freely and calls cannot be forced: send 'auto' or 'none'",
}
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 100


def parse_json(raw: bytes) -> Any:
    """The JSON of a request. Raises Refusal (400) for anything that is not clean JSON."""
    try:
        text = raw.decode()
        value = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"got a body that is not JSON ({error}), expected JSON") from None
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is too large for a number")
    return value


def parse_as(model: type[W], values: Any) -> W:
    """`values` as `model`. Raises Refusal (400) saying what was got and expected."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        wrong = max(error.errors(include_url=False), key=lambda item: len(item["loc"]))
    where = ".".join(str(part) for part in wrong["loc"]) or "body"
    got = _SHORT.repr(wrong["input"])
    if where in _NOT_OFFERED:
        raise Refusal(400, f"got {where}={got}; {_NOT_OFFERED[where]}", param=where)
    raise Refusal(400, f"{where}: got {got}: {wrong['msg']}", param=where)


def labels_of(headers: Mapping[str, str]) -> Labels:
    """The labels in a request's headers. Raises Refusal (400)."""
    names = (info.alias for info in Labels.model_fields.values())
    return parse_as(Labels, {name: headers[name] for name in names if name and name in headers})


def session_id_of(text: str) -> str:
    """Raises Refusal (400) for what cannot name a session."""
    if _SESSION_ID.fullmatch(text) is None:
        raise Refusal(
            400,
            f"got session id {text[:80]!r}, expected 1 to 200 letters, digits or ._:~@+=-",
            param="session_id",
        )
    return text


def refusal_of(error: Exception) -> Refusal:
    """What a client is told of an error."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, ContextError):
        return Refusal(400, str(error), "context_length_exceeded", "messages")
    if isinstance(error, RequestError):
        return Refusal(400, str(error), param="messages")
    if isinstance(error, PolicyError):
        return Refusal(502, str(error), "policy_unavailable")
    if isinstance(error, RecursionError):
        return Refusal(400, "the request is nested too deeply")
    said = str(error) if isinstance(error, ClawError) else "the gateway failed; its log says why"
    return Refusal(500, said, "internal")


def error_json(refusal: Refusal) -> dict[str, Any]:
    """An error in the OpenAI form."""
    kind = "invalid_request_error" if refusal.status < 500 else "server_error"
    if refusal.status == 429:
        kind = "rate_limit_error"
    told = {"message": str(refusal), "type": kind, "param": refusal.param, "code": refusal.code}
    return {"error": told}
