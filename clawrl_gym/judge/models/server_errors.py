"""Errors with which model servers of any make refuse a request.

OpenAI's, Azure's and the proxies in front of others differ in headers, in where an error stands and
in its words.
"""

from __future__ import annotations

import email.utils
import math
import re
import time
from collections.abc import Mapping
from datetime import UTC

_TOO_LONG = re.compile(
    r"context[ _](?:length|window|size)|model[ _]len|too (?:long|many tokens)"
    r"|(?:prompt|input|sequence) length|maximum number of (?:input )?tokens|max_new_tokens"
    r"|(?:input token count|prompt contains|input tokens).*(?:exceed|max)|request too large"
    r"|reduce the length|exceeds? (?:the )?(?:available |maximum )?(?:context|token limit)",
    re.IGNORECASE | re.DOTALL,
)
_BUSY = re.compile(
    r"overload|rate.?limit|too many requests|unavailable|time.?out|timed out|server.?error"
    r"|at capacity|internal.?error|try again|busy",
    re.IGNORECASE,
)
_MILLISECONDS = "retry-after-ms"


def is_too_long(text: str) -> bool:
    """Whether an error says that the messages do not fit the model's context."""
    return _TOO_LONG.search(text) is not None


def wait_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to be left alone, by `retry-after-ms`, or by `Retry-After` in
    seconds or as a date; None: it does not say."""
    waits = (_number(headers.get(_MILLISECONDS), 1000), _retry_after_s(headers.get("Retry-After")))
    return next((max(wait, 0.0) for wait in waits if wait is not None), None)


def status_inside(answer: object) -> int | None:
    """The status of an error that a proxy hands on with 200; None for any other answer."""
    if not isinstance(answer, dict) or answer.get("choices") or answer.get("data"):
        return None
    error = answer.get("error")
    inner = error if isinstance(error, dict) else {}
    for place in (inner, answer):
        for name in ("code", "status", "status_code"):
            code = _number(place.get(name))
            if code is not None and 400 <= code < 600:
                return int(code)
    said = error or (answer.get("message") or answer if answer.get("object") == "error" else None)
    if said is None:
        return None
    return 503 if _BUSY.search(str(said)) else 400


def _retry_after_s(text: str | None) -> float | None:
    seconds = _number((text or "").strip().removesuffix("s"))
    if seconds is not None or not text:
        return seconds
    try:
        date = email.utils.parsedate_to_datetime(text)
        dated = date if date.tzinfo else date.replace(tzinfo=UTC)
        return dated.timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return None


def _number(value: object, parts: float = 1) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value) / parts
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
