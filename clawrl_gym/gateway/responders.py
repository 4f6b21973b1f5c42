"""Responders: an environment answers a live session in the policy's place.

An environment that waits for somebody gets the next live session that starts; the gateway then asks
its responder for each reply and hands it what the client brings. A responder that is given up, or
whose environment is gone, leaves the session to the policy in mid-conversation. Its replies come
whole, not streamed. Sessions that nobody claimed know nothing of all this.

Over HTTP a responder is a seat in its session:

    POST   /v1/seats?timeout_s=            claim the next session: {"seat": null} if none came
    GET    /v1/seats/ID/next?timeout_s=    what came after the reply: {"ready": false} if nothing
    POST   /v1/seats/ID/reply              {"message": {...}}
    DELETE /v1/seats/ID                    give it back
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Literal, TypedDict
from uuid import uuid4

from aiohttp import web

from clawrl_gym.core.types import Message, Tool
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.gateway.wire.requests import Fields, parse_as, parse_json
from clawrl_gym.gateway.wire.wire_messages import WireMessage

LONGEST_POLL_S = 20.0
ABSENT_S = 120.0
"""A responder whose environment has not been heard of for so long is given up."""
MOST_CLAIMS = 64
"""Environments that may wait for a session at once."""

Stable = Callable[[list[Message]], list[Message]]


class NotReady(TypedDict):
    """Answer when nothing came yet."""

    ready: Literal[False]


class NextState(TypedDict):
    """The client's messages after the last reply, or the end."""

    ready: Literal[True]
    ended: bool
    messages: list[Message]
    tools: list[Tool]


