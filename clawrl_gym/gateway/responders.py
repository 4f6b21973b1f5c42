"""Seats: an environment answers a live session in the policy's place.

An environment that waits for somebody gets the next live session that starts; the gateway then asks
its seat for each reply and hands it what the client brings. A seat that is given up, or whose
environment is gone, goes back to the policy in mid-conversation. Replies of a seat come whole,
not streamed. Sessions that nobody claimed know nothing of all this.

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
from typing import Any
from uuid import uuid4

from aiohttp import web

from clawrl_gym.core.types import Message, Tool
from clawrl_gym.gateway import wire

LONGEST_POLL_S = 20.0
ABSENT_S = 120.0
"""A seat whose environment has not been heard of for so long is given up."""
MOST_CLAIMS = 64
"""Environments that may wait for a session at once."""

Stable = Callable[[list[Message]], list[Message]]


class Seat:
    """Somebody who answers one session."""

    def __init__(self, session_id: str, stable: Stable, absent_s: float) -> None:
        self.id = uuid4().hex
        self.session_id = session_id
        self.over = False
        """Ended or given up: the policy answers whatever else comes."""
        self._stable = stable
        self._absent_s = absent_s
        self._heard_s = time.monotonic()
        self._asked: list[Message] | None = None
        """The request that waits for a reply."""
        self._tools: list[Tool] = []
        self._answered: list[Message] | None = None
        """The last request that got a reply: asked again, it gets the same one."""
        self._said: Message | None = None
        self._changed = asyncio.Event()

    @property
    def is_absent(self) -> bool:
        """Nothing was heard of the environment for long."""
        return time.monotonic() - self._heard_s > self._absent_s

    async def reply(self, messages: list[Message], tools: list[Tool]) -> Message | None:
        """The environment's reply; None when the policy is to answer from now on."""
        if messages != self._answered:
            self._asked, self._tools, self._said = messages, tools, None
            self._change()
        while self._said is None and not self.over:
            changed = self._changed
            try:
                async with asyncio.timeout(max(0.01, self._absent_s / 4)):
                    await changed.wait()
            except TimeoutError:
                self.over = self.is_absent
        return self._said

    def say(self, message: Message) -> None:
        """The environment's reply to what it was given. Raises Refusal when nothing waits."""
        self.hear()
        if self._asked is None or self.over:
            raise wire.Refusal(409, "nothing waits for a reply on this seat", "seat_not_asked")
        self._said, self._answered, self._asked = message, self._asked, None
        self._change()

    async def next(self, timeout_s: float) -> dict[str, Any]:
        """What the client has brought since the last reply, or the end."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._asked is None and not self.over:
                    self.hear()
                    await self._changed.wait()
        except TimeoutError:
            pass
        self.hear()
        if self.over:
            return {"ready": True, "ended": True, "messages": [], "tools": []}
        if self._asked is None:
            return {"ready": False}
        messages = self._stable(self._asked)
        return {"ready": True, "ended": False, "messages": _new_of(messages), "tools": self._tools}

    def leave(self) -> None:
        """End it; whoever waits on either side goes on."""
        self.over = True
        self._change()

    def hear(self) -> None:
        """The environment is there."""
        self._heard_s = time.monotonic()

    def _change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _new_of(messages: list[Message]) -> list[Message]:
    """What stands behind the last reply; a first request whole."""
    replies = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    return messages[replies[-1] + 1 :] if replies else messages


class Seats:
    """Who answers which session, and who waits for one."""

    def __init__(self, stable: Stable = lambda messages: messages, absent_s: float = ABSENT_S):
        self._stable = stable
        self._absent_s = absent_s
        self._seats: dict[str, Seat] = {}
        self._by_session: dict[str, Seat] = {}
        self._claims: deque[asyncio.Future[Seat]] = deque()

    def wants(self, session_id: str, claimable: bool) -> Seat | None:
        """The seat that answers a session; a session that may be claimed goes to the longest
        waiting environment."""
        seat = self._by_session.get(session_id)
        if seat is not None:
            return None if seat.over else seat
        if not claimable or not self._claims:
            return None
        seat = Seat(session_id, self._stable, self._absent_s)
        self._seats[seat.id] = self._by_session[session_id] = seat
        self._claims.popleft().set_result(seat)
        return seat

    def ended(self, session_id: str) -> None:
        """A session ended or was deleted."""
        seat = self._by_session.get(session_id)
        if seat is not None:
            seat.leave()

    async def claim(self, timeout_s: float) -> Seat | None:
        """The next session that starts; None when none did in time."""
        self._forget_the_absent()
        if len(self._claims) >= MOST_CLAIMS:
            raise wire.Refusal(429, f"{MOST_CLAIMS} environments wait already", "too_many_claims")
        claim: asyncio.Future[Seat] = asyncio.get_running_loop().create_future()
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

    def seat(self, seat_id: str) -> Seat:
        """Raises Refusal (404) for an unknown one."""
        if seat_id not in self._seats:
            raise wire.Refusal(404, f"there is no seat {seat_id[:80]!r}", "seat_not_found")
        return self._seats[seat_id]

    def give_up(self, seat: Seat) -> None:
        """The policy answers its session from now on."""
        seat.leave()
        self._seats.pop(seat.id, None)
        self._by_session.pop(seat.session_id, None)

    def _forget_the_absent(self) -> None:
        for seat in [seat for seat in self._seats.values() if seat.is_absent]:
            self.give_up(seat)


class _SaidBy(wire.Wire):
    """POST /v1/seats/ID/reply."""

    message: wire.WireMessage


def add_routes(router: web.UrlDispatcher, seats: Seats) -> None:
    """The environment's side, as HTTP; the gateway's own border lets in and words errors."""

    async def claim(request: web.Request) -> web.Response:
        seat = await seats.claim(_timeout_s(request))
        if seat is None:
            return web.json_response({"seat": None})
        try:
            came = await seat.next(LONGEST_POLL_S)
        except asyncio.CancelledError:  # whoever claimed it has gone
            seats.give_up(seat)
            raise
        return web.json_response({"seat": seat.id, "session_id": seat.session_id} | came)

    async def next_state(request: web.Request) -> web.Response:
        seat = seats.seat(request.match_info["id"])
        came = await seat.next(_timeout_s(request))
        if came.get("ended"):
            seats.give_up(seat)
        return web.json_response(came)

    async def reply(request: web.Request) -> web.Response:
        seat = seats.seat(request.match_info["id"])
        said = wire.parse_as(_SaidBy, wire.parse_json(await request.read())).message
        if said.role != "assistant":
            raise wire.Refusal(400, f"message.role: got {said.role!r}, expected 'assistant'")
        seat.say(said.plain())
        return web.json_response({"delivered": True})

    async def give_up(request: web.Request) -> web.Response:
        seats.give_up(seats.seat(request.match_info["id"]))
        return web.json_response({"given_up": True})

    router.add_post("/v1/seats", claim)
    router.add_get("/v1/seats/{id}/next", next_state)
    router.add_post("/v1/seats/{id}/reply", reply)
    router.add_delete("/v1/seats/{id}", give_up)


def _timeout_s(request: web.Request) -> float:
    given = request.query.get("timeout_s", "0")
    try:
        timeout_s = float(given)
    except ValueError:
        timeout_s = -1.0
    if not 0 <= timeout_s < float("inf"):
        raise wire.Refusal(400, f"timeout_s: got {given[:40]!r}, expected seconds", "bad_timeout")
    return min(timeout_s, LONGEST_POLL_S)
