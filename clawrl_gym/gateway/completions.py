"""The two APIs of replies: POST /v1/chat/completions and POST /v1/completions.

Both find the session, have a turn made and send it in their own form, streamed or whole. A plain
completion is not part of a conversation: it is a side turn.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace

from aiohttp import web

from clawrl_gym.core.ownership import OWNER, name_of, user_of
from clawrl_gym.core.pictures import text_of
from clawrl_gym.core.types import Json, JsonObject, StopReason, Turn, Usage
from clawrl_gym.gateway.admission.admission import Admission
from clawrl_gym.gateway.admission.callers import caller_of, labels_by
from clawrl_gym.gateway.admission.quota import Quota
from clawrl_gym.gateway.admission.shares import Shares
from clawrl_gym.gateway.bodies.reading import ReadRequest, Sender
from clawrl_gym.gateway.link import LinkedRequest
from clawrl_gym.gateway.prometheus import GatewayMetrics
from clawrl_gym.gateway.sessions.session import TurnRequest
from clawrl_gym.gateway.sessions.sessions import Sessions
from clawrl_gym.gateway.turns import Send, TurnInput, TurnMaker
from clawrl_gym.gateway.wire.identify import Identity, Origin
from clawrl_gym.gateway.wire.pictures import Pictures
from clawrl_gym.gateway.wire.refusals import Refusal, error_json, refusal_of
from clawrl_gym.gateway.wire.requests import (
    ChatRequest,
    GenerationRequest,
    Labels,
    labels_of,
)
from clawrl_gym.gateway.wire.sse import END_OF_STREAM, EventStream, Pace, encode, event
from clawrl_gym.inference.generation import Delta, for_clients

ALIAS = "policy"
"""A model name that always means the served model."""
_MOST_NAMED = 200
_MOST_IN_HEADER = 20
_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReplyFormat:
    """The wording of a reply in one of the APIs."""

    whole_object: str
    """The API's name for a reply."""
    chunk_object: str
    id_prefix: str
    opening: Mapping[str, object]
    """Fields of a stream's first choice."""
    ending: Mapping[str, object]
    """Fields of a stream's last choice."""
    reply: Callable[[Turn], Mapping[str, object]]
    """Fields of the choice of a whole reply."""
    delta: Callable[[Delta], str]
    """JSON text of a choice in between, which is made for every token."""

    def whole(self, turn: Turn, model: str) -> Json:
        choice = {
            "index": 0,
            **self.reply(turn),
            "logprobs": None,
            "finish_reason": finish_reason_of(turn),
        }
        return {
            "id": f"{self.id_prefix}{name_of(turn.session_id)}-{turn.index}",
            "object": self.whole_object,
            "created": int(turn.created_s),
            "model": model,
            "session_id": name_of(turn.session_id),
            "choices": [choice],
            "usage": usage_of(turn),
        }


def in_both_names(reply: Json) -> Json:
    """A message or delta whose thoughts have their newer name, too: clients read one of them."""
    thoughts = reply.get("reasoning_content")
    return {**reply, "reasoning": thoughts} if thoughts else reply


CHAT = ReplyFormat(
    whole_object="chat.completion",
    chunk_object="chat.completion.chunk",
    id_prefix="chatcmpl-",
    opening={"delta": {"role": "assistant", "content": ""}},
    ending={"delta": {}},
    reply=lambda turn: {"message": in_both_names(turn.reply)},
    delta=lambda delta: f'"delta":{encode(in_both_names(delta))}',
)
TEXT = ReplyFormat(
    whole_object="text_completion",
    chunk_object="text_completion",
    id_prefix="cmpl-",
    opening={"text": ""},
    ending={"text": ""},
    reply=lambda turn: {"text": text_of(turn.reply)},
    delta=lambda delta: f'"text":{encode(delta.get("content", ""))}',
)


