"""The gateway: the only HTTP server of the policy.

OpenAI API in; who may come in, what an error looks like, which session a request belongs to. The
turns themselves are made in `turns.py`.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import resource
import secrets
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any
from uuid import uuid4

from aiohttp import web

from clawrl_gym.config import GatewayConfig, SamplingConfig
from clawrl_gym.errors import ClawError, ConfigError, ContextError, PolicyError, RequestError
from clawrl_gym.live import wire
from clawrl_gym.live.sessions import Sessions
from clawrl_gym.live.turns import GatewayStats, Policy, TurnMaker
from clawrl_gym.store import Store

__all__ = ["Gateway", "GatewayStats", "Policy"]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_BODY_TIMEOUT_S = 30.0
_READY_TIMEOUT_S = 2.0
_DRAIN_S = 0.5
"""How long requests under way may still finish when the gateway stops; waited for twice."""
_RECORD_TIMEOUT_S = 2.0
_log = logging.getLogger(__name__)


def check_key(config: GatewayConfig) -> None:
    """Raises ConfigError when it would listen to the network without a key of the user's."""
    if config.key is None and not _is_loopback(config.host):
        raise ConfigError(
            f"got gateway.host={config.host!r} and no gateway.key, expected a key for a host "
            "that others can reach: give gateway.key=SECRET or leave the host at 127.0.0.1"
        )


