"""OpenAiClient: a server of the OpenAI API as the client of an engine. Chats in, texts out.

Such a server tells no ids: where ids stand, UNKNOWN_ID stands, as many times as it counts tokens,
and the weight version is -1. What it cannot be asked for is refused by name, never left out.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, cast

import aiohttp

from clawrl_gym.config import EndpointConfig
from clawrl_gym.core.errors import PolicyError, PolicyUnavailable, RequestError, boundary
from clawrl_gym.core.http import HttpPool
from clawrl_gym.core.types import UNKNOWN_ID, ChatBody, JsonObject
from clawrl_gym.inference.generation import (
    ChatReply,
    Delta,
    Generation,
    Piece,
    Sampling,
    ToolCallDelta,
    message_of,
)
from clawrl_gym.inference.interface import EngineClient
from clawrl_gym.inference.openai.answers import (
    Wording,
    asked_again,
    completion_of,
    failure_of,
    reaching,
)

_PASSED_ON = {"temperature", "top_p", "max_tokens", "seed", "stop", "presence_penalty",
              "frequency_penalty"}  # fmt: skip
"""Settings of the sampling that the API has."""
_GLANCE_S = 5.0
_SURE_S = 30.0
"""Seconds after an answer in which the server is taken to answer."""
_CONNECT_S = 10.0


class OpenAiClient(EngineClient):
    """A connection pool to one server. Use it from one event loop and close it."""

    def __init__(
        self,
        endpoint: EndpointConfig,
        timeout_s: float,
        max_connections: int,
        *,
        logprobs: bool = True,
    ) -> None:
        """`logprobs`: whether it is asked for them."""
        assert endpoint.base_url is not None
        self._base_url = endpoint.base_url.rstrip("/")
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self._logprobs = logprobs
        self._pool = HttpPool("the policy", endpoint.key, max_connections)
        self._answered_s = -math.inf
        self._wording = Wording()

    async def render(self, body: ChatBody) -> list[int]:
        raise _no_ids("the prompt of a chat")

    async def tokenize(self, text: str) -> list[int]:
        raise _no_ids("a prompt that is no chat")

    async def generate(
        self,
        prompt_ids: list[int],
        sampling: Sampling,
        *,
        version: int,
        user: str = "",
        request_id: str | None = None,
    ) -> Generation:
        raise _no_ids("a prompt of ids")

    async def logprobs(self, ids: list[int], *, version: int, user: str = "") -> list[float]:
        raise _no_ids("a text of ids")

    async def generate_chat(
        self,
        body: ChatBody,
        sampling: Sampling,
        *,
        version: int,
        user: str = "",
        prompt_ids: list[int] | None = None,
        required_prefix: Sequence[int] = (),
        request_id: str | None = None,
    ) -> ChatReply:
        """The server's own prompt, whatever `required_prefix` says: nothing can be joined to it."""
        request = self._request(body, sampling)
        answer = await asked_again(
            lambda: self._wording.asked(self._whole, request),
            self._endpoint.patience_s,
            lambda _: None,
        )
        with boundary(PolicyError, f"{self._url} answered {str(answer)[:100]!r}"):
            choice, said = answer["choices"][0], _Said()
            said.add(_logprobs_of(choice), {})
            deltas = [_delta_of(choice["message"])]
            generation = said.generation(choice.get("finish_reason"), answer.get("usage"))
        return ChatReply(generation.prompt_ids_T, (generation, message_of(deltas)))

    def stream(
        self,
        prompt_ids: list[int],
        sampling: Sampling,
        body: ChatBody | None,
        *,
        version: int,
        user: str = "",
        request_id: str | None = None,
        resume_from: Sequence[Piece] = (),
    ) -> AsyncGenerator[Piece, None]:
        return self._refused(prompt_ids)

    async def stream_chat(
        self,
        body: ChatBody,
        sampling: Sampling,
        *,
        version: int,
        user: str = "",
        required_prefix: Sequence[int] = (),
        request_id: str | None = None,
    ) -> AsyncGenerator[Piece, None]:
        request = self._request(body, sampling)
        request |= {"stream": True, "stream_options": {"include_usage": True}}
        said, reason, usage = _Said(), None, None
        yield Piece([], [], {}, prompt_ids_T=[UNKNOWN_ID])
        response = await asked_again(
            lambda: self._wording.asked(self._begun, request),
            self._endpoint.patience_s,
            lambda _: None,
        )
        async with response, aclosing(self._events(response)) as events:
            async for event in events:
                with boundary(PolicyError, f"{self._url} sent {str(event)[:100]!r}"):
                    usage = event.get("usage") or usage
                    choice = (event.get("choices") or [{}])[0]
                    reason = choice.get("finish_reason") or reason
                    delta = _delta_of(choice.get("delta") or {})
                    piece = said.add(_logprobs_of(choice), delta)
                if piece is not None:
                    yield piece
        if reason is None:
            raise PolicyUnavailable("the policy broke the stream off: it died or was stopped")
        yield Piece([], [], {}, said.generation(reason, usage))

    async def metrics(self) -> dict[str, float]:
        """No metrics: it reports none; raises PolicyError where it does not answer."""
        if time.monotonic() - self._answered_s > _SURE_S:
            await self.models()
        return {}

    async def models(self) -> list[str]:
        """Names of the models that it lists; servers need not list any. Raises PolicyError where
        nobody answers, or the key is refused."""
        url, timeout = f"{self._base_url}/models", aiohttp.ClientTimeout(total=_GLANCE_S)
        with reaching(url, _GLANCE_S):
            async with self._pool.session.get(url, timeout=timeout) as answer:
                text = await answer.text()
        if answer.status in (401, 403) or answer.status >= 500:
            raise failure_of(url, answer.status, text, None)
        self._answered_s = time.monotonic()
        try:
            return [str(model["id"]) for model in json.loads(text)["data"]]
        except (ValueError, KeyError, TypeError):
            return []

    async def close(self) -> None:
        await self._pool.close()

    @property
    def _url(self) -> str:
        return f"{self._base_url}/chat/completions"

    def _request(self, body: ChatBody, sampling: Sampling) -> JsonObject:
        """The request in the API's form. Raises RequestError for settings that the API has not."""
        request: JsonObject = {"model": self._endpoint.model, **cast(JsonObject, body)}
        request |= _settings(sampling)
        if self._endpoint.max_tokens is not None:
            request["max_tokens"] = min(sampling.max_tokens, self._endpoint.max_tokens)
        return request | ({"logprobs": True} if self._logprobs else {})

    async def _whole(self, request: JsonObject) -> Any:
        timeout = aiohttp.ClientTimeout(total=self._timeout_s, sock_connect=_CONNECT_S)
        with reaching(self._url, self._timeout_s):
            async with self._pool.session.post(self._url, json=request, timeout=timeout) as answer:
                text = await answer.text()
        if answer.status != 200:
            raise failure_of(self._url, answer.status, text, answer.headers.get("Retry-After"))
        self._answered_s = time.monotonic()
        return completion_of(self._url, text)

    async def _begun(self, request: JsonObject) -> aiohttp.ClientResponse:
        """A stream that has begun. The time limit is between two of its pieces."""
        timeout = aiohttp.ClientTimeout(sock_connect=_CONNECT_S, sock_read=self._timeout_s)
        with reaching(self._url, self._timeout_s):
            answer = await self._pool.session.post(self._url, json=request, timeout=timeout)
            if answer.status == 200:
                self._answered_s = time.monotonic()
                return answer
            async with answer:
                text = await answer.text()
        raise failure_of(self._url, answer.status, text, answer.headers.get("Retry-After"))

    async def _events(self, response: aiohttp.ClientResponse) -> AsyncGenerator[Any, None]:
        rest = b""
        with reaching(self._url, self._timeout_s):
            async for data in response.content.iter_any():
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    name, _, text = line.strip().partition(b":")
                    if name != b"data" or text.strip() == b"[DONE]":
                        continue  # to the end of the body: the connection is used again
                    with boundary(PolicyError, f"{self._url} sent {text[:100]!r}, expected JSON"):
                        event = json.loads(text)
                    if "error" in event:
                        raise PolicyUnavailable(f"the policy ended a stream: {event['error']}")
                    yield event

    async def _refused(self, prompt_ids: list[int]) -> AsyncGenerator[Piece, None]:
        raise _no_ids("a prompt of ids")
        yield Piece([], [], {})  # what makes it a generator


