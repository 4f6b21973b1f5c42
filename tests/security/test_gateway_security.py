"""What a client must not reach: the policy's routes, others' words, headers, keys in the log."""

from __future__ import annotations

import asyncio
import inspect
import logging
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import make_mocked_request

from clawrl_gym.config import GatewayConfig, LiveConfig
from clawrl_gym.core import redact
from clawrl_gym.gateway.admission.admission import Admission
from clawrl_gym.gateway.wire.refusals import Refusal
from tests.support.gateway_rig import HELLO, Bench, user

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    "path",
    [
        "/pause",
        "/resume",
        "/collective_rpc",
        "/update_weight_version",
        "/inference/v1/generate",
        "/clawrl/stream",
        "/clawrl/render",
        "/clawrl/reply",
        "/clawrl/tokenize",
        "/v1/chat/completions/render",
        "/v1/chat/completions/derender",
        "/sessions/s1/pause",
        "/sessions/s1/v1/../../pause",
        "/v1/models/..%2f..%2fpause",
        "/tokenize",
        "/v1/embeddings",
        "/v1/load_lora_adapter",
        "/sleep",
        "/health",
        "/docs",
        "//pause",
        "/v1//chat/completions",
        "http://127.0.0.1:8000/pause",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_no_route_of_the_policy_is_reachable(bench: Bench, method: str, path: str) -> None:
    """With the right key, too. Sent as it is, not as a client would tidy it."""
    async with bench.connection() as (reader, writer):
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {bench.gateway.key}\r\n"
        )
        writer.write(f"{head}Content-Length: 2\r\nConnection: close\r\n\r\n{{}}".encode())
        answer = await reader.read()
        status = int(answer.split(b" ", 2)[1])
        assert status in (400, 404, 405), answer
        assert (bench.policy.bodies, bench.policy.prompts) == ([], [])


@pytest.mark.parametrize(
    "session",
    [
        "a\r\nSet-Cookie: x=1",
        "a\nb",
        "../../etc/passwd",
        "a b",
        "a\x00b",
        "",
        "é",
        "a" * 201,
        "<script>",
        "unknown\r\n\r\nHTTP/1.1 200 OK",
    ],
)
async def test_a_session_id_cannot_become_a_header_or_a_path(bench: Bench, session: str) -> None:
    body: Any = {"messages": HELLO, "session_id": session}
    status, _, headers = await bench.post(CHAT, body)
    assert status == (200 if not session else 400)
    assert "Set-Cookie" not in headers
    quoted = "".join(f"%{byte:02x}" for byte in session.encode()) or "%20"
    url = f"{bench.url}/sessions/{quoted}{CHAT}"
    async with bench.connection() as (reader, writer):
        path = url.removeprefix(bench.url)
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {bench.gateway.key}\r\n"
        raw = b'{"messages": [{"role": "user", "content": "x"}]}'
        writer.write(
            f"{head}Content-Length: {len(raw)}\r\nConnection: close\r\n\r\n".encode() + raw
        )
        answer = await reader.read()
        assert answer.split(b" ", 2)[1] in (b"400", b"404"), answer
        assert b"Set-Cookie" not in answer.split(b"\r\n\r\n")[0]


async def test_what_a_client_names_its_session_in_a_message_cannot_inject(bench: Bench) -> None:
    """A runtime line holds a session id; what cannot be one is not taken for one."""
    bench.live = LiveConfig(runtime_session=("sessionId=([^|]*)",))
    await bench.restart()
    for evil in ("a\r\nSet-Cookie: x=1", "../../x", "a" * 300):
        text = f"hi\n\nRuntime: agent=main | sessionId={evil}| host=x"
        status, _, headers = await bench.post(CHAT, {"messages": [user(text)]})
        assert status == 200
        assert "Set-Cookie" not in headers
        assert headers["X-Session-Id"] not in evil


