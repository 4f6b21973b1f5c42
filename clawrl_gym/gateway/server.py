"""The gateway: the only HTTP server of the policy.

Clients' APIs in; which routes there are, who may come in, what an error looks like. Replies are
made in `turns.py`, sent in `replies.py`; a route that is not listed here does not exist, so none of
the policy's own is reachable.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from aiohttp import web
from pydantic import Field

from clawrl_gym.config import GatewayConfig, ImagesConfig, LiveConfig, SamplingConfig
from clawrl_gym.core import link
from clawrl_gym.core.errors import ConfigError, PolicyError
from clawrl_gym.core.files.open_files import allow_open_files
from clawrl_gym.dialogue.prompts import HistoryRule
from clawrl_gym.gateway import prometheus
from clawrl_gym.gateway.admission.admission import Admission, check_key
from clawrl_gym.gateway.admission.allowances import Allowances
from clawrl_gym.gateway.admission.quota import Quota
from clawrl_gym.gateway.admission.shares import Shares
from clawrl_gym.gateway.bodies.bodies import BodyLimit, BodyReader
from clawrl_gym.gateway.border import Border, Handler
from clawrl_gym.gateway.dialects.messages import models_json
from clawrl_gym.gateway.dialects.table import DIALECTS
from clawrl_gym.gateway.earlier import EarlierAnswers
from clawrl_gym.gateway.feedback import Feedback
from clawrl_gym.gateway.films import Films
from clawrl_gym.gateway.hooks import Hooks
from clawrl_gym.gateway.http_server import Runner
from clawrl_gym.gateway.link import Links
from clawrl_gym.gateway.prometheus import GatewayMetrics, GatewayStats
from clawrl_gym.gateway.replies import Replies
from clawrl_gym.gateway.responders import Responders, add_routes
from clawrl_gym.gateway.sessions.sessions import Sessions
from clawrl_gym.gateway.sessions_api import SessionsApi
from clawrl_gym.gateway.stalls import Stalls
from clawrl_gym.gateway.turns import TurnMaker
from clawrl_gym.gateway.versions import VersionsApi
from clawrl_gym.gateway.wire.identify import TransientBlocks
from clawrl_gym.gateway.wire.pictures import Pictures
from clawrl_gym.gateway.wire.refusals import Refusal
from clawrl_gym.gateway.wire.requests import Fields, parse_as
from clawrl_gym.gateway.wire.sse import Pace
from clawrl_gym.inference.interface import Policies, Versions
from clawrl_gym.store import Store
from clawrl_gym.store.users import Users

__all__ = ["Gateway", "GatewayStats", "Hooks", "check_key"]

_READY_TIMEOUT_S = 2.0
_DRAIN_S = 0.5
"""Seconds that requests in flight may still take when the gateway stops; waited for twice."""
_RECORD_TIMEOUT_S = 2.0
_IDLE_CONNECTION_S = 120.0
"""A connection without a whole request for so long is closed."""


class OutagesRequest(Fields):
    """GET /v1/outages."""

    last_s: float = Field(3600.0, ge=0, allow_inf_nan=False)
    session_id: str | None = None
    """Session whose slow replies are reported, too."""


class Gateway:
    """One HTTP server in front of policies with the same weights, recording into one store."""

    def __init__(
        self,
        config: GatewayConfig,
        sampling: SamplingConfig,
        store: Store,
        policies: Policies,
        model_name: str,
        request_timeout_s: float = 120.0,
        *,
        live: LiveConfig | None = None,
        hooks: Hooks | None = None,
        pace: Pace | None = None,
        images: ImagesConfig | None = None,
        history: HistoryRule | None = None,
        films: Path | None = None,
        on_film: Callable[[Path], None] = lambda _: None,
        users: Users | None = None,
        versions: Versions | None = None,
        allowances: Path | None = None,
    ) -> None:
        """`users`: who has a key beside the owner; None: nobody. `films`: folder that films of
        episodes are kept in; None keeps none. `images`: limits of pictures; None: the policy cannot
        see any. `history`: None for prompts of any length. `versions`: which one answers whom;
        None: one set of weights answers all. `allowances`: folder that keeps what users took of
        theirs; None keeps it in memory.

        Raises ConfigError when it would listen to the network without a key."""
        check_key(config)
        live = live or LiveConfig()
        self.key = config.key or secrets.token_urlsafe(32)
        self._config = config
        self._policies = policies
        self._model_name = model_name
        context = None if history is None else history.context
        limit = BodyLimit.of(config, context, images)
        self._admission = Admission(config, self.key, users, limit, BodyReader(live, context))
        transient = TransientBlocks(live.rules.transient)
        self._responders = responders = Responders(transient.removed_from)
        self._films = Films(self._admission, store, films, on_film)
        hooks = _cleaning_up(hooks or Hooks(), responders, policies, self._films)
        limited = Counter[str]()
        self._allowances = Allowances(config, limited, folder=allowances)
        self.sessions = Sessions(
            store,
            live,
            config.max_sessions,
            hooks,
            users,
            config.max_sessions_per_user,
            self._allowances,
        )
        self._turns = TurnMaker(
            policies,
            self.sessions.recorder,
            sampling,
            request_timeout_s,
            responders,
            history,
            versions,
        )
        self.stats = self._turns.stats
        self.stats.limited = limited
        self._metrics = GatewayMetrics(
            self.stats, lambda: self.sessions.open_count, lambda: self.version, policies.metrics
        )
        pictures = Pictures(store, images)
        self._replies = Replies(
            self._admission,
            self.sessions,
            self._turns,
            self._metrics,
            model_name,
            pace or Pace(),
            pictures,
            Shares(config.max_running_per_user),
            Quota(store, live),
            EarlierAnswers(store),
        )
        self._stalls = Stalls(policies, self._turns.outages, lambda: self.stats.inside > 0)
        self._watches: list[asyncio.Task[None]] = []
        self.versions = VersionsApi(self._admission)
        self._feedback = Feedback(self._admission, store, hooks.on_verdict, self._allowances)
        self._sessions_api = SessionsApi(
            self._admission, store, self.sessions, pictures, self._allowances
        )
        self._border = Border(self._admission, self.stats)
        self._links = Links(self._border, self._replies.linked, self._sessions_api.linked_end)
        self._runner: Runner | None = None

    async def turn_out(self, user: str) -> None:
        """End the requests of a user whose key no longer opens anything."""
        await self._border.turn_out(user)
        self._allowances.forget(user)
        await self._allowances.save()

    async def delete_user(self, user: str) -> int:
        """Delete the sessions of a user who was turned out, with all data; returns how many there
        were."""
        return await self.sessions.delete_user(user)

    @property
    def version(self) -> int:
        """The weight version that serves; the loop sets it after each swap."""
        return self._turns.version

    @version.setter
    def version(self, version: int) -> None:
        self._turns.version = version

    @contextmanager
    def hold_requests(self) -> Iterator[None]:
        """While inside, new requests wait in the gateway instead of in the policy."""
        began_s = time.perf_counter()
        try:
            with self._turns.hold_requests():
                yield
        finally:
            self._metrics.hold_s.observe(time.perf_counter() - began_s)

    async def start(self, sock: socket.socket | None = None) -> str:
        """Listen, on a socket that is bound already or as configured; returns the base URL.

        The policy need not be there yet: requests wait for it. Raises ConfigError when the port is
        taken.
        """
        allow_open_files(2 * self._config.max_waiting + 256)
        await self.sessions.start()
        runner = Runner(
            self._app(),
            self._border.without_route,
            handler_cancellation=True,
            access_log=None,
            shutdown_timeout=_DRAIN_S,
            keepalive_timeout=_IDLE_CONNECTION_S,
        )
        await runner.setup()
        self._runner = runner
        await self._listen(runner, sock)
        self._watches = [
            asyncio.create_task(self._stalls.run()),
            asyncio.create_task(self._allowances.run()),
        ]
        host, port = runner.addresses[0][:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def _app(self) -> web.Application:
        app = web.Application(
            middlewares=[self._middleware], client_max_size=int(self._config.max_body_mb * 2**20)
        )
        get, post, delete = app.router.add_get, app.router.add_post, app.router.add_delete
        get("/healthz", _healthy)
        get("/readyz", self._ready)
        get("/metrics", self._show_metrics)
        get("/v1/outages", self._show_outages)
        get("/v1/versions", self.versions.list)
        post("/v1/versions/{version}", self.versions.rollback)
        post("/v1/versions/{version}/pin", self.versions.pin)
        delete("/v1/pins/{name}", self.versions.unpin)
        get(link.PATH, self._links.serve)
        app.on_shutdown.append(self._links.close)
        for base in ("", "/sessions/{id}"):
            get(f"{base}/v1/models", self._models)
            get(f"{base}/v1/models/{{model:.+}}", self._model)
            for path, dialect in DIALECTS.items():
                post(f"{base}{path}", self._replies.handler(dialect))
            post(f"{base}/v1/messages/count_tokens", self._replies.count)
            post(f"{base}/v1/feedback", self._feedback.post)
        get("/v1/sessions", self._sessions_api.list)
        post("/v1/sessions/{id}/end", self._sessions_api.end_known)
        post("/sessions/{id}/begin", self._sessions_api.begin)
        post("/sessions/{id}/end", self._sessions_api.end)
        post("/sessions/{id}/film", self._films.post)
        for path in ("/v1/sessions/{id}", "/sessions/{id}"):
            get(path, self._sessions_api.show)
            delete(path, self._sessions_api.delete)
        add_routes(app.router, self._responders)
        return app

    async def _listen(self, runner: Runner, sock: socket.socket | None) -> None:
        host, port = self._config.host, self._config.port
        if host == "localhost":
            host = "127.0.0.1"  # one address: with two, port 0 would be two ports
        backlog = max(128, self._config.max_waiting)
        try:
            if sock is not None:
                await web.SockSite(runner, sock, backlog=backlog).start()
            else:
                await web.TCPSite(runner, host, port, backlog=backlog).start()
        except OSError as error:
            await self.stop()
            raise ConfigError(
                f"port {port} is taken or cannot be used on {host!r} ({error.strerror}): "
                "give another gateway.port, or 0 for a free one"
            ) from error

    async def stop(self) -> None:
        """Stop listening, end what is under way, finish what is being recorded. Idempotent."""
        for watch in self._watches:
            watch.cancel()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        await self._allowances.save()
        await self._admission.bodies.close()
        await self.sessions.recorder.finish(_RECORD_TIMEOUT_S)

    @web.middleware
    async def _middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        return await self._border.http(request, handler)

    async def _ready(self, request: web.Request) -> web.Response:
        """200 when a policy answers; requests wait for it either way. Probes have no key and are
        told nothing else."""
        knows_key = self._admission.has_key(request)
        try:
            async with asyncio.timeout(_READY_TIMEOUT_S):
                await self._policies.metrics()
        except (PolicyError, TimeoutError) as error:
            why = f": {error}" if knows_key else ""
            raise Refusal(503, f"the policy is not ready{why}", "not_ready") from error
        return web.json_response({"ready": True} | ({"version": self.version} if knows_key else {}))

    async def _show_metrics(self, _: web.Request) -> web.Response:
        text = await self._metrics.text()
        return web.Response(body=text, headers={"Content-Type": prometheus.CONTENT_TYPE})

    async def _show_outages(self, request: web.Request) -> web.Response:
        asked = parse_as(OutagesRequest, dict(request.query))
        told = {"outages_s": self._turns.outages.seconds_of(asked.last_s)}
        session = self.sessions.warm(asked.session_id) if asked.session_id else None
        if session is not None:
            replies = session.reply_times
            told |= {"slow_s": replies.slow_s, "tokens_per_s": replies.tokens_per_s}
        return web.json_response(told)

    async def _models(self, request: web.Request) -> web.Response:
        if "anthropic-version" in request.headers:
            return web.json_response(models_json([self._model_name]))
        return web.json_response({"object": "list", "data": [self._model_json()]})

    async def _model(self, request: web.Request) -> web.Response:
        self._replies.check_model(request.match_info["model"])
        return web.json_response(self._model_json())

    def _model_json(self) -> dict[str, str | int]:
        return {
            "id": self._model_name,
            "object": "model",
            "owned_by": "clawrl_gym",
            "created": 0,
        }


async def _healthy(_: web.Request) -> web.Response:
    return web.json_response({"alive": True})


def _cleaning_up(hooks: Hooks, responders: Responders, policies: Policies, films: Films) -> Hooks:
    """The hooks, which also drop what a session that is over has left in the gateway."""

    def on_end(session_id: str) -> None:
        responders.end(session_id)
        policies.forget(session_id)
        hooks.on_end(session_id)

    def on_delete(session_id: str) -> None:
        responders.end(session_id)
        policies.forget(session_id)
        films.forget(session_id)
        hooks.on_delete(session_id)

    return replace(hooks, on_end=on_end, on_delete=on_delete)
