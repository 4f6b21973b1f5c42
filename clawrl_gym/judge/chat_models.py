"""Who lends a judge its words: the policy's own vLLM, or another OpenAI-compatible server.

What a speaker says is no turn: it is neither recorded nor trained on.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from clawrl_gym.core.errors import PolicyError
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import ChatBody, Message
from clawrl_gym.judge.endpoint import Endpoint
from clawrl_gym.policy.generation import Generation, PolicyUnavailable, Sampling


@dataclass(frozen=True, slots=True)
class Said:
    """One answer."""

    text: str
    """As sampled; reasoning, where a server leaves it in, is part of it."""
    finished: bool
    """False: it was cut off."""


class Speaker(Protocol):
    """Answers a list of messages."""

    async def say(self, messages: list[Message], temperature: float, max_tokens: int) -> Said:
        """Raises PolicyError; ContextError when the messages are too long."""
        ...


class Policy(Protocol):
    """What is needed of a policy's client."""

    async def render(self, body: ChatBody) -> list[int]: ...

    async def generate(
        self,
        prompt_ids: list[int],
        sampling: Sampling,
        *,
        version: int,
        request_id: str | None = None,
    ) -> Generation: ...

    async def parse(self, body: ChatBody, generation: Generation) -> Message: ...


class Policies(Protocol):
    """Several policies with the same weights."""

    def of(self, session_id: str) -> Policy: ...

    def failed(self, policy: Any) -> None: ...

    def forget(self, session_id: str) -> None: ...


class PolicySpeaker:
    """The policy judges itself, with the weights of now."""

    def __init__(self, fleet: Policies, version: Callable[[], int], max_requests: int = 16) -> None:
        """`max_requests`: at once; more would stand in the way of replies."""
        self._fleet = fleet
        self._version = version
        self._room = asyncio.Semaphore(max_requests)

    async def say(self, messages: list[Message], temperature: float, max_tokens: int) -> Said:
        body: ChatBody = {"messages": messages}
        name = f"judge-{uuid.uuid4().hex}"
        async with self._room:
            policy = self._fleet.of(name)
            try:
                prompt_ids = await policy.render(body)
                done = await policy.generate(
                    prompt_ids, Sampling(temperature, 1.0, max_tokens), version=self._version()
                )
                message = await policy.parse(body, done)
            except PolicyUnavailable:
                self._fleet.failed(policy)
                raise
            finally:
                self._fleet.forget(name)
        return Said(text_of(message), done.finish_reason == "stop")


class HttpSpeaker:
    """A model behind an OpenAI-compatible server."""

    def __init__(self, endpoint: Endpoint, model: str | None) -> None:
        """`model` None: the server's first one."""
        self._endpoint = endpoint
        self._model = model
        self._naming = asyncio.Lock()

    async def say(self, messages: list[Message], temperature: float, max_tokens: int) -> Said:
        body = {
            "model": await self._name(),
            "messages": messages,
            "temperature": temperature,
            "max_completion_tokens": max_tokens,
        }
        answer = await self._endpoint.post("/chat/completions", body)
        try:
            choice = answer["choices"][0]
            text, reason = choice["message"].get("content"), choice.get("finish_reason")
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise _unexpected(answer, "a chat completion") from error
        if not isinstance(text, str | None):
            raise _unexpected(answer, "a chat completion in text")
        # half a surrogate pair is no text that could be stored
        return Said((text or "").encode(errors="replace").decode(), reason == "stop")

    async def _name(self) -> str:
        async with self._naming:
            if self._model is None:
                answer = await self._endpoint.get("/models")
                try:
                    self._model = str(answer["data"][0]["id"])
                except (KeyError, IndexError, TypeError) as error:
                    raise _unexpected(answer, "a list of models; set judge.model") from error
        return self._model


def _unexpected(answer: object, expected: str) -> PolicyError:
    return PolicyError(f"the judge's model answered {str(answer)[:200]!r}, expected {expected}")
