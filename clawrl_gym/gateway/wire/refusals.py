"""Refusals: what the gateway does not serve, as an exception inside and an OpenAI error outside."""

from __future__ import annotations

from typing import TypedDict

from clawrl_gym.core.errors import (
    ClawError,
    ContextError,
    DiskFull,
    PolicyError,
    ReplyTimeout,
    RequestError,
)

_DISK_FULL = (
    "the gateway's disk is full and what is not recorded is not answered: make room on it and ask "
    "again, or serve with live.record=false, which continues unrecorded"
)


_MOST_CHARS = 1000


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
        """`retry_after_s` is sent with 429 and 503 only."""
        super().__init__(_in_one_line(message))
        self.status = status
        self.code = code
        self.param = param
        self.retry_after_s = retry_after_s


def _in_one_line(message: str) -> str:
    """The message in one line, cut; quotations may be long and have line breaks."""
    line = " ".join(message.splitlines())
    return line if len(line) <= _MOST_CHARS else f"{line[: _MOST_CHARS - 3]}..."


class ErrorFields(TypedDict):
    """Fields inside an OpenAI error."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorBody(TypedDict):
    """An error in the OpenAI form."""

    error: ErrorFields


def refusal_of(error: Exception) -> Refusal:
    """The response to a client for an error."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, ContextError):
        return Refusal(400, str(error), "context_length_exceeded", "messages")
    if isinstance(error, RequestError):
        return Refusal(400, str(error), param="messages")
    if isinstance(error, ReplyTimeout):
        return Refusal(504, str(error), "policy_unavailable")
    if isinstance(error, PolicyError):
        return Refusal(502, str(error), "policy_unavailable")
    if isinstance(error, DiskFull):
        return Refusal(507, _DISK_FULL, "insufficient_storage")
    if isinstance(error, RecursionError):
        return Refusal(400, "the request is nested too deeply")
    is_ours = isinstance(error, ClawError)
    message = str(error) if is_ours else "the gateway failed; its log says why"
    return Refusal(500, message, "internal")


def error_json(refusal: Refusal) -> ErrorBody:
    kind = "invalid_request_error" if refusal.status < 500 else "server_error"
    if refusal.status == 429:
        kind = "rate_limit_error"
    fields: ErrorFields = {
        "message": str(refusal),
        "type": kind,
        "param": refusal.param,
        "code": refusal.code,
    }
    return {"error": fields}
