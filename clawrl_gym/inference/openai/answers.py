"""Answers of servers of the OpenAI API as errors of ours, and retries.

All that ask such a server share it: an evaluation, whose episodes ask it themselves, and the engine
that serves it behind the gateway.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import aiohttp

from clawrl_gym.core.errors import (
    ContextError,
    PolicyError,
    PolicyUnavailable,
    ReplyTimeout,
    RequestError,
    RequestTooLarge,
    boundary,
)
from clawrl_gym.core.processes.pauses import growing_pauses_s
from clawrl_gym.core.types import JsonObject

T = TypeVar("T")
_REFUSED = (400, 413, 422)
"""Statuses that say that the request itself is wrong."""
_TOO_LARGE = 413
_BUSY = (408, 425, 429, 500, 502, 503, 504, 529)
"""Statuses after which the same request may be answered later."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 15.0
_SHOWN = 300
_OLDER, _NEWER = "max_tokens", "max_completion_tokens"


class TurnedAway(PolicyUnavailable):
    """A server that may answer the same request later."""

    after_s: float = 0.0
    """Seconds after which to ask again, by the server's own word."""


class Wording:
    """Name of a reply's longest length at one server: newer models of OpenAI's refuse
    `max_tokens`, and other servers do not know `max_completion_tokens`."""

    def __init__(self) -> None:
        self._is_newer = False

    async def asked(self, ask: Callable[[JsonObject], Awaitable[T]], body: JsonObject) -> T:
        """The answer of `ask` to a body, in the name that the server takes."""
        sent = self._worded(body)
        try:
            return await ask(sent)
        except RequestError as refusal:
            if _OLDER not in sent or _NEWER not in str(refusal):
                raise
        self._is_newer = True
        return await ask(self._worded(body))

    def _worded(self, body: JsonObject) -> JsonObject:
        if not self._is_newer or _OLDER not in body:
            return body
        rest = {name: value for name, value in body.items() if name != _OLDER}
        return {**rest, _NEWER: body[_OLDER]}


def completion_of(url: str, text: str) -> Any:
    """The JSON of an answer with status 200. Raises the failure that it tells of instead: routers
    in front of several providers send theirs so."""
    with boundary(PolicyError, f"{url} answered {text[:100]!r}, expected a chat completion"):
        answer = json.loads(text)
        error = None if answer.get("choices") else answer.get("error")
    if error:
        code = error.get("code") if isinstance(error, dict) else None
        raise failure_of(url, code if isinstance(code, int) else 500, text, None)
    return answer


def failure_of(url: str, status: int, text: str, retry_after: str | None) -> PolicyError:
    """The error for an answer that is not 200. `retry_after`: that header."""
    if status in _BUSY and not is_too_long(text):
        failure = TurnedAway(f"the policy answered {status} to {url}: {text[:_SHOWN]}")
        failure.after_s = _seconds(retry_after)
        return failure
    return refusal_of(url, status, text)


def refusal_of(url: str, status: int, text: str) -> PolicyError:
    """The error for a refusal that would be the same at any other time."""
    if is_too_long(text):
        return ContextError(text[:_SHOWN])
    kind = RequestError if status in _REFUSED else PolicyError
    kind = RequestTooLarge if status == _TOO_LARGE else kind
    return kind(f"the policy answered {status} to {url}: {text[:_SHOWN]}")


def is_too_long(text: str) -> bool:
    """Whether a prompt did not fit."""
    return "context_length_exceeded" in text or "maximum context length" in text


async def asked_again(
    ask: Callable[[], Awaitable[T]], patience_s: float, waited: Callable[[float], None]
) -> T:
    """The answer of `ask`, repeated with growing pauses, or when the server says, as long as it
    raises PolicyUnavailable and `patience_s` are not over. `waited` gets the seconds of each failed
    try and of the pause after it."""
    began_s = time.monotonic()
    for pause_s in growing_pauses_s(_FIRST_PAUSE_S, _LONGEST_PAUSE_S):
        asked_s = time.monotonic()
        try:
            return await ask()
        except PolicyUnavailable as failure:
            after_s = failure.after_s if isinstance(failure, TurnedAway) else 0.0
            pause_s = max(pause_s, after_s)
            now_s = time.monotonic()
            if now_s + pause_s > began_s + patience_s:
                raise
        waited(now_s - asked_s + pause_s)
        await asyncio.sleep(pause_s)
    raise AssertionError("pauses do not end")


@contextmanager
def reaching(url: str, timeout_s: float | None) -> Iterator[None]:
    """Raise ReplyTimeout when the time is over inside, PolicyUnavailable when nobody answers."""
    try:
        yield
    except aiohttp.ConnectionTimeoutError as error:
        raise PolicyUnavailable(f"the policy cannot be reached at {url}: {error!r}") from error
    except TimeoutError as error:
        raise ReplyTimeout(f"the policy had not ended its reply after {timeout_s:g} s") from error
    except aiohttp.ClientError as error:
        raise PolicyUnavailable(f"the policy did not answer {url}: {error!r}") from error


def _seconds(retry_after: str | None) -> float:
    """The header Retry-After where it is a number of seconds; else 0."""
    try:
        return max(0.0, float(retry_after or 0.0))
    except ValueError:
        return 0.0
