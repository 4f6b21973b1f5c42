"""Models that a judge asks: the policy's own vLLM, or another OpenAI-compatible server.

A completion is no turn: it is neither recorded nor trained on.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from clawrl_gym.core.errors import PolicyError, PolicyUnavailable
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import ChatBody, Message
from clawrl_gym.judge.endpoint import JudgeEndpoint
from clawrl_gym.policy.generation import Sampling
from clawrl_gym.policy.interface import Policies


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer."""

    text: str
    """As sampled; reasoning, where a server leaves it in, is part of it."""
    finished: bool
    """False: it was cut off."""


class ChatModel(Protocol):
    """Answers a list of messages."""

    async def complete(
        self, messages: list[Message], temperature: float, max_tokens: int
    ) -> Completion:
        """Raises PolicyError; ContextError when the messages are too long."""
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

    async def complete(
        self, messages: list[Message], temperature: float, max_tokens: int
    ) -> Completion:
        body = {
            "model": await self._name(),
            "messages": messages,
            "temperature": temperature,
            "max_completion_tokens": max_tokens,
        }
        answer: Any = await self._endpoint.post("/chat/completions", body)
        try:
            choice = answer["choices"][0]
            text, reason = choice["message"].get("content"), choice.get("finish_reason")
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise _unexpected(answer, "a chat completion") from error
        if not isinstance(text, str | None):
            raise _unexpected(answer, "a chat completion in text")
        return Completion(text or "", reason == "stop")

    async def _name(self) -> str:
        async with self._name_lock:
            if self._model is None:
                answer: Any = await self._endpoint.get("/models")
                try:
                    self._model = str(answer["data"][0]["id"])
                except (KeyError, IndexError, TypeError) as error:
                    raise _unexpected(answer, "a list of models; set judge.model") from error
        return self._model


def _unexpected(answer: object, expected: str) -> PolicyError:
    return PolicyError(f"the judge's model answered {str(answer)[:200]!r}, expected {expected}")
