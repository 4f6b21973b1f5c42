"""The page to play a task on, served to this machine's user alone.

The address holds a token that others on the machine cannot guess. A request must name this server
as its host, so that no other site's name can be pointed at it, and what changes something must be
JSON from the page itself, which no form of another site can send.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from aiohttp import web

from clawrl_gym.core.errors import ClawError, ConfigError, EnvError, TaskError
from clawrl_gym.envs.gui.watch.player import Player

T = TypeVar("T")
P = ParamSpec("P")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_ASSETS = Path(__file__).resolve().parent / "page"
_TYPES = {"watch.js": "text/javascript", "watch.css": "text/css"}
_HOSTS = ("127.0.0.1", "localhost")
_LONGEST_TEXT = 20_000
_BODY_BYTES = 1 << 18
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; img-src 'self'; script-src 'self'; "
    "style-src 'self'; connect-src 'self'; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def serve(player: Player, port: int, *, by_oracle: bool) -> int:
    """Serve until Ctrl-C; returns the exit code. Raises ClawError for a task that cannot start."""
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(player, port, by_oracle))
    return 0


async def _serve(player: Player, port: int, by_oracle: bool) -> None:
    server = WatchServer(player, by_oracle=by_oracle)
    try:
        url = await server.start(port)
        sys.stdout.write(f"{url}\nopen it in a browser; Ctrl-C ends\n")
        sys.stdout.flush()
        await asyncio.Event().wait()
    finally:
        await server.stop()


class WatchServer:
    """One player behind one page. The player's calls all run on one thread."""

    def __init__(self, player: Player, *, by_oracle: bool = False) -> None:
        self._player = player
        self._by_oracle = by_oracle
        self._token = secrets.token_urlsafe(24)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="watch")
        self._runner: web.AppRunner | None = None
        self._hosts: frozenset[str] = frozenset()

    async def start(self, port: int = 0) -> str:
        """Begin the task and listen on loopback; returns the address of the page."""
        await self._call(self._player.begin)
        app = web.Application(middlewares=[self._border], client_max_size=_BODY_BYTES)
        base = f"/{self._token}"
        app.router.add_get(f"{base}/", self._page)
        app.router.add_get(f"{base}/state", self._state)
        app.router.add_get(f"{base}/page.jpg", self._picture)
        app.router.add_get(f"{base}/film.jpg", self._film)
        app.router.add_get(f"{base}/{{asset}}", self._asset)
        app.router.add_post(f"{base}/act", self._act)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        self._runner = runner
        try:
            await web.TCPSite(runner, "127.0.0.1", port).start()
        except OSError as error:
            raise ConfigError(
                f"port {port} cannot be used ({error.strerror}): give another --port, or none"
            ) from error
        bound = runner.addresses[0][1]
        self._hosts = frozenset(f"{host}:{bound}" for host in _HOSTS)
        return f"http://127.0.0.1:{bound}{base}/"

    async def stop(self) -> None:
        """Stop listening and close the environment. Idempotent."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        await self._call(self._player.env.close)
        self._thread.shutdown(wait=False)

    async def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, partial(function, *args, **kwargs))

    @web.middleware
    async def _border(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.headers.get("Host", "") not in self._hosts:
            raise web.HTTPForbidden(text="unknown host", headers=_HEADERS)
        token = request.path.split("/")[1]
        if not hmac.compare_digest(token.encode(errors="replace"), self._token.encode()):
            raise web.HTTPForbidden(
                text="wrong token: use the address that was printed", headers=_HEADERS
            )
        response = await handler(request)
        response.headers.update(_HEADERS)
        return response

    async def _page(self, _: web.Request) -> web.Response:
        return self._file("watch.html", "text/html")

    async def _asset(self, request: web.Request) -> web.Response:
        name = request.match_info["asset"]
        if name not in _TYPES:
            raise web.HTTPNotFound(text="there is nothing of that name", headers=_HEADERS)
        return self._file(name, _TYPES[name])

    def _file(self, name: str, content_type: str) -> web.Response:
        text = (_ASSETS / name).read_text(encoding="utf-8")
        return web.Response(text=text, content_type=content_type, charset="utf-8")

    async def _state(self, _: web.Request) -> web.Response:
        return web.json_response(await self._call(self._shown_state))

    async def _picture(self, _: web.Request) -> web.Response:
        return _jpeg(self._player.picture)

    async def _film(self, _: web.Request) -> web.Response:
        return _jpeg(await self._call(self._player.env.film))

    async def _act(self, request: web.Request) -> web.Response:
        """POST act: {"do": "reply", "text": ...}, {"do": "oracle"} or {"do": "again"}."""
        origin = request.headers.get("Origin")
        if origin is not None and origin not in {f"http://{host}" for host in self._hosts}:
            raise web.HTTPForbidden(text="expected the page itself", headers=_HEADERS)
        if request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType(text="expected JSON", headers=_HEADERS)
        try:
            body = await request.json()
        except ValueError:
            body = None
        do, text = (body.get("do"), body.get("text")) if isinstance(body, dict) else (None, None)
        if do == "reply" and isinstance(text, str) and len(text) <= _LONGEST_TEXT:
            return await self._respond_after(self._player.act, text)
        if do == "oracle":
            return await self._respond_after(self._player.oracle)
        if do == "again":
            return await self._respond_after(self._player.begin)
        raise web.HTTPBadRequest(
            text="expected do: reply (with text), oracle or again", headers=_HEADERS
        )

    async def _respond_after(self, function: Callable[..., None], *args: str) -> web.Response:
        message = ""
        try:
            await self._call(function, *args)
        except TaskError as error:
            message = str(error)
        except ClawError as error:
            self._player.error = str(error)
        return web.json_response({**await self._call(self._shown_state), "said": message})

    def _shown_state(self) -> dict[str, object]:
        """All that the page shows."""
        player, env = self._player, self._player.env
        try:
            view: dict[str, object] | None = asdict(env.view)
        except EnvError:
            view = None
        return {
            "task": env.task.id,
            "family": env.task.family,
            "instruction": env.task.instruction,
            "observation": player.turns[-1].observation if player.turns else player.observation,
            "view": view,
            "picture": player.pictures,
            "turns": [asdict(turn) for turn in player.turns],
            "over": player.is_over,
            "reward": player.reward,
            "report": env.report,
            "error": player.error,
            "has_oracle": bool(env.task.solution),
            "by_oracle": self._by_oracle,
            "said": "",
        }


def _jpeg(picture: bytes | None) -> web.Response:
    if picture is None:
        raise web.HTTPNotFound(text="there is no picture", headers=_HEADERS)
    return web.Response(body=picture, content_type="image/jpeg")
