"""Sessions over HTTP: list, read, end, delete with all data."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import fields
from typing import TypedDict

from aiohttp import web
from pydantic import Field

from clawrl_gym.core.ownership import OWNER, name_of, user_of
from clawrl_gym.core.types import Json, Message, Split, StopReason, Turn, TurnKind, Verdict
from clawrl_gym.gateway.admission.admission import Admission
from clawrl_gym.gateway.admission.allowances import Allowances
from clawrl_gym.gateway.admission.callers import (
    asked_user,
    caller_of,
    labels_by,
    named_session,
    no_session,
)
from clawrl_gym.gateway.bodies.reading import Sender
from clawrl_gym.gateway.feedback import VerdictJson, verdict_json
from clawrl_gym.gateway.link import LinkedRequest
from clawrl_gym.gateway.sessions.sessions import Sessions
from clawrl_gym.gateway.wire.pictures import Pictures
from clawrl_gym.gateway.wire.requests import (
    Fields,
    Labels,
    labels_of,
    parse_as,
    session_id_of,
)
from clawrl_gym.gateway.wire.wire_messages import WireMessage
from clawrl_gym.store import SessionRow, SessionSummary, Store


class EndRequest(Fields):
    """POST /v1/sessions/ID/end."""

    reward: float | None = Field(None, allow_inf_nan=False)
    stop_reason: StopReason = StopReason.TERMINATED
    next_state: list[WireMessage] | None = None
    error: str | None = None
    solved: bool | None = None
    """Success as the environment reports it; None: whether the reward reached 1."""
    split: Split | None = None


class ListRequest(Fields):
    """GET /v1/sessions."""

    limit: int = Field(100, ge=1, le=10_000)
    open: bool = False
    """True: only sessions that have not ended."""
    user: str | None = None
    """The owner's choice; None: everybody's."""


class PageRequest(Fields):
    """GET /v1/sessions/ID."""

    first: int | None = Field(None, ge=0, le=2**62)
    """Index of the first turn; None shows the newest ones."""
    count: int = Field(100, ge=1, le=1000)


class SessionsApi:
    """Reads sessions from the store; what changes them goes through `Sessions`."""

    def __init__(
        self,
        admission: Admission,
        store: Store,
        sessions: Sessions,
        pictures: Pictures,
        allowances: Allowances,
    ) -> None:
        self._admission = admission
        self._allowances = allowances
        self._store = store
        self._sessions = sessions
        self._pictures = pictures

    async def list(self, request: web.Request) -> web.Response:
        """GET /v1/sessions?limit=&open=&user=, newest first; a user sees their own."""
        query = parse_as(ListRequest, dict(request.query))
        caller = caller_of(request)
        user = asked_user(request) if caller == OWNER else caller
        rows = await self._store.session_summaries(query.limit, query.open, user)
        return web.json_response({"object": "list", "data": [summary_json(row) for row in rows]})

    async def show(self, request: web.Request) -> web.Response:
        """GET /v1/sessions/ID?first=&count=: the session with a page of its turns."""
        session_id = named_session(request)
        page = parse_as(PageRequest, dict(request.query))
        row = await self._row(session_id)
        if page.first is None:
            turns = await self._store.last_turns(session_id, page.count)
        else:
            turns = await self._store.page_of_turns(session_id, page.first, page.count)
        states = await self._store.next_states_of(session_id)
        verdicts = await self._store.verdicts_of(session_id)
        turn_texts: list[str] = []
        for turn in turns:
            assert turn.id is not None
            turn_fields = turn_json(turn, states.get(turn.id), verdicts.get(turn.id, []))
            turn_texts.append(json.dumps(turn_fields))
            await asyncio.sleep(0)  # a long conversation holds nobody up
        head = json.dumps(session_json(row))[:-1]
        text = f'{head}, "turns": [{", ".join(turn_texts)}]}}'
        return web.json_response(text=text)

    async def begin(self, request: web.Request) -> web.Response:
        """POST /sessions/ID/begin: what its labels say holds for requests that bring none."""
        session_id = named_session(request)
        async with self._sessions.use(session_id, labels_by(request), stays=True) as session:
            return web.json_response({"session_id": name_of(session_id), "ended": session.ended})

    async def end_known(self, request: web.Request) -> web.Response:
        """POST /v1/sessions/ID/end; the session must be there."""
        body = await self._admission.json_of(request, empty={})
        return web.json_response(await self._end(named_session(request), body, None))

    async def end(self, request: web.Request) -> web.Response:
        """POST /sessions/ID/end; an episode that failed before its first turn can end too."""
        labels = labels_by(request)
        body = await self._admission.json_of(request, empty={})
        return web.json_response(await self._end(named_session(request), body, labels))

    async def linked_end(self, request: LinkedRequest) -> Json:
        """End a session on a worker's link."""
        labels = labels_of(request.headers)
        session_id = session_id_of(request.session_id)
        body = await self._admission.bodies.json(request.body, Sender(OWNER))
        return await self._end(session_id, body, labels)

    async def _end(self, session_id: str, body: object, labels: Labels | None) -> Json:
        end = parse_as(EndRequest, body)
        if labels is not None and end.split is not None:
            labels = labels.model_copy(update={"split": end.split})
        messages = [message.plain() for message in end.next_state or []]
        async with (
            self._pictures.stored(messages) as state,
            self._sessions.use(session_id, labels) as session,
        ):
            ended = await self._sessions.end(
                session, state, end.reward, end.stop_reason.value, end.error, end.solved
            )
        return {"session_id": name_of(session_id), "ended_before": not ended}

    async def delete(self, request: web.Request) -> web.Response:
        """DELETE /v1/sessions/ID: with everything that was made of it; requests inside fail."""
        session_id = named_session(request)
        self._allowances.check(caller_of(request), "deletions_per_minute")
        if not await self._sessions.delete(session_id):
            raise no_session(session_id)
        return web.json_response({"session_id": name_of(session_id), "deleted": True})

    async def _row(self, session_id: str) -> SessionRow:
        row = await self._store.session(session_id)
        if row is None:
            raise no_session(session_id)
        return row