class Chunks:
    """The events of one streamed reply, in order."""

    def __init__(
        self, reply_format: ReplyFormat, model: str, session_id: str, with_usage: bool
    ) -> None:
        self._format = reply_format
        self._base: JsonObject = {
            "id": reply_format.id_prefix + uuid.uuid4().hex,
            "object": reply_format.chunk_object,
            "created": int(time.time()),
            "model": model,
        }
        self._with_usage = with_usage
        no_usage = ',"usage":null' if with_usage else ""
        self._before = f'data: {encode(self._base)[:-1]},"choices":[{{"index":0,'
        self._after = f',"logprobs":null,"finish_reason":null}}]{no_usage}}}\n\n'
        self._opening = self._event(reply_format.opening, None, {"session_id": session_id})

    @property
    def has_begun(self) -> bool:
        """A piece was made."""
        return not self._opening

    def piece(self, delta: Delta) -> bytes:
        """The event of a delta; the only event that is made again and again."""
        opening, self._opening = self._opening, b""
        return opening + f"{self._before}{self._format.delta(delta)}{self._after}".encode()

    def last(self, turn: Turn) -> bytes:
        """Why it ended, the usage if the request wants it, and the end."""
        ids: Json = {"session_id": name_of(turn.session_id), "turn_id": turn.id}
        events = self._opening + self._event(self._format.ending, finish_reason_of(turn), ids)
        if self._with_usage:
            events += event({**self._base, "choices": [], "usage": usage_of(turn)})
        return events + END_OF_STREAM

    def _event(self, fields: Mapping[str, object], finish_reason: str | None, ids: Json) -> bytes:
        choice = {"index": 0, **fields, "logprobs": None, "finish_reason": finish_reason}
        usage = {"usage": None} if self._with_usage else {}
        return event({**self._base, **ids, "choices": [choice], **usage})


def usage_of(turn: Turn) -> Usage:
    """Tokens in and out."""
    prompt, sampled = len(turn.prompt_ids_T), len(turn.sampled_ids_T)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": sampled,
        "total_tokens": prompt + sampled,
    }


def finish_reason_of(turn: Turn) -> str:
    """The finish reason in OpenAI's words."""
    has_calls = bool(turn.reply.get("tool_calls")) and turn.finish_reason == "stop"
    return "tool_calls" if has_calls else turn.finish_reason


def _unread_header(call: _Call) -> dict[str, str]:
    """Tells the client what had no effect."""
    names = [_NO_NAME.sub("?", name)[:64] for name in call.unread[:_MOST_IN_HEADER]]
    return {"X-Without-Effect": ", ".join(names)} if names else {}


