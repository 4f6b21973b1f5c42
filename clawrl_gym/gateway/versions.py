"""Versions of the weights over HTTP: those that are kept, and one that serves again."""

from __future__ import annotations

import asyncio
from typing import Protocol, TypedDict

from aiohttp import web

from clawrl_gym.core.errors import ClawError, ConfigError
from clawrl_gym.gateway.refusals import Refusal

_ANSWER_S = 60.0
"""An update under way is waited for so long; it is not given up for this."""


class VersionJson(TypedDict):
    """Weights that can serve again."""

    version: int
    created_s: float | None
    """None for what the run began with."""
    returned_to: int | None
    """The version that these weights had first; None where they were new."""


class VersionKeeper(Protocol):
    """Who learns."""

    async def versions(self) -> list[VersionJson]: ...

    async def return_to(self, version: int) -> int:
        """Serve and learn on from a kept version; returns the version that it serves as. Raises
        ConfigError for one that is not kept."""
        ...


class VersionsApi:
    """The owner's alone."""

    def __init__(self) -> None:
        self.keeper: VersionKeeper | None = None
        """None while nobody learns."""

    async def list(self, request: web.Request) -> web.Response:
        """GET /v1/versions, the oldest first."""
        return web.json_response({"object": "list", "data": await self._keeper().versions()})

    async def return_to(self, request: web.Request) -> web.Response:
        """POST /v1/versions/N: 200 once it serves, 202 when an update has to end first."""
        text = request.match_info["version"]
        if not text.isdecimal() or len(text) > 18:
            raise Refusal(400, f"got the version {text[:40]!r}, expected a number", "bad_version")
        version = int(text)
        returning = asyncio.ensure_future(self._keeper().return_to(version))
        returning.add_done_callback(_forget)
        try:
            async with asyncio.timeout(_ANSWER_S):
                served_as = await asyncio.shield(returning)
        except ConfigError as error:
            raise Refusal(404, str(error), "version_not_found") from error
        except ClawError as error:
            raise Refusal(500, str(error), "version_not_served") from error
        except TimeoutError:
            return web.json_response({"returned_to": version, "version": None}, status=202)
        return web.json_response({"returned_to": version, "version": served_as})

    def _keeper(self) -> VersionKeeper:
        if self.keeper is None:
            raise Refusal(
                409, "nothing learns here (yet), so there is one version only", "not_learning"
            )
        return self.keeper


def _forget(returning: asyncio.Future[int]) -> None:
    """Its error is told in the run's own words, too, where nobody waits for it any more."""
    if not returning.cancelled():
        returning.exception()