@dataclass(slots=True)
class _Said:
    """The reply received so far."""

    _logprobs_T: list[float | None] = field(default_factory=list)

    def add(self, logprobs_T: list[float | None], delta: Delta) -> Piece | None:
        """A piece; None where nothing was said. One without log-probs is one token at least."""
        logprobs_T = logprobs_T or ([None] if delta else [])
        self._logprobs_T += logprobs_T
        if not logprobs_T and not delta:
            return None
        return Piece([UNKNOWN_ID] * len(logprobs_T), logprobs_T, delta)

    def generation(self, reason: str | None, usage: Any) -> Generation:
        """All of it, with as many tokens as the server counts."""
        usage = usage or {}
        sampled = max(1, int(usage.get("completion_tokens") or 0), len(self._logprobs_T))
        logprobs_T = self._logprobs_T + [None] * (sampled - len(self._logprobs_T))
        prompt = max(1, int(usage.get("prompt_tokens") or 0))
        return Generation(
            prompt_ids_T=[UNKNOWN_ID] * prompt,
            sampled_ids_T=[UNKNOWN_ID] * sampled,
            logprobs_T=logprobs_T,
            versions_T=[-1] * sampled,
            finish_reason="stop" if reason in (None, "tool_calls", "function_call") else reason,
        )


def _settings(sampling: Sampling) -> JsonObject:
    """Sampling settings in the API's words. Raises RequestError naming what it has no word for."""
    changed, form = sampling.changed, sampling.structured
    in_form = None if form is None else form.for_openai
    if form is not None and in_form is not None:
        del changed[form.field]
    foreign = sorted(changed.keys() - _PASSED_ON)
    if foreign:
        raise RequestError(
            f"got {', '.join(foreign)}, which the engine behind this gateway, a server of the "
            "OpenAI API (policy.engine=openai), cannot be asked for: leave it out"
        )
    return changed | (in_form or {})


def _logprobs_of(choice: Any) -> list[float | None]:
    """Log-probs of the tokens of a choice; empty where none are given."""
    told = (choice.get("logprobs") or {}).get("content") or []
    values = [float(token["logprob"]) for token in told]
    return [value if math.isfinite(value) else None for value in values]


def _delta_of(message: Any) -> Delta:
    """The content of a message, or of a piece of it; empty where it has none."""
    delta: Delta = {}
    if message.get("content"):
        delta["content"] = str(message["content"])
    thoughts = message.get("reasoning_content") or message.get("reasoning")
    if thoughts:
        delta["reasoning_content"] = str(thoughts)
    calls = message.get("tool_calls")
    if calls:
        delta["tool_calls"] = [
            cast(ToolCallDelta, {"index": at, **call}) for at, call in enumerate(calls)
        ]
    return delta


def _no_ids(what: str) -> RequestError:
    return RequestError(
        f"got {what}, and policy.engine=openai takes no token ids and tells none, expected a "
        "chat: POST /v1/chat/completions"
    )
