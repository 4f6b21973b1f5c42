"""Requests for replies, in every dialect: find the session, have a turn made, send the answer.

What is asked and how it is worded is the dialect's (`dialects/`); the way in between is one.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace

from aiohttp import web

from clawrl_gym.core.ownership import OWNER, name_of, user_of
from clawrl_gym.core.types import Json, Message, StopReason, Turn
from clawrl_gym.gateway.admission.admission import Admission
from clawrl_gym.gateway.admission.callers import caller_of, labels_by
from clawrl_gym.gateway.admission.quota import Quota
from clawrl_gym.gateway.admission.shares import Shares
from clawrl_gym.gateway.bodies.reading import ReadRequest, Sender
from clawrl_gym.gateway.dialects.chat import CHAT
from clawrl_gym.gateway.dialects.dialect import Answer, Dialect
from clawrl_gym.gateway.dialects.messages import count_json
from clawrl_gym.gateway.dialects.table import COUNT
from clawrl_gym.gateway.earlier import EarlierAnswers
from clawrl_gym.gateway.link import LinkedRequest
from clawrl_gym.gateway.prometheus import GatewayMetrics
from clawrl_gym.gateway.sessions.session import TurnRequest
from clawrl_gym.gateway.sessions.sessions import Sessions
from clawrl_gym.gateway.turns import Send, TurnInput, TurnMaker, delta_of
from clawrl_gym.gateway.wire.identify import Identity, Origin
from clawrl_gym.gateway.wire.pictures import Pictures
from clawrl_gym.gateway.wire.refusals import Refusal, refusal_of
from clawrl_gym.gateway.wire.requests import ChatRequest, GenerationRequest, Labels, labels_of
from clawrl_gym.gateway.wire.sse import EventStream, Pace
from clawrl_gym.inference.generation import Delta, for_clients

ALIAS = "policy"
"""A model name that always means the served model."""
_MOST_NAMED = 200
_MOST_IN_HEADER = 20
_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Call:
    """One request for a reply, read and assigned to its session."""

    dialect: Dialect
    fields: GenerationRequest
    identity: Identity
    labels: Labels
    turn_input: TurnInput
    answer: Answer
    began_s: float
    unread: tuple[str, ...]
    """Names of what had no effect."""

    def answer_with(self, stored: Turn | None) -> Answer:
        """The answer; a reply that is sent again keeps its id."""
        if stored is None or not stored.answer_id:
            return self.answer
        return replace(self.answer, id=stored.answer_id)


class Replies:
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
        shares: Shares,
        quota: Quota,
        earlier: EarlierAnswers,
    ) -> None:
        self._quota = quota
        self._admission = admission
        self._shares = shares
        self._sessions = sessions
        self._turns = turns
        self._metrics = metrics
        self._model_name = model_name
        self._pace = pace
        self._pictures = pictures
        self._earlier = earlier
        self._named: set[str] = set()
        """Fields without effect that the log has named."""

    def check_model(self, name: str | None) -> None:
        """Raise Refusal (404) for a model that is not served; None means the one."""
        if name is not None and name not in (ALIAS, self._model_name):
            wrong = f"got model {name[:100]!r}, expected {self._model_name!r}"
            raise Refusal(404, wrong, "model_not_found", "model")

    def handler(self, dialect: Dialect) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """The handler of a dialect's requests."""

        async def handle(request: web.Request) -> web.StreamResponse:
            began_s = time.perf_counter()
            raw, origin = await self._body(request)
            read = await self._read(dialect.name, raw, origin)
            async with self._call(dialect, read, origin, labels_by(request), began_s) as call:
                answered = self._stream if call.fields.stream else self._whole
                return await answered(request, call)

        return handle

    async def linked(self, request: LinkedRequest) -> Json:
        """Complete a request from a session on a worker's link; its reply is whole."""
        began_s = time.perf_counter()
        self._admission.check_rate(OWNER)
        self._admission.check_size(request.body)
        origin = Origin(OWNER, request.session_id, request.headers)
        read = await self._read(CHAT.name, request.body, origin)
        labels = labels_of(request.headers)
        async with (
            self._call(CHAT, read, origin, labels, began_s) as call,
            self._turn_request(call) as turn_request,
        ):
            stored = await self._turns.stored(turn_request)
            turn = stored or await self._turn(turn_request, call)
            return CHAT.whole(turn, call.answer_with(stored))

    async def count(self, request: web.Request) -> web.Response:
        """POST /v1/messages/count_tokens: the length of a prompt that is not sampled from."""
        raw, origin = await self._body(request)
        read = await self._read(COUNT, raw, origin)
        assert isinstance(read.fields, ChatRequest)  # it reads nothing else
        async with self._pictures.stored(read.messages) as messages:
            length = await self._turns.prompt_length(read.fields.body(messages))
        return web.json_response(count_json(length))

    async def _body(self, request: web.Request) -> tuple[bytes, Origin]:
        """The body of a request over HTTP, and where it comes from. Raises Refusal."""
        user = caller_of(request)
        self._admission.check_rate(user)
        if labels_by(request).is_live:
            await self._quota.check(user)
        raw = await self._admission.json_bytes_of(request)
        return raw, Origin(user, request.match_info.get("id"), request.headers)

    async def _read(self, reader: str, raw: bytes, origin: Origin) -> ReadRequest:
        """The request. Raises Refusal. What has no effect is counted, and the log says it once of
        each name."""
        read = await self._admission.bodies.request(reader, raw, Sender.of(origin))
        self.check_model(read.fields.model)
        self._turns.stats.unread += len(read.unread)
        for name in read.unread:
            if name not in self._named and len(self._named) < _MOST_NAMED:
                self._named.add(name)
                _log.warning("a request has %a, which has no effect (logged once)", name[:100])
        return read

    @asynccontextmanager
    async def _call(
        self, dialect: Dialect, read: ReadRequest, origin: Origin, labels: Labels, began_s: float
    ) -> AsyncIterator[_Call]:
        """The call that a request is; its pictures are on disk inside."""
        pictures = self._pictures.stored(read.messages) if read.has_pictures else None
        async with pictures or nullcontext(read.messages) as stored_messages:
            messages, body = await self._earlier.conversation(read, stored_messages, origin.user)
            identity = self._sessions.identify(messages, body, origin, read.reading)
            answer = Answer(
                id=uuid.uuid4().hex,
                model=self._model_name,
                session_id=name_of(identity.session_id),
                wants_usage=read.fields.wants_usage,
                echo=read.echo,
            )
            claimable = labels.is_live and origin.user == OWNER
            turn_input = self._turn_input(read, messages, claimable=claimable)
            if dialect.is_continued:
                turn_input = replace(turn_input, answer_id=answer.id)
            yield _Call(
                dialect, read.fields, identity, labels, turn_input, answer, began_s, read.unread
            )

    def _turn_input(
        self, read: ReadRequest, messages: list[Message], *, claimable: bool
    ) -> TurnInput:
        fields = read.fields
        sampling = fields.sampling(self._turns.sampling)
        if not isinstance(fields, ChatRequest):
            return TurnInput(messages, sampling, prompt=fields.one_prompt)
        body = read.chat or fields.body(messages)
        return TurnInput(messages, sampling, body=body, claimable=claimable)

    async def _whole(self, request: web.Request, call: _Call) -> web.StreamResponse:
        async with self._turn_request(call) as turn_request:
            stored = await self._turns.stored(turn_request)
            turn = stored or await self._turn(turn_request, call)
            version = turn.versions_T[-1] if turn.versions_T else self._newest(call)
            headers = {
                "X-Session-Id": call.answer.session_id,
                "X-Turn-Id": str(turn.id),
                "X-Weight-Version": str(version),
                **_unread_header(call),
            }
            body = call.dialect.whole(_for_client(turn, call), call.answer_with(stored))
            response = web.json_response(body, headers=headers)
            await response.prepare(request)
            await response.write_eof()
            self._sessions.recorder.set_delivered(turn_request, turn)
        return response

    def _newest(self, call: _Call) -> int:
        return self._turns.newest(user_of(call.identity.session_id))

    async def _stream(self, request: web.Request, call: _Call) -> web.StreamResponse:
        headers = {
            "X-Session-Id": call.answer.session_id,
            "X-Weight-Version": str(self._newest(call)),
            **_unread_header(call),
        }
        events = call.dialect.events(call.answer)
        async with EventStream(request, headers, self._pace) as stream:

            async def send(delta: Delta) -> None:
                if not events.has_begun:
                    self._metrics.first_token_s.observe(time.perf_counter() - call.began_s)
                await stream.send(events.piece(delta))

            try:
                async with self._turn_request(call) as turn_request:
                    turn = await self._turns.stored(turn_request)
                    if turn is not None:
                        events = call.dialect.events(call.answer_with(turn))
                        await send(delta_of(turn.reply))
                    else:
                        turn = await self._turn(turn_request, call, send)
                    response = await stream.close(events.last(_for_client(turn, call)))
                    self._sessions.recorder.set_delivered(turn_request, turn)
                    return response
            except ConnectionError:
                raise
            except Exception as error:
                if not stream.is_open:
                    raise
                refusal = refusal_of(error)
                cause = error if refusal.status == 500 else None
                _log.warning("%s: a stream failed: %s", request.path, refusal, exc_info=cause)
                self._turns.stats.failed += 1
                return await stream.close(events.failed(refusal))

    def _turn_request(self, call: _Call) -> AbstractAsyncContextManager[TurnRequest]:
        return self._sessions.request(call.identity, call.labels, call.turn_input.messages)

    async def _turn(self, turn_request: TurnRequest, call: _Call, send: Send | None = None) -> Turn:
        """The turn, and the session's end when the client said that this is the last."""
        async with self._shares.running(user_of(turn_request.session.id)):
            turn = await self._turns.turn(turn_request, call.turn_input, send)
        if turn_request.identity.ends_session:
            session = turn_request.session
            await self._sessions.end(session, None, None, StopReason.TERMINATED.value, None)
        return turn


def _unread_header(call: _Call) -> dict[str, str]:
    """Tells the client what had no effect."""
    names = [_NO_NAME.sub("?", name)[:64] for name in call.unread[:_MOST_IN_HEADER]]
    return {"X-Without-Effect": ", ".join(names)} if names else {}


def _for_client(turn: Turn, call: _Call) -> Turn:
    """A turn whose reply has nothing that only episodes of ours read."""
    return replace(turn, reply=for_clients(turn.reply)) if call.labels.is_live else turn
