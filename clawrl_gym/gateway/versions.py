"""Versions of the weights over HTTP: those that are kept, and one that serves again.

The owner's are the run's own, and anybody's whom `?user=` names; a user's are theirs.
"""

from __future__ import annotations

import asyncio
from typing import NotRequired, Protocol, TypedDict

from aiohttp import web
from pydantic import Field

from clawrl_gym.core.errors import ClawError, ConfigError
from clawrl_gym.core.ownership import OWNER
from clawrl_gym.gateway.admission.admission import Admission
from clawrl_gym.gateway.admission.callers import asked_user, caller_of
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.gateway.wire.requests import Fields, parse_as

_ANSWER_S = 60.0
"""An update under way is waited for so long; it is not given up for this."""


class VersionJson(TypedDict):
    """Weights that can serve again."""

    version: int
    created_s: float | None
    """Unix time; None for the weights that the run, or the user, began with."""
    returned_to: int | None
    """The version that these weights had first; None where they were new."""
    pins: NotRequired[list[str]]
    """Names under which it is kept."""


class VersionKeeper(Protocol):
    """The learner's side of versions."""

    async def versions(self, user: str) -> list[VersionJson]:
        """Raises ConfigError for somebody who has none of their own."""
        ...

    async def rollback(self, version: int, user: str) -> int:
        """Serve and learn on from a kept version; returns the version that it serves as. Raises
        ConfigError for one that is not kept."""
        ...

    async def pin(self, version: int, name: str, user: str) -> None:
        """Keep a version under a name, whatever else is let go. Raises ConfigError for one that is
        not kept or a name that cannot be one."""
        ...

    async def unpin(self, name: str, user: str) -> None:
        """Let a name go. Raises ConfigError where there is none."""
        ...


class PinRequest(Fields):
    """POST /v1/versions/N/pin."""

    name: str = Field(min_length=1, max_length=64)


class VersionsApi:
    """Each caller's own; names are the owner's to give."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self.keeper: VersionKeeper | None = None
        """The keeper; None while nobody learns."""

    async def list(self, request: web.Request) -> web.Response:
        """GET /v1/versions?user=, the oldest first."""
        keeper, user = self._keeper(), _whose(request)
        try:
            versions = await keeper.versions(user)
        except ConfigError as error:
            raise Refusal(404, str(error), "version_not_found") from error
        return web.json_response({"object": "list", "data": versions})

    async def rollback(self, request: web.Request) -> web.Response:
        """POST /v1/versions/N?user=: 200 once it serves, 202 when an update has to end first."""
        version = _version(request)
        rolling_back = asyncio.ensure_future(self._keeper().rollback(version, _whose(request)))
        rolling_back.add_done_callback(_forget)
        try:
            async with asyncio.timeout(_ANSWER_S):
                served_as = await asyncio.shield(rolling_back)
        except ConfigError as error:
            raise Refusal(404, str(error), "version_not_found") from error
        except ClawError as error:
            raise Refusal(500, str(error), "version_not_served") from error
        except TimeoutError:
            return web.json_response({"returned_to": version, "version": None}, status=202)
        return web.json_response({"returned_to": version, "version": served_as})

    async def pin(self, request: web.Request) -> web.Response:
        """POST /v1/versions/N/pin?user= with `{"name": "good"}`."""
        version, user = _version(request), _whose(request)
        name = parse_as(PinRequest, await self._admission.json_of(request)).name
        try:
            await self._keeper().pin(version, name, user)
        except ConfigError as error:
            raise Refusal(409, str(error), "not_pinned") from error
        return web.json_response({"version": version, "name": name})

    async def unpin(self, request: web.Request) -> web.Response:
        """DELETE /v1/pins/NAME?user=."""
        name = request.match_info["name"]
        try:
            await self._keeper().unpin(name, _whose(request))
        except ConfigError as error:
            raise Refusal(404, str(error), "pin_not_found") from error
        return web.json_response({"name": name, "pinned": False})

    def _keeper(self) -> VersionKeeper:
        if self.keeper is None:
            raise Refusal(
                409, "nothing learns here (yet), so there is one version only", "not_learning"
            )
        return self.keeper


def _version(request: web.Request) -> int:
    """The version in the path. Raises Refusal (400)."""
    text = request.match_info["version"]
    if not text.isdecimal() or len(text) > 18:
        raise Refusal(400, f"got the version {text[:40]!r}, expected a number", "bad_version")
    return int(text)


def _whose(request: web.Request) -> str:
    """The user whose versions are meant. Raises Refusal for another's than the caller's (403)."""
    caller, asked = caller_of(request), asked_user(request)
    if caller != OWNER and asked not in (None, caller):
        raise Refusal(
            403, "versions of others are the owner's alone: leave ?user= out", "owner_only"
        )
    return caller if asked is None else asked


def _forget(rolling_back: asyncio.Future[int]) -> None:
    """Ignore its error, which is in the run's log too, where nobody waits for it."""
    if not rolling_back.cancelled():
        rolling_back.exception()