@dataclass(frozen=True, slots=True)
class _Call:
    """One request to either API, read and assigned to its session."""

    fields: GenerationRequest
    identity: Identity
    labels: Labels
    turn_input: TurnInput
    reply_format: ReplyFormat
    began_s: float
    unread: tuple[str, ...]
    """Names of what had no effect."""


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
        shares: Shares,
        quota: Quota,
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
        self._named: set[str] = set()
        """Fields without effect that the log has named."""

    def check_model(self, name: str | None) -> None:
        """Raise Refusal (404) for a model that is not served; None means the one."""
        if name is not None and name not in (ALIAS, self._model_name):
            wrong = f"got model {name[:100]!r}, expected {self._model_name!r}"
            raise Refusal(404, wrong, "model_not_found", "model")

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/chat/completions."""
        began_s = time.perf_counter()
        raw, origin = await self._body(request)
        read = await self._admission.bodies.chat(raw, Sender.of(origin))
        self._check(read.fields.model, read.unread)
        async with self._chat_call(read, origin, labels_by(request), began_s) as call:
            return await self._answer(request, call)

    async def linked(self, request: LinkedRequest) -> Json:
        """Complete a request from a session on a worker's link; its reply is whole."""
        began_s = time.perf_counter()
        self._admission.check_rate(OWNER)
        self._admission.check_size(request.body)
        origin = Origin(OWNER, request.session_id, request.headers)
        read = await self._admission.bodies.chat(request.body, Sender.of(origin))
        self._check(read.fields.model, read.unread)
        labels = labels_of(request.headers)
        async with (
            self._chat_call(read, origin, labels, began_s) as call,
            self._turn_request(call) as turn_request,
        ):
            turn = await self._turn(turn_request, call)
            return call.reply_format.whole(turn, self._model_name)

    async def text(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/completions. Ids stand for the message that they are not."""
        began_s = time.perf_counter()
        raw, origin = await self._body(request)
        read = await self._admission.bodies.text(raw, Sender.of(origin))
        self._check(read.fields.model, read.unread)
        completion, labels, messages = read.fields, labels_by(request), read.messages
        sampling = completion.sampling(self._turns.sampling)
        turn_input = TurnInput(messages, sampling, prompt=completion.one_prompt)
        identity = self._sessions.identify(messages, read.body, origin, read.reading)
        call = _Call(completion, identity, labels, turn_input, TEXT, began_s, read.unread)
        return await self._answer(request, call)

    async def _body(self, request: web.Request) -> tuple[bytes, Origin]:
        """The body of a request over HTTP, and where it comes from. Raises Refusal."""
        user = caller_of(request)
        self._admission.check_rate(user)
        if labels_by(request).is_live:
            await self._quota.check(user)
        raw = await self._admission.json_bytes_of(request)
        return raw, Origin(user, request.match_info.get("id"), request.headers)

    def _check(self, model: str | None, names: Sequence[str]) -> None:
        """Raise Refusal (404) for another model. What has no effect is counted, and the log says it
        once of each name."""
        self.check_model(model)
        self._turns.stats.unread += len(names)
        for name in names:
            if name not in self._named and len(self._named) < _MOST_NAMED:
                self._named.add(name)
                _log.warning("a request has %a, which has no effect (logged once)", name[:100])

    @asynccontextmanager
    async def _chat_call(
        self, read: ReadRequest[ChatRequest], origin: Origin, labels: Labels, began_s: float
    ) -> AsyncIterator[_Call]:
        """The call that a chat is; its pictures are on disk inside."""
        chat, messages = read.fields, read.messages
        pictures = self._pictures.stored(messages) if read.has_pictures else nullcontext(messages)
        async with pictures as stored_messages:
            identity = self._sessions.identify(stored_messages, read.body, origin, read.reading)
            turn_input = TurnInput(
                stored_messages,
                chat.sampling(self._turns.sampling),
                body=read.chat or chat.body(stored_messages),
                claimable=labels.is_live and origin.user == OWNER,
            )
            yield _Call(chat, identity, labels, turn_input, CHAT, began_s, read.unread)

    async def _answer(self, request: web.Request, call: _Call) -> web.StreamResponse:
        return await (self._stream if call.fields.stream else self._whole)(request, call)

    async def _whole(self, request: web.Request, call: _Call) -> web.StreamResponse:
        async with self._turn_request(call) as turn_request:
            turn = await self._turn(turn_request, call)
            version = turn.versions_T[-1] if turn.versions_T else self._newest(call)
            headers = {
                "X-Session-Id": name_of(call.identity.session_id),
                "X-Turn-Id": str(turn.id),
                "X-Weight-Version": str(version),
                **_unread_header(call),
            }
            body = call.reply_format.whole(_for_client(turn, call), self._model_name)
            response = web.json_response(body, headers=headers)
            await response.prepare(request)
            await response.write_eof()
            self._sessions.recorder.set_delivered(turn_request, turn)
        return response

    def _newest(self, call: _Call) -> int:
        return self._turns.newest(user_of(call.identity.session_id))

    async def _stream(self, request: web.Request, call: _Call) -> web.StreamResponse:
        session_id = name_of(call.identity.session_id)
        chunks = Chunks(call.reply_format, self._model_name, session_id, call.fields.wants_usage)
        headers = {"X-Session-Id": session_id, "X-Weight-Version": str(self._newest(call))}
        headers |= _unread_header(call)
        async with EventStream(request, headers, self._pace) as stream:

            async def send(delta: Delta) -> None:
                if not chunks.has_begun:
                    self._metrics.first_token_s.observe(time.perf_counter() - call.began_s)
                await stream.send(chunks.piece(delta))

            try:
                async with self._turn_request(call) as turn_request:
                    turn = await self._turn(turn_request, call, send)
                    response = await stream.close(chunks.last(turn))
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
                return await stream.close(event(error_json(refusal)))

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


def _for_client(turn: Turn, call: _Call) -> Turn:
    """A turn whose reply has nothing that only episodes of ours read."""
    return replace(turn, reply=for_clients(turn.reply)) if call.labels.is_live else turn