async def test_every_route_but_probes_asks_for_the_key(bench: Bench) -> None:
    routes = [
        ("GET", "/metrics"), ("GET", "/v1/models"), ("GET", "/v1/models/tiny"),
        ("POST", CHAT), ("POST", "/v1/completions"), ("POST", "/v1/feedback"),
        ("GET", "/v1/sessions"), ("GET", "/v1/sessions/s1"), ("DELETE", "/v1/sessions/s1"),
        ("POST", "/v1/sessions/s1/end"), ("POST", "/sessions/s1/end"), ("GET", "/sessions/s1"),
        ("POST", f"/sessions/s1{CHAT}"), ("POST", "/v1/seats"), ("GET", "/nothing"),
    ]  # fmt: skip
    async with aiohttp.ClientSession(bench.url) as stranger:
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": bench.gateway.key},
        ):
            for method, path in routes:
                async with stranger.request(method, path, headers=headers) as answer:
                    assert answer.status == 401, (method, path)
                    assert (await answer.json())["error"]["code"] == "invalid_key"
        async with stranger.get("/healthz") as answer:
            assert answer.status == 200
    assert bench.gateway.stats.inside == 0


async def test_a_stranger_s_body_is_not_read(bench: Bench) -> None:
    """Nothing is parsed for who has no key."""
    async with bench.connection() as (reader, writer):
        writer.write(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n".encode())
        assert b"401" in await asyncio.wait_for(reader.readline(), 60)


def test_keys_are_compared_by_a_function_that_takes_constant_time() -> None:
    """How long a wrong key takes to be refused must not tell how much of it is right."""
    source = inspect.getsource(Admission.has_key)
    assert "hmac.compare_digest(" in source
    assert source.count("==") == source.count('== "bearer"')


@pytest.mark.parametrize("wrong", ["", "K", "KEYS", "key", "K\u00e9Y", "KEY\x00"])
async def test_only_the_whole_key_opens(tmp_path: Path, wrong: str) -> None:
    admission = Admission(GatewayConfig(), "KEY")
    opens = make_mocked_request("GET", "/", headers={"Authorization": "Bearer KEY"})
    admission.check_key(opens)
    closed = make_mocked_request("GET", "/", headers={"Authorization": f"Bearer {wrong}"})
    with pytest.raises(Refusal, match="expected 'Authorization: Bearer KEY'"):
        admission.check_key(closed)


async def test_keys_and_tokens_do_not_reach_the_log(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    before = logging.getLogRecordFactory()
    redact.install([bench.gateway.key])
    try:
        with caplog.at_level(logging.DEBUG):
            bench.policy.max_prompt = 1
            await bench.post(CHAT, {"messages": [user(f"my key is {bench.gateway.key}")]})
            log = logging.getLogger("clawrl_gym")
            log.error("headers: %s", {"Authorization": f"Bearer {bench.gateway.key}"})
            try:
                raise RuntimeError(f"could not send {bench.gateway.key}")
            except RuntimeError:
                log.exception("failed")
    finally:
        logging.setLogRecordFactory(before)
    assert "failed" in caplog.text
    assert bench.gateway.key not in caplog.text


async def test_one_session_s_words_are_in_no_other(bench: Bench) -> None:
    await bench.say([user("alpha")], "a")
    await bench.say([user("beta")], "b")
    _, shown, _ = await bench.get("/v1/sessions/b")
    assert "alpha" not in str(shown)
    status, answer, _ = await bench.post(
        "/v1/feedback", {"session_id": "b", "turn_id": 1, "thumb": "up"}
    )
    assert (status, answer["error"]["code"]) == (404, "turn_not_found")


async def test_an_error_of_ours_tells_a_client_nothing_of_the_inside(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: Any, **__: Any) -> int:
        raise RuntimeError("/secret/path and words")

    bench.store.add_turn = broken  # type: ignore[method-assign]
    status, answer, _ = await bench.chat(HELLO)
    assert (status, answer["error"]["code"]) == (500, "internal")
    assert "secret" not in str(answer)
    assert "/secret/path and words" in caplog.text, "the log says why"
    events = await bench.events([user("more")])
    assert "secret" not in str(events)
    assert events[-1]["error"]["code"] == "internal"