class Responder:
    """A client that answers one session."""

    def __init__(self, session_id: str, stable: Stable, absent_s: float) -> None:
        self.id = uuid4().hex
        self.session_id = session_id
        self.over = False
        """Ended or given up: the policy answers whatever else comes."""
        self._stable = stable
        self._absent_s = absent_s
        self._last_contact_s = time.monotonic()
        self._pending: list[Message] | None = None
        """The request that waits for a reply."""
        self._tools: list[Tool] = []
        self._last_request: list[Message] | None = None
        """The last request that got a reply: sent again, it gets the same one."""
        self._reply: Message | None = None
        self._changed = asyncio.Event()

    @property
    def is_absent(self) -> bool:
        """Whether nothing was heard of the environment for long."""
        return time.monotonic() - self._last_contact_s > self._absent_s

    async def reply(self, messages: list[Message], tools: list[Tool]) -> Message | None:
        """The environment's reply; None when the policy is to answer from now on.

        Raises Refusal (409) when another request of the session has taken its place.
        """
        if messages != self._last_request:
            self._pending, self._tools, self._reply = messages, tools, None
            self._change()
        while True:
            if self._reply is not None and messages == self._last_request:
                return self._reply
            if self.over:
                return None
            if messages not in (self._pending, self._last_request):
                raise Refusal(409, "a later request of this session took its place", "superseded")
            changed = self._changed
            try:
                async with asyncio.timeout(max(0.01, self._absent_s / 4)):
                    await changed.wait()
            except TimeoutError:
                self.over = self.is_absent

    def put(self, reply: Message) -> None:
        """The environment's reply to the request that waits. Raises Refusal when none does."""
        self.touch()
        if self._pending is None or self.over:
            raise Refusal(409, "nothing waits for a reply on this seat", "seat_not_asked")
        self._reply, self._last_request, self._pending = reply, self._pending, None
        self._change()

    async def next(self, timeout_s: float) -> NextState | NotReady:
        """The client's messages since the last reply, or the end."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._pending is None and not self.over:
                    self.touch()
                    await self._changed.wait()
        except TimeoutError:
            pass
        self.touch()
        if self.over:
            return {"ready": True, "ended": True, "messages": [], "tools": []}
        if self._pending is None:
            return {"ready": False}
        messages = _after_last_reply(self._stable(self._pending))
        return {"ready": True, "ended": False, "messages": messages, "tools": self._tools}

    def leave(self) -> None:
        """End it; whoever waits on either side continues."""
        self.over = True
        self._change()

    def touch(self) -> None:
        """The environment is there."""
        self._last_contact_s = time.monotonic()

    def _change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _after_last_reply(messages: list[Message]) -> list[Message]:
    """A first request whole."""
    replies = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    return messages[replies[-1] + 1 :] if replies else messages


class Responders:
    """The responders of sessions, and the requests that wait for one."""

    def __init__(self, stable: Stable = lambda messages: messages, absent_s: float = ABSENT_S):
        self._stable = stable
        self._absent_s = absent_s
        self._by_id: dict[str, Responder] = {}
        self._by_session: dict[str, Responder] = {}
        self._claims: deque[asyncio.Future[Responder]] = deque()

    def of(self, session_id: str, claimable: bool) -> Responder | None:
        """The one that answers a session; a session that may be claimed goes to the longest
        waiting environment."""
        responder = self._by_session.get(session_id)
        if responder is not None:
            return None if responder.over else responder
        if not claimable or not self._claims:
            return None
        responder = Responder(session_id, self._stable, self._absent_s)
        self._by_id[responder.id] = self._by_session[session_id] = responder
        self._claims.popleft().set_result(responder)
        return responder

    def end(self, session_id: str) -> None:
        """A session ended or was deleted."""
        responder = self._by_session.get(session_id)
        if responder is not None:
            responder.leave()

    async def claim(self, timeout_s: float) -> Responder | None:
        """The next session that starts; None when none did in time."""
        for responder in [one for one in self._by_id.values() if one.is_absent]:
            self.give_up(responder)
        if len(self._claims) >= MOST_CLAIMS:
            raise Refusal(429, f"{MOST_CLAIMS} environments wait already", "too_many_claims")
        claim: asyncio.Future[Responder] = asyncio.get_running_loop().create_future()
        self._claims.append(claim)
        try:
            await asyncio.wait([claim], timeout=timeout_s)
        except asyncio.CancelledError:  # whoever claimed has gone
            if claim.done():
                self.give_up(claim.result())
            raise
        finally:
            if claim in self._claims:
                self._claims.remove(claim)
        return claim.result() if claim.done() else None

    def by_id(self, responder_id: str) -> Responder:
        """The responder with this id. Raises Refusal (404) for an unknown one."""
        if responder_id not in self._by_id:
            raise Refusal(404, f"there is no seat {responder_id[:80]!r}", "seat_not_found")
        return self._by_id[responder_id]

    def give_up(self, responder: Responder) -> None:
        """The policy answers its session from now on."""
        responder.leave()
        self._by_id.pop(responder.id, None)
        self._by_session.pop(responder.session_id, None)


class ReplyRequest(Fields):
    """POST /v1/seats/ID/reply."""

    message: WireMessage


def add_routes(router: web.UrlDispatcher, responders: Responders) -> None:
    """The environment's side, as HTTP; the gateway's own border lets in and words errors."""

    async def claim(request: web.Request) -> web.Response:
        responder = await responders.claim(_timeout_s(request))
        if responder is None:
            return web.json_response({"seat": None})
        try:
            state = await responder.next(LONGEST_POLL_S)
        except asyncio.CancelledError:  # whoever claimed it has gone
            responders.give_up(responder)
            raise
        return web.json_response(
            {"seat": responder.id, "session_id": responder.session_id, **state}
        )

    async def next_state(request: web.Request) -> web.Response:
        responder = responders.by_id(request.match_info["id"])
        state = await responder.next(_timeout_s(request))
        if state["ready"] and state["ended"]:
            responders.give_up(responder)
        return web.json_response(state)

    async def reply(request: web.Request) -> web.Response:
        responder = responders.by_id(request.match_info["id"])
        message = parse_as(ReplyRequest, parse_json(await request.read())).message
        if message.role != "assistant":
            raise Refusal(400, f"message.role: got {message.role!r}, expected 'assistant'")
        responder.put(message.plain())
        return web.json_response({"delivered": True})

    async def give_up(request: web.Request) -> web.Response:
        responders.give_up(responders.by_id(request.match_info["id"]))
        return web.json_response({"given_up": True})

    router.add_post("/v1/seats", claim)
    router.add_get("/v1/seats/{id}/next", next_state)
    router.add_post("/v1/seats/{id}/reply", reply)
    router.add_delete("/v1/seats/{id}", give_up)


def _timeout_s(request: web.Request) -> float:
    text = request.query.get("timeout_s", "0")
    try:
        timeout_s = float(text)
    except ValueError:
        timeout_s = -1.0
    if not 0 <= timeout_s < float("inf"):
        raise Refusal(400, f"timeout_s: got {text[:40]!r}, expected seconds", "bad_timeout")
    return min(timeout_s, LONGEST_POLL_S)
