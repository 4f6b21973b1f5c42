"""The two ways to ask for a reply: POST /v1/chat/completions and POST /v1/completions.

Both find the session, have a turn made and tell it, streamed or whole. A plain completion is no
part of a conversation: it is a side turn.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Literal

from aiohttp import web
from pydantic import field_validator

from clawrl_gym.config import SamplingConfig
from clawrl_gym.core.types import Message, StopReason, Turn
from clawrl_gym.gateway.admission import Admission
from clawrl_gym.gateway.answers import completion_json, text_json
from clawrl_gym.gateway.draft import Ask
from clawrl_gym.gateway.identify import Identity
from clawrl_gym.gateway.pictures import Pictures
from clawrl_gym.gateway.prometheus import GatewayMetrics
from clawrl_gym.gateway.requests import ChatRequest, Wishes
from clawrl_gym.gateway.session import TurnRequest
from clawrl_gym.gateway.sessions import Sessions
from clawrl_gym.gateway.sse import ChatEvents, EventStream, Pace, encode, event
from clawrl_gym.gateway.turns import Send, TurnMaker
from clawrl_gym.gateway.wire import Labels, Refusal, error_json, labels_of, parse_as, refusal_of
from clawrl_gym.policy.generation import Delta

ALIAS = "policy"
"""A model name that always means the served model."""
_LARGEST_TOKEN = 2**31 - 1
_log = logging.getLogger(__name__)


class CompletionRequest(Wishes):
    """POST /v1/completions."""

    prompt: str | list[int] | list[str] | list[list[int]]
    best_of: Literal[1] | None = None
    echo: Literal[False] | None = None
    suffix: Literal[""] | None = None

    @field_validator("prompt")
    @classmethod
    def _one(cls, prompt: Any) -> str | list[int]:
        if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
            if len(prompt) > 1:
                raise ValueError(f"got {len(prompt)} prompts, expected one a request")
            prompt = prompt[0]
        if not prompt:
            raise ValueError("expected a prompt that is not empty")
        if isinstance(prompt, list) and not 0 <= min(prompt) <= max(prompt) <= _LARGEST_TOKEN:
            raise ValueError("expected token ids from 0 on")
        return prompt  # type: ignore[no-any-return]

    def ask(self, default: SamplingConfig) -> Ask:
        """Ids stand for the message that they are not."""
        prompt: Any = self.prompt
        told = prompt if isinstance(prompt, str) else json.dumps(prompt)
        return Ask([{"role": "user", "content": told}], self.sampling(default), prompt=prompt)


class TextEvents(ChatEvents):
    """The events of one plain completion."""

    object = "text_completion"
    prefix = "cmpl-"
    speaks: ClassVar[dict[str, Any]] = {"text": ""}
    ends: ClassVar[dict[str, Any]] = {"text": ""}

    def _choice(self, delta: Delta) -> str:
        return f'"text":{encode(delta.get("content", ""))}'


class Completions:
    """Answers requests for replies."""

    def __init__(
        self,
        admission: Admission,
        sessions: Sessions,
        turns: TurnMaker,
        metrics: GatewayMetrics,
        model_name: str,
        pace: Pace,
        pictures: Pictures,
    ) -> None:
        self._admission = admission
        self._sessions = sessions
        self._turns = turns
        self._metrics = metrics
        self._model_name = model_name
        self._pace = pace
        self._pictures = pictures

    def check_model(self, name: str | None) -> None:
        """Raises Refusal (404) for a model that is not served; none named means the one."""
        if name is not None and name not in (ALIAS, self._model_name):
            wrong = f"got model {name[:100]!r}, expected {self._model_name!r}"
            raise Refusal(404, wrong, "model_not_found", "model")

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/chat/completions."""
        began_s = time.perf_counter()
        self._admission.check_rate()
        body = await self._admission.json_of(request)
        chat = parse_as(ChatRequest, body)
        self.check_model(chat.model)
        async with self._pictures.stored(chat.plain_messages()) as messages:
            return await self._chat(request, body, chat, messages, began_s)

    async def _chat(
        self,
        request: web.Request,
        body: Any,
        chat: ChatRequest,
        messages: list[Message],
        began_s: float,
    ) -> web.StreamResponse:
        labels = labels_of(request.headers)
        identity = self._sessions.identify(
            messages, body, request.headers, request.match_info.get("id")
        )
        ask = Ask(
            messages,
            chat.sampling(self._turns.sampling),
            body=chat.body(messages),
            claimable=_may_be_claimed(labels),
        )
        if chat.stream:
            events = ChatEvents(self._model_name, identity.session_id, chat.wants_usage)
            return await self._stream(request, identity, labels, ask, events, began_s)
        return await self._whole(request, identity, labels, ask, completion_json)

    async def text(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/completions."""
        began_s = time.perf_counter()
        self._admission.check_rate()
        body = await self._admission.json_of(request)
        asked = parse_as(CompletionRequest, body)
        self.check_model(asked.model)
        labels = labels_of(request.headers)
        ask = asked.ask(self._turns.sampling)
        identity = self._sessions.identify(
            ask.messages,
            {**body, "turn_type": "side"},
            request.headers,
            request.match_info.get("id"),
        )
        identity = replace(identity, kind="side", rule="completion")
        if asked.stream:
            events = TextEvents(self._model_name, identity.session_id, asked.wants_usage)
            return await self._stream(request, identity, labels, ask, events, began_s)
        return await self._whole(request, identity, labels, ask, text_json)

    async def _whole(
        self,
        request: web.Request,
        identity: Identity,
        labels: Labels,
        ask: Ask,
        form: Callable[[Turn, str], dict[str, Any]],
    ) -> web.StreamResponse:
        async with self._sessions.request(identity, labels, ask.messages) as asked:
            turn = await self._turn(asked, ask)
            version = turn.versions_T[-1] if turn.versions_T else self._turns.version
            headers = {
                "X-Session-Id": identity.session_id,
                "X-Turn-Id": str(turn.id),
                "X-Weight-Version": str(version),
            }
            response = web.json_response(form(turn, self._model_name), headers=headers)
            await response.prepare(request)
            await response.write_eof()
            self._sessions.recorder.set_delivered(asked, turn)
        return response

    async def _stream(
        self,
        request: web.Request,
        identity: Identity,
        labels: Labels,
        ask: Ask,
        events: ChatEvents,
        began_s: float,
    ) -> web.StreamResponse:
        headers = {
            "X-Session-Id": identity.session_id,
            "X-Weight-Version": str(self._turns.version),
        }
        async with EventStream(request, headers, self._pace) as stream:

            async def send(delta: Delta) -> None:
                if not events.has_begun:
                    self._metrics.first_token_s.observe(time.perf_counter() - began_s)
                await stream.send(events.piece(delta))

            try:
                async with self._sessions.request(identity, labels, ask.messages) as asked:
                    turn = await self._turn(asked, ask, send)
                    response = await stream.close(events.last(turn))
                    self._sessions.recorder.set_delivered(asked, turn)
                    return response
            except ConnectionError:
                raise
            except Exception as error:
                if not stream.is_open:
                    raise
                refusal = refusal_of(error)
                ours = error if refusal.status == 500 else None
                _log.warning("%s: a stream failed: %s", request.path, refusal, exc_info=ours)
                self._turns.stats.failed += 1
                return await stream.close(event(error_json(refusal)))

    async def _turn(self, asked: TurnRequest, ask: Ask, send: Send | None = None) -> Turn:
        """The turn, and the session's end when the client said that this is the last."""
        turn = await self._turns.turn(asked, ask, send)
        if asked.identity.done:
            await self._sessions.end(asked.session, None, None, StopReason.TERMINATED.value, None)
        return turn


def _may_be_claimed(labels: Labels) -> bool:
    """By an environment: not its own episodes."""
    return labels.task_id is None and labels.group_id is None
