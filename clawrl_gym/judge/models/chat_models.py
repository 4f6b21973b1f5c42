"""Models that a judge asks: the policy's own engine, or another OpenAI-compatible server.

A completion is no turn: it is neither recorded nor trained on. Servers differ in what they take and
how they end: a parameter that one refuses by name is left out from then on, and whatever reason
does not say that an answer was cut off ends a whole one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from clawrl_gym.core.errors import PolicyError, PolicyUnavailable, RequestError
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import ChatBody, Json, Message
from clawrl_gym.inference.generation import Sampling
from clawrl_gym.inference.interface import Policies
from clawrl_gym.judge.models.endpoint import JudgeEndpoint

_CUT_OFF = re.compile(
    r"length|max|limit|truncat|context|exceed|filter|safety|recitation|block|prohibited|spii|guard"
    r"|refus|sensitive|error|malformed|abort|cancel|interrupt|time.?out|incomplete|insufficient",
    re.IGNORECASE,
)
"""Reasons after which an answer is not whole."""
_TOKEN_LIMITS = ("max_completion_tokens", "max_tokens")
"""Names of one parameter; the later one is tried where a server refuses the earlier one."""
_OPTIONAL = ("temperature", *_TOKEN_LIMITS)
_NO_SYSTEM = re.compile(
    r"\bsystem\b[^.]{0,40}\b(?:roles?|messages?|prompts?|instructions?)\b"
    r"|\broles?\b[^.]{0,60}\bsystem\b|roles must alternate",
    re.IGNORECASE,
)
"""Errors by which servers say that their model takes no system message."""
_SYSTEM = "the system role"
_WORDS = ("text", "output_text")
"""Types of parts that are the answer."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer."""

    text: str
    """Sampled text; reasoning, where a server leaves it in, is part of it."""
    finished: bool
    """False: it was cut off."""


class ChatModel(Protocol):
    """Answers a list of messages."""

    async def complete(
        self, messages: list[Message], temperature: float, max_tokens: int
    ) -> Completion:
        """Sample one answer. Raises PolicyError; ContextError when the messages are too long."""
        ...


class PolicyChatModel:
    """The policy judges itself, with the weights of now."""

    def __init__(
        self, policies: Policies, version: Callable[[], int], max_requests: int = 16
    ) -> None:
        """`max_requests`: at once; more would stand in the way of replies."""
        self._policies = policies
        self._version = version
        self._room = asyncio.Semaphore(max_requests)

    async def complete(
        self, messages: list[Message], temperature: float, max_tokens: int
    ) -> Completion:
        body: ChatBody = {"messages": messages}
        session_id = f"judge-{uuid.uuid4().hex}"
        async with self._room:
            policy = self._policies.of(session_id)
            try:
                sampling = Sampling(temperature, 1.0, max_tokens)
                reply = await policy.generate_chat(body, sampling, version=self._version())
            except PolicyUnavailable:
                self._policies.failed(policy)
                raise
            finally:
                self._policies.forget(session_id)
        assert reply.whole is not None  # there is nothing that its prompt had to begin with
        generation, message = reply.whole
        return Completion(text_of(message), generation.finish_reason == "stop")


class HttpChatModel:
    """A model behind an OpenAI-compatible server."""

    def __init__(self, endpoint: JudgeEndpoint, model: str | None) -> None:
        """`model` None: the server's first one."""
        self._endpoint = endpoint
        self._model = model
        self._name_lock = asyncio.Lock()
        self._refused: set[str] = set()
        """Parameters that the server does not take."""

    async def complete(
        self, messages: list[Message], temperature: float, max_tokens: int
    ) -> Completion:
        name = await self._name()
        while True:
            body = self._body(name, messages, temperature, max_tokens)
            try:
                answer = await self._endpoint.post("/chat/completions", body)
            except RequestError as error:
                if not self._leave_out(str(error), body):
                    raise
                continue
            return _completion(answer)

    def _body(
        self, name: str, messages: list[Message], temperature: float, max_tokens: int
    ) -> Json:
        if _SYSTEM in self._refused:
            messages = _without_system(messages)
        body: dict[str, object] = {"model": name, "messages": messages}
        if "temperature" not in self._refused:
            body["temperature"] = temperature
        limits = (limit for limit in _TOKEN_LIMITS if limit not in self._refused)
        limit = next(limits, None)
        if limit is not None:
            body[limit] = max_tokens
        return body

    def _leave_out(self, error: str, body: Json) -> bool:
        """Whether there is less to ask with, after an error that names what was asked with."""
        named = [name for name in body if name in _OPTIONAL and re.search(rf"\b{name}\b", error)]
        if not named and _NO_SYSTEM.search(error) and _SYSTEM not in self._refused:
            named = [_SYSTEM]
        fresh = [name for name in named if name not in self._refused]
        if fresh:
            self._refused.update(fresh)
            _log.warning(
                "the judge's model refuses %s, it is left out from now on: %s",
                " and ".join(fresh),
                error,
            )
        return bool(named)

    async def _name(self) -> str:
        async with self._name_lock:
            if self._model is None:
                answer: Any = await self._endpoint.get("/models")
                try:
                    models = answer["data"] if isinstance(answer, dict) else answer
                    self._model = str(models[0]["id"])
                except (KeyError, IndexError, TypeError) as error:
                    raise _unexpected(answer, "a list of models; set judge.model") from error
        return self._model


def _completion(answer: Any) -> Completion:
    try:
        choice = answer["choices"][0]
        message = choice["message"] if "message" in choice else {"content": choice["text"]}
        content, reason = message.get("content"), choice.get("finish_reason")
        calls = message.get("tool_calls") or []
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise _unexpected(answer, "a chat completion") from error
    text = _text_of(content)
    if text is None:
        raise _unexpected(answer, "a chat completion in text")
    if not text and isinstance(calls, list):  # some answer by a call, though no tool is offered
        text = "\n".join(filter(None, map(_arguments, calls)))
    # half a surrogate pair is no text that could be stored
    plain = text.encode(errors="replace").decode()
    return Completion(plain, _CUT_OFF.search(str(reason or "")) is None)


def _arguments(call: object) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    arguments = function.get("arguments") if isinstance(function, dict) else None
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _without_system(messages: list[Message]) -> list[Message]:
    """The messages, with all instructions before the first person's message moved into it."""
    instructions = [text_of(message) for message in messages if message["role"] == "system"]
    first, *others = [message for message in messages if message["role"] != "system"]
    content = "\n\n".join([*instructions, text_of(first)])
    return [{"role": first["role"], "content": content}, *others]


def _text_of(content: object) -> str | None:
    """The text of a string or of parts, of which those that are not words (reasoning) are left out;
    None for anything else."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return None
    parts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
    if not all(isinstance(part, dict) for part in parts):
        return None
    texts = [part.get("text") for part in parts if part.get("type", "text") in _WORDS]
    return "".join(text for text in texts if isinstance(text, str))


def _unexpected(answer: object, expected: str) -> PolicyError:
    return PolicyError(f"the judge's model answered {str(answer)[:200]!r}, expected {expected}")