class Gateway:
    """One HTTP server in front of one policy, recording into one store."""

    def __init__(
        self,
        config: GatewayConfig,
        sampling: SamplingConfig,
        store: Store,
        policy: Policy,
        model_name: str,
        request_timeout_s: float = 120.0,
    ) -> None:
        check_key(config)
        self.key = config.key or secrets.token_urlsafe(32)
        self._config = config
        self._store = store
        self._policy = policy
        self._model_name = model_name
        self._sessions = Sessions(store)
        self._turns = TurnMaker(policy, self._sessions, sampling, request_timeout_s)
        self.stats = self._turns.stats
        self._runner: web.AppRunner | None = None

    @property
    def version(self) -> int:
        """The weight version that serves; the loop sets it after each swap."""
        return self._turns.version

    @version.setter
    def version(self, version: int) -> None:
        self._turns.version = version

    def held(self) -> AbstractContextManager[None]:
        """While inside, new requests wait in the gateway instead of in the policy."""
        return self._turns.held()

    async def start(self) -> str:
        """Listen; returns the base URL. Raises ConfigError when the port is taken."""
        _allow_open_files(2 * self._config.max_waiting + 256)
        app = web.Application(
            middlewares=[self._border], client_max_size=int(self._config.max_body_mb * 2**20)
        )
        app.router.add_get("/healthz", _healthy)
        app.router.add_get("/readyz", self._ready)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/sessions/{id}/v1/models", self._models)
        app.router.add_post("/sessions/{id}/v1/chat/completions", self._chat)
        app.router.add_post("/sessions/{id}/end", self._end)
        app.router.add_get("/sessions/{id}", self._show)
        runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=_DRAIN_S
        )
        await runner.setup()
        self._runner = runner
        await self._listen(runner)
        host, port = runner.addresses[0][:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def _listen(self, runner: web.AppRunner) -> None:
        host, port = self._config.host, self._config.port
        if host == "localhost":
            host = "127.0.0.1"  # one address: with two, port 0 would be two ports
        backlog = max(128, self._config.max_waiting)
        try:
            await web.TCPSite(runner, host, port, backlog=backlog).start()
        except OSError as error:
            await self.stop()
            raise ConfigError(
                f"port {port} is taken or cannot be used on {host!r} ({error.strerror}): "
                "give another gateway.port, or 0 for a free one"
            ) from error

    async def stop(self) -> None:
        """Stop listening, end what is under way, finish what is being recorded. Idempotent."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        await self._sessions.finish(_RECORD_TIMEOUT_S)

    @web.middleware
    async def _border(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Admission, and every error as an OpenAI error."""
        if request.path == "/healthz":
            return await handler(request)
        self.stats.requests += 1
        self.stats.inside += 1
        try:
            self._admit(request)
            return await handler(request)
        except wire.Refusal as refusal:
            return self._error(refusal.status, str(refusal), refusal.code, refusal.param)
        except web.HTTPRequestEntityTooLarge:
            limit = f"{self._config.max_body_mb:g} MB"
            return self._error(413, f"the body is larger than {limit}", "body_too_large")
        except web.HTTPException as error:
            return self._error(error.status, f"{request.method} {request.path}: {error.reason}")
        except ContextError as error:
            return self._error(400, str(error), "context_length_exceeded", "messages")
        except RequestError as error:
            return self._error(400, str(error), param="messages")
        except PolicyError as error:
            return self._error(502, str(error), "policy_unavailable")
        except ClawError as error:
            _log.error("%s: %s", request.path, error)
            return self._error(500, str(error), "internal")
        finally:
            self.stats.inside -= 1

    def _admit(self, request: web.Request) -> None:
        scheme, _, key = request.headers.get("Authorization", "").partition(" ")
        matches = hmac.compare_digest(key.strip().encode(errors="replace"), self.key.encode())
        if scheme.lower() != "bearer" or not matches:
            raise wire.Refusal(
                401, "expected 'Authorization: Bearer KEY' with the gateway's key", "invalid_key"
            )
        if self.stats.inside > self._config.max_waiting:
            limit = self._config.max_waiting
            raise wire.Refusal(503, f"{limit} requests are inside already", "overloaded")

    def _error(
        self, status: int, message: str, code: str = "invalid_request", param: str | None = None
    ) -> web.Response:
        if status in (500, 502):
            self.stats.failed += 1
        else:
            self.stats.refused += 1
        headers = {"Retry-After": "1"} if status == 503 else {}
        body = wire.error_json(status, message, code, param)
        return web.json_response(body, status=status, headers=headers)

    async def _ready(self, _: web.Request) -> web.Response:
        """200 when the policy answers; requests wait for it either way."""
        try:
            async with asyncio.timeout(_READY_TIMEOUT_S):
                await self._policy.metrics()
        except (PolicyError, TimeoutError) as error:
            raise wire.Refusal(503, f"the policy is not ready: {error}", "not_ready") from error
        return web.json_response({"ready": True, "version": self.version})

    async def _models(self, _: web.Request) -> web.Response:
        model = {"id": self._model_name, "object": "model", "owned_by": "clawrl_gym", "created": 0}
        return web.json_response({"object": "list", "data": [model]})

    async def _chat(self, request: web.Request) -> web.Response:
        chat = wire.parse_as(wire.ChatRequest, await _json(request))
        labels = _labels(request)
        named = request.match_info.get("id") or request.headers.get("X-Session-Id")
        session_id = wire.session_id_of(named) if named else uuid4().hex
        async with self._sessions.use(session_id, labels) as session:
            turn = await self._turns.turn(session, chat, labels.kind)
        headers = {
            "X-Session-Id": session_id,
            "X-Turn-Id": str(turn.id),
            "X-Weight-Version": str(turn.versions_T[-1] if turn.versions_T else self.version),
        }
        return web.json_response(wire.completion_json(turn, self._model_name), headers=headers)

    async def _end(self, request: web.Request) -> web.Response:
        asked = wire.parse_as(wire.EndRequest, await _json(request))
        session_id = wire.session_id_of(request.match_info["id"])
        labels = _labels(request)
        if asked.split is not None:
            labels = labels.model_copy(update={"split": asked.split})
        state = [message.plain() for message in asked.next_state or []]
        async with self._sessions.use(session_id, labels) as session:
            ended = await self._sessions.end(
                session, state, asked.reward, asked.stop_reason.value, asked.error
            )
        return web.json_response({"session_id": session_id, "ended_before": not ended})

    async def _show(self, request: web.Request) -> web.Response:
        session_id = wire.session_id_of(request.match_info["id"])
        row = await self._store.session(session_id)
        if row is None:
            raise wire.Refusal(404, f"there is no session {session_id!r}", "session_not_found")
        states = await self._store.next_states_of(session_id)
        turns = await self._store.turns_of(session_id)
        shown = [wire.turn_json(turn, states.get(turn.id or 0)) for turn in turns]
        return web.json_response(wire.session_json(row) | {"turns": shown})


async def _healthy(_: web.Request) -> web.Response:
    return web.json_response({"alive": True})


async def _json(request: web.Request) -> Any:
    """The body; a client that does not send it in time is refused."""
    try:
        async with asyncio.timeout(_BODY_TIMEOUT_S):
            return wire.parse_json(await request.read())
    except TimeoutError:
        raise wire.Refusal(408, f"the body did not arrive within {_BODY_TIMEOUT_S:g} s") from None


def _labels(request: web.Request) -> wire.Labels:
    names = (info.alias for info in wire.Labels.model_fields.values())
    given = {name: request.headers[name] for name in names if name and name in request.headers}
    return wire.parse_as(wire.Labels, given)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _allow_open_files(wanted: int) -> None:
    """Each request is a socket: raise the soft limit as far as the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