class TurnJson(TypedDict):
    """A turn as clients see it."""

    id: int | None
    index: int
    kind: TurnKind
    rule: str
    messages: list[Message]
    reply: Message
    next_state: list[Message] | None
    finish_reason: str
    temperature: float | None
    untrainable: str
    """Settings of its sampling by which it is never trained on; empty: it can be."""
    prompt_tokens: int
    sampled_tokens: int
    versions: list[int]
    """Each once, in order."""
    created_s: float
    verdicts: list[VerdictJson]


def turn_json(
    turn: Turn, next_state: list[Message] | None, verdicts: Sequence[Verdict]
) -> TurnJson:
    return {
        "id": turn.id,
        "index": turn.index,
        "kind": turn.kind,
        "rule": turn.rule,
        "messages": turn.messages,
        "reply": turn.reply,
        "next_state": next_state,
        "finish_reason": turn.finish_reason,
        "temperature": turn.temperature,
        "untrainable": turn.untrainable,
        "prompt_tokens": len(turn.prompt_ids_T),
        "sampled_tokens": len(turn.sampled_ids_T),
        "versions": sorted(set(turn.versions_T)),
        "created_s": turn.created_s,
        "verdicts": [verdict_json(verdict) for verdict in verdicts],
    }


def session_json(row: SessionRow) -> dict[str, object]:
    """A session's own fields, and whose it is: null for the owner's."""
    row_fields = {column.name: getattr(row, column.name) for column in fields(row)}
    return row_fields | {"id": name_of(row.id), "user": user_of(row.id) or None}


def summary_json(summary: SessionSummary) -> dict[str, object]:
    """A session in a list."""
    return session_json(summary.session) | {
        "last_s": summary.last_s,
        "main_turns": summary.main_turns,
        "side_turns": summary.side_turns,
        "verdicts": summary.verdicts,
    }
