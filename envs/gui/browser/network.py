"""Network of one episode's pages: the task's sites, answered in this process, and `allow`."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from clawrl_gym.core.errors import ConfigError, EnvError
from clawrl_gym.envs.gui.site import Request, Response, Site

T = TypeVar("T")
_log = logging.getLogger(__name__)
_SITE_S = 30.0
_MOST_REFUSALS = 5
"""Told between two looks; the rest is only counted."""
_HTTP_PORT = 80
_HTTPS_PORT = 443


@dataclass(frozen=True, slots=True)
class Allowed:
    """One entry of `allow`: HOST, HOST:PORT or *.HOST; without a port, those of http and https."""

    host: str
    port: int | None = None
    below: bool = False
    """Every host below it, but only at public addresses: the names' owners are not known."""

    @staticmethod
    def read(written: str) -> Allowed:
        """Raises ConfigError."""
        below = written.startswith("*.")
        try:
            parts = urlsplit("//" + (written[2:] if below else written))
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if not host or "*" in host or parts.path or parts.query or parts.username is not None:
            raise ConfigError(
                f"got allow entry {written!r}, expected 'host', 'host:port' or '*.host'"
            )
        return Allowed(host, port, below)

    def admits(self, host: str, port: int) -> bool:
        if port not in ((_HTTP_PORT, _HTTPS_PORT) if self.port is None else (self.port,)):
            return False
        return host.endswith("." + self.host) if self.below else host == self.host


class Network:
    """The net as one context sees it."""

    def __init__(self, sites: Mapping[str, Site], allow: tuple[Allowed, ...]) -> None:
        self._sites = {host.lower(): site for host, site in sites.items()}
        self._names = {host.lower(): host for host in sites}
        self._allow = allow
        self._one_at_a_time = asyncio.Lock()
        self._refused: dict[str, int] = {}

    def is_site(self, host: str, port: int) -> bool:
        return port == _HTTP_PORT and host in self._sites

    def reaches(self, host: str, port: int) -> bool:
        """A page may ask for it."""
        return self.is_site(host, port) or self.entry(host, port) is not None

    def entry(self, host: str, port: int) -> Allowed | None:
        """The entry of `allow` that lets it through."""
        return next((one for one in self._allow if one.admits(host, port)), None)

    def refuse(self, url: str) -> None:
        """Remember, to be told, that a page asked for this and did not get it."""
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"[:200]
        if origin in self._refused or len(self._refused) < 1000:
            self._refused[origin] = self._refused.get(origin, 0) + 1

    def refusals(self) -> list[str]:
        """Refusals since the last call, in words."""
        origins, self._refused = self._refused, {}
        refusals = [f"refused: {origin} is outside of this task" for origin in origins]
        more = len(refusals) - _MOST_REFUSALS
        return refusals[:_MOST_REFUSALS] + ([f"refused: {more} more addresses"] if more > 0 else [])

    async def answer(
        self, host: str, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> Response:
        """The site's response; 500 when it fails."""
        site = self._sites[host]
        try:
            request = _request(method, target, headers, body)
            response = await self._call(lambda: site.handle(request))
            _check(response)
        except Exception:  # noqa: BLE001 (a site's fault is its own answer)
            _log.exception("site %r failed on %s %s", host, method, target[:200])
            return Response("<title>Error 500</title><h1>This site failed</h1>", status=500)
        return response

    async def states(self) -> dict[str, object]:
        """State of each site, by host name. Raises EnvError when a site does not give it."""
        try:
            return {
                self._names[host]: await self._call(site.state)
                for host, site in self._sites.items()
            }
        except TimeoutError as error:
            raise EnvError(f"a site of the task did not answer within {_SITE_S:g} s") from error

    async def _call(self, work: Callable[[], T]) -> T:
        """One call into the sites at a time: what hangs holds up this episode, and no other."""
        async with asyncio.timeout(_SITE_S):
            await self._one_at_a_time.acquire()
            future = asyncio.ensure_future(_on_a_thread(work))
            future.add_done_callback(lambda _: self._one_at_a_time.release())
            return await asyncio.shield(future)


async def _on_a_thread(work: Callable[[], T]) -> T:
    """Run on a thread of its own: those of `asyncio.to_thread` are few, and joined at exit."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 (raised where it is waited for)
            future.set_exception(error)

    threading.Thread(target=run, name="site", daemon=True).start()
    return await asyncio.wrap_future(future)


def _request(method: str, target: str, headers: Mapping[str, str], body: bytes) -> Request:
    parts = urlsplit(target)
    form: dict[str, str] = {}
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/x-www-form-urlencoded":
        form = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
    return Request(
        method=method,
        path=unquote(parts.path) or "/",
        query=dict(parse_qsl(parts.query, keep_blank_values=True)),
        form=form,
        headers=headers,
        body=body,
    )


def _check(response: Response) -> None:
    written = [response.content_type, *response.headers, *response.headers.values()]
    if any("\r" in text or "\n" in text for text in written):
        raise ValueError(f"line breaks in the headers of a response: {written!r}")


async def addresses(host: str, port: int, entry: Allowed) -> list[str]:
    """Where an allowed host is. Raises EnvError when a name of others leads into our own net."""
    loop = asyncio.get_running_loop()
    entries = await loop.getaddrinfo(host, port, type=1)
    places = [str(each[4][0]) for each in entries]
    if entry.below:
        places = [each for each in places if ipaddress.ip_address(each).is_global]
    if not places:
        raise EnvError(f"{host} has no public address")
    return places
