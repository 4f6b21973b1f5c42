"""The border of the gateway: admission, counting, and every error in the words of its dialect.

It is the same for a request over HTTP and for one on a worker's link; the link itself is no
request under way, however long it lasts. No frame that an error has passed through keeps it: both
would hold the request's body until garbage is looked for.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from clawrl_gym.core import link
from clawrl_gym.core.ownership import OWNER
from clawrl_gym.core.types import Json
from clawrl_gym.gateway.admission.admission import Admission, retry_after
from clawrl_gym.gateway.admission.callers import check_route, set_caller
from clawrl_gym.gateway.dialects.table import dialect_of
from clawrl_gym.gateway.prometheus import GatewayStats
from clawrl_gym.gateway.wire.refusals import ErrorBody, Refusal, error_json, refusal_of
from clawrl_gym.gateway.wire.sse import has_begun

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_CLIENT_CLOSED_REQUEST = 499
_TURN_OUT_PAUSE_S = 0.02
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Counted:
    """A request that is counted when it ends."""

    status: int = _CLIENT_CLOSED_REQUEST


class Border:
    """Admission of requests, and the answers to failures."""

    def __init__(self, admission: Admission, stats: GatewayStats) -> None:
        self._admission = admission
        self._stats = stats
        self._of_users: defaultdict[str, set[asyncio.Timeout]] = defaultdict(set)
        """Requests of users under way, as what can end them."""

    async def http(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Around every handler."""
        if request.path == "/healthz" and request.match_info.http_exception is None:
            return await handler(request)
        is_link = request.path == link.PATH
        asks = request.method == "POST"
        with self._counting(_route_of(request), inside=not is_link, asks=asks) as counted:
            try:
                user = self._admission.check_key(request)
                set_caller(request, user)
                check_route(request, user)
                if is_link:
                    counted.status = 101  # how it ends is no answer
                else:
                    inside_of_user = 1 + len(self._of_users.get(user, ()))
                    self._admission.check_load(self._stats.inside, user, inside_of_user)
                async with self._of_user(request, user):
                    response = await handler(request)
                counted.status = response.status
                return response
            except ConnectionError:
                raise  # nobody is there to read it
            except Exception as error:  # noqa: BLE001 - whatever went wrong is an answer
                dialect = dialect_of(request.path)
                answer = self._answer(self._refusal(request, error), dialect.error)
                counted.status = answer.status
                return answer

    def without_route(self, refusal: Refusal) -> web.Response:
        """The answer to what reaches no route."""
        self._stats.requests += 1
        self._stats.answers["none", refusal.status] += 1
        return self._answer(refusal)

    async def linked(
        self, route: str, work: Callable[[], Awaitable[Json]]
    ) -> tuple[int, Json | ErrorBody]:
        """Status and body of the answer to a request on a link; `route` as over HTTP."""
        with self._counting(route) as counted:
            try:
                self._admission.check_load(self._stats.inside)
                body = await work()
                counted.status = 200
                return counted.status, body
            except Exception as error:  # noqa: BLE001 - whatever went wrong is an answer
                counted.status, refused = self._refused(route, error)
                return counted.status, refused

    async def turn_out(self, user: str) -> None:
        """End all requests of a user whose key no longer opens anything."""
        while requests := self._of_users.get(user):
            for request in requests:
                if not request.expired():
                    request.reschedule(0.0)
            await asyncio.sleep(_TURN_OUT_PAUSE_S)

    @asynccontextmanager
    async def _of_user(self, request: web.Request, user: str) -> AsyncIterator[None]:
        """Around a request, which ends when its user is removed."""
        if user == OWNER:
            yield
            return
        end = asyncio.timeout(None)
        self._of_users[user].add(end)
        try:
            async with end:
                yield
        except TimeoutError:
            if not end.expired():
                raise
            if has_begun(request):
                raise ConnectionResetError("the user was removed meanwhile") from None
            self._admission.check_user(user)
            raise
        finally:
            self._of_users[user].discard(end)
            if not self._of_users[user]:
                del self._of_users[user]

    @contextmanager
    def _counting(self, route: str, inside: bool = True, asks: bool = True) -> Iterator[_Counted]:
        """`asks`: it is more than a look."""
        stats, counted = self._stats, _Counted()
        stats.requests += 1
        stats.inside += inside
        stats.asking += asks
        try:
            yield counted
        finally:
            stats.inside -= inside
            if asks:
                stats.asking -= 1
                stats.last_asked_s = time.monotonic()
            stats.answers[route, counted.status] += 1

    def _refusal(self, request: web.Request, error: Exception) -> Refusal:
        if isinstance(error, web.HTTPRequestEntityTooLarge):
            return self._admission.too_large()
        if isinstance(error, web.HTTPException):
            return Refusal(error.status, f"{request.method} {request.path}: {error.reason}")
        if isinstance(error, HttpProcessingError | web.RequestPayloadError):
            reason = error.message if isinstance(error, HttpProcessingError) else error
            return Refusal(400, f"the body cannot be read: {reason}")
        return _logged(request.path, refusal_of(error), error)

    def _refused(self, route: str, error: Exception) -> tuple[int, ErrorBody]:
        refusal = _logged(route, refusal_of(error), error)
        self._count(refusal)
        return refusal.status, error_json(refusal)

    def _count(self, refusal: Refusal) -> None:
        if refusal.status in (500, 502, 504, 507):
            self._stats.failed += 1
        else:
            self._stats.refused += 1

    def _answer(
        self, refusal: Refusal, words: Callable[[Refusal], Json] = error_json
    ) -> web.Response:
        self._count(refusal)
        headers = {}
        if refusal.status in (429, 503):
            headers["Retry-After"] = retry_after(refusal.retry_after_s)
        return web.json_response(words(refusal), status=refusal.status, headers=headers)


def _logged(path: str, refusal: Refusal, error: Exception) -> Refusal:
    if refusal.status == 500:
        _log.error("%s failed", path, exc_info=error)
    return refusal


def _route_of(request: web.Request) -> str:
    """The route's own pattern, never the client's path."""
    resource = request.match_info.route.resource
    return "none" if resource is None else resource.canonical
