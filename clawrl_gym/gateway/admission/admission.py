"""Admission of requests: the key, how many at once, how often, how large and how slow a body.

Training and weight swaps are no reason here: only the clients' own load is refused.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import math
import time
from collections.abc import Callable
from functools import partial

from aiohttp import web

from clawrl_gym.config import GatewayConfig, LiveConfig
from clawrl_gym.core.errors import ConfigError
from clawrl_gym.core.ownership import OWNER
from clawrl_gym.core.types import Json
from clawrl_gym.gateway.admission.callers import caller_of
from clawrl_gym.gateway.bodies.bodies import BodyLimit, BodyReader
from clawrl_gym.gateway.bodies.reading import Sender
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.store.users import Users

_BURST_S = 5.0
"""Seconds of the allowed rate that may come at once."""


def check_key(config: GatewayConfig) -> None:
    """Raise ConfigError when it would listen to the network without a key of the user's."""
    if not config.key and not is_loopback(config.host):
        raise ConfigError(
            f"got gateway.host={config.host!r} and no gateway.key, expected a key for a host "
            "that others can reach: give gateway.key=SECRET or leave the host at 127.0.0.1"
        )


class TokenBucket:
    """Lets through so many a second, with bursts of some seconds."""

    def __init__(self, rate_per_s: float, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._rate_per_s = rate_per_s
        self._clock_s = clock_s
        self._most = max(1.0, rate_per_s * _BURST_S)
        self._left = self._most
        self._filled_s = clock_s()

    def take(self) -> float:
        """0 when one more may pass now, else the seconds until then."""
        now_s = self._clock_s()
        self._left = min(self._most, self._left + (now_s - self._filled_s) * self._rate_per_s)
        self._filled_s = now_s
        if self._left >= 1.0:
            self._left -= 1.0
            return 0.0
        return (1.0 - self._left) / self._rate_per_s


class Admission:
    """Admission of one gateway."""

    def __init__(
        self,
        config: GatewayConfig,
        key: str,
        users: Users | None = None,
        limit: BodyLimit | None = None,
        bodies: BodyReader | None = None,
    ) -> None:
        """`users`: who else has a key; None: nobody. `limit`: of bodies of JSON; None: as
        configured. `bodies`: reads them; None: for clients of no special kind."""
        self.bodies = bodies or BodyReader(LiveConfig())
        self._limit = limit or BodyLimit.of(config, None)
        self._config = config
        self._key = key.encode()
        self._users = users
        self._buckets: dict[str, TokenBucket] = {}

    def has_key(self, request: web.Request) -> bool:
        """Whether it brings the owner's."""
        return any(
            hmac.compare_digest(key.encode(errors="replace"), self._key)
            for key in _keys_in(request)
        )

    def caller(self, request: web.Request) -> str | None:
        """The user whose key it brings: the OWNER, a user, or None for a stranger."""
        if self.has_key(request):
            return OWNER
        users = () if self._users is None else map(self._users.of_key, _keys_in(request))
        return next((user.name for user in users if user is not None), None)

    def check_key(self, request: web.Request) -> str:
        """The user who asks; OWNER also for a stranger who only wants to know whether it is ready.

        Raises Refusal for any other stranger.
        """
        caller = self.caller(request)
        if caller is None and request.path != "/readyz":
            raise _invalid_key()
        return OWNER if caller is None else caller

    def check_user(self, user: str) -> None:
        """Raise Refusal for somebody who was removed since they came in."""
        if user != OWNER and (self._users is None or self._users.get(user) is None):
            raise _invalid_key()

    def check_load(self, inside: int, user: str = OWNER, inside_of_user: int = 0) -> None:
        """Raise Refusal when as many requests as may be are inside already: of all (503), or of one
        user (429)."""
        limit = self._config.max_waiting
        if inside > limit:
            raise Refusal(503, f"{limit} requests are in progress already", "overloaded")
        limit = self._config.max_waiting_per_user
        if user != OWNER and inside_of_user > limit:
            raise Refusal(
                429,
                f"{limit} of your requests are in progress already: wait for one",
                "user_overloaded",
            )

    def check_rate(self, user: str) -> None:
        """Raise Refusal (429) when somebody's requests for replies come faster than allowed."""
        rate = self._config.max_requests_per_s
        if rate is None:
            return
        if user not in self._buckets:
            self._buckets[user] = TokenBucket(rate)
        wait_s = self._buckets[user].take()
        if wait_s:
            raise Refusal(
                429, f"more than {rate:g} requests a second", "rate_limit_exceeded", None, wait_s
            )

    async def json_of(self, request: web.Request, empty: Json | None = None) -> object:
        """The body as JSON, or `empty` when there is none and that is allowed.

        Raises Refusal for one that is too large, too slow or not JSON.
        """
        raw = await self.json_bytes_of(request)
        if empty is not None and not raw.strip():
            return empty
        return await self.bodies.json(raw, Sender(caller_of(request)))

    async def json_bytes_of(self, request: web.Request) -> bytes:
        """A body that is to be JSON, unread. Raises Refusal for one that is too large or slow."""
        return await self.body_of(request, self._limit.most_bytes, self._limit.refusal)

    def check_size(self, body: bytes) -> None:
        """Raise Refusal for a body of JSON that is too large to be read."""
        if len(body) > self._limit.most_bytes:
            raise self._limit.refusal()

    async def body_of(
        self,
        request: web.Request,
        most_bytes: float,
        refusal: Callable[[], Refusal] | None = None,
    ) -> bytes:
        """The body. Raises Refusal for one that is too large or too slow.

        What is announced as too large is not read at all. `refusal`: the answer to it; None: it
        says the limit.
        """
        refusal = refusal or partial(self.too_large, most_bytes)
        if (request.content_length or 0) > most_bytes:
            raise refusal()
        timeout_s = self._config.body_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                raw = await request.read()
        except TimeoutError:
            raise Refusal(
                408, f"the body did not arrive within {timeout_s:g} s", "timeout"
            ) from None
        except ValueError as error:  # a content encoding that does not decode
            raise Refusal(400, f"the body cannot be read: {error}") from None
        if len(raw) > most_bytes:
            raise refusal()
        return raw

    def too_large(self, most_bytes: float | None = None) -> Refusal:
        """`most_bytes`: None for those that any body may have."""
        limit_mb = self._config.max_body_mb if most_bytes is None else most_bytes / 2**20
        return Refusal(413, f"the body is larger than {limit_mb:g} MB", "body_too_large")


def _keys_in(request: web.Request) -> list[str]:
    """The keys of a request, by the headers of OpenAI's and of Anthropic's clients."""
    scheme, _, bearer = request.headers.get("Authorization", "").partition(" ")
    keys = [bearer if scheme.lower() == "bearer" else "", request.headers.get("x-api-key", "")]
    return [key.strip() for key in keys if key.strip()]


def _invalid_key() -> Refusal:
    return Refusal(
        401,
        "expected 'Authorization: Bearer KEY' or 'x-api-key: KEY' with the gateway's key or that "
        "of a user who has not been removed",
        "invalid_key",
    )


def retry_after(wait_s: float) -> str:
    """The header's value: whole seconds, at least one."""
    return str(max(1, math.ceil(wait_s)))


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
