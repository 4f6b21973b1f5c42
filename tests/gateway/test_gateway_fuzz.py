"""Anything is sent to every route of the gateway, and to its socket: no answer is a 500."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import WSMsgType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clawrl_gym.core.errors import ConfigError
from clawrl_gym.serving.versions import LiveVersions
from clawrl_gym.store.users import Users
from tests.gateway.bare_http import Answer, Header, request, send
from tests.gateway.gateway_bodies import (
    ANTHROPIC,
    CHATS,
    COUNTED,
    ENDS,
    JSON,
    MESSAGE,
    OPINIONS,
    RESPONSES,
    TEXT,
    TEXTS,
    mostly,
)
from tests.support.gateway_rig import HELLO, Bench
from tests.support.waiting import until

Body = st.SearchStrategy[Any]
ROUTES: dict[tuple[str, str], Body] = {
    ("GET", "/healthz"): JSON,
    ("GET", "/readyz"): JSON,
    ("GET", "/metrics"): JSON,
    ("GET", "/link"): JSON,
    ("GET", "/v1/outages"): JSON,
    ("GET", "/v1/models"): JSON,
    ("GET", "/v1/models/{model}"): JSON,
    ("GET", "/sessions/{id}/v1/models"): JSON,
    ("GET", "/sessions/{id}/v1/models/{model}"): JSON,
    ("POST", "/v1/chat/completions"): CHATS,
    ("POST", "/sessions/{id}/v1/chat/completions"): CHATS,
    ("POST", "/v1/completions"): TEXTS,
    ("POST", "/sessions/{id}/v1/completions"): TEXTS,
    ("POST", "/v1/messages"): ANTHROPIC,
    ("POST", "/sessions/{id}/v1/messages"): ANTHROPIC,
    ("POST", "/v1/messages/count_tokens"): COUNTED,
    ("POST", "/sessions/{id}/v1/messages/count_tokens"): COUNTED,
    ("POST", "/v1/responses"): RESPONSES,
    ("POST", "/sessions/{id}/v1/responses"): RESPONSES,
    ("POST", "/v1/feedback"): OPINIONS,
    ("POST", "/sessions/{id}/v1/feedback"): OPINIONS,
    ("GET", "/v1/sessions"): JSON,
    ("GET", "/v1/sessions/{id}"): JSON,
    ("GET", "/sessions/{id}"): JSON,
    ("DELETE", "/v1/sessions/{id}"): JSON,
    ("DELETE", "/sessions/{id}"): JSON,
    ("POST", "/v1/sessions/{id}/end"): ENDS,
    ("POST", "/sessions/{id}/end"): ENDS,
    ("POST", "/sessions/{id}/begin"): JSON,
    ("POST", "/sessions/{id}/film"): JSON,
    ("GET", "/v1/versions"): JSON,
    ("POST", "/v1/versions/{version}"): JSON,
    ("POST", "/v1/versions/{version}/pin"): st.fixed_dictionaries(
        {"name": mostly(TEXT | st.sampled_from(["good", "../x", "a" * 65]))}
    ),
    ("DELETE", "/v1/pins/{name}"): JSON,
    ("POST", "/v1/seats"): JSON,
    ("GET", "/v1/seats/{id}/next"): JSON,
    ("POST", "/v1/seats/{id}/reply"): st.fixed_dictionaries({"message": mostly(MESSAGE)}),
    ("DELETE", "/v1/seats/{id}"): JSON,
}
"""Every route, and bodies that it may read; one that is not here fails a test."""
RIGHT = {
    "id": ["s1", "s2", "SEAT", "ended"],
    "model": ["tiny", "policy"],
    "version": ["0", "3", "4"],
    "name": ["good", "bad"],
}
ODD_SEGMENTS = [
    b"%00", b"a%00b", b"%ED%A0%80", b"%FF", b"%C3%28", b"..", b"%2e%2e", b".", b"%2F", b"a%2Fb",
    b"..%2F..%2Fetc", b"x" * 3000, b"%F0%9F%92%A9", b"%E2%80%AE", b"%", b"%zz", b"%u0041", b"s1;x",
    b"s1%3Fx", b"s1%23", b"+", b"%20", b"~", b"'%20OR%201=1--", b"-1", b"1" * 18, b"9" * 19,
    b"9" * 4000, b"0x1", b"%EF%BC%91", b"%D9%A3", b"1e3", b"{id}", b"NaN", b"null", b"%0A",
    b"%0D%0AX-Y:%20z", b"a%0Ab", b"*", b"&", b"=", b"@", b"a:b", b"[1]", b"%5B", b"|", b"^", b"",
    b"anna%2Fs1", b"%25%30%30", b"\xc3\xa9", b"\xff",
]  # fmt: skip
ODD_VALUES = [
    b"", b"0", b"-1", b"0.01", b"9" * 4000, b"1e-9", b"nan", b"inf", b"-inf", b"1e400", b"1_0e-9",
    b"0x1", b"x", b"%00", b"%ED%A0%80", b"%FF", b"%F0%9F%92%A9", b"..%2F..", b"owner", b"anna",
    b"true", b"perhaps", b"[]", b"{}", b"x" * 3000, b"%0A", b"+", b"\xff",
]  # fmt: skip
NAMES = [b"user", b"limit", b"open", b"first", b"count", b"last_s", b"timeout_s", b"", b"%00",
         b"a[]", b"%ED%A0%80"]  # fmt: skip
ENCODINGS = [b"gzip", b"deflate", b"br", b"zstd", b"identity", b"odd", b"gzip, gzip", b"", b"\xff"]
FRAMINGS = [
    [("Content-Length", b"-1")], [("Content-Length", b"abc")], [("Content-Length", b"1e3")],
    [("Content-Length", b"9" * 30)], [("Content-Length", b"+2")], [("Content-Length", b"2, 2")],
    [("Content-Length", b"2"), ("Content-Length", b"3")], [("Content-Length", b"")],
    [("Transfer-Encoding", b"gzip")], [("Transfer-Encoding", b"identity")],
    [("Transfer-Encoding", b"chunked, chunked")], [("Transfer-Encoding", b"\xff")],
    [("Transfer-Encoding", b"chunked"), ("Content-Length", b"2")],
]  # fmt: skip
ODD_HEADERS: list[list[Header]] = [
    [],
    *([("Content-Encoding", value)] for value in ENCODINGS),
    *([("Content-Type", value)] for value in (
        b"text/plain", b"application/json; charset=utf-99", b"multipart/form-data; boundary=",
        b"application/x-www-form-urlencoded", b"\xff", b";;;", b"")),
    *([(name, value)] for name in (
        "X-Session-Id", "X-Turn-Type", "X-Session-Done", "X-Group-Id", "X-Task-Id", "X-Split",
        "X-Clawrl-Evaluation", "X-Stainless-Retry-Count", "Accept", "Cookie", "Range", "Host",
        "Upgrade", "Expect", "Origin", "X-Forwarded-For", "If-None-Match", "Sec-WebSocket-Key")
      for value in (b"1", b"\xff", b"", b"x" * 3000, b"a b", b"9" * 4000, b"\xed\xa0\x80",
                    b"a\x01b", b";;;=,", b"100-continue", b"websocket")),
    [("Upgrade", b"websocket"), ("Connection", b"Upgrade")],
    [("Upgrade", b"websocket"), ("Connection", b"Upgrade"), ("Sec-WebSocket-Version", b"99")],
    [("Upgrade", b"h2c"), ("HTTP2-Settings", b"\xff")],
    [("A", b"b")] * 200,
    [("Bad Name", b"x")],
    [("X\x00", b"x")],
]  # fmt: skip
ODD_KEYS = [
    b"Bearer \xff", b"Bearer \xed\xa0\x80", b"Bearer", b"Bearer ", b"Basic Og==", b"Basic \xff",
    b"Bearer " + b"x" * 7000, b"Bearer a b c", b"", b"\x7f", b"bearer\tx", b"Digest username=",
    b"Bearer sk-\xf0\x9f\x92\xa9", b"NULL", b"Bearer null, Bearer x",
]  # fmt: skip
ODD_BODIES = [
    b"", b" ", b"{}", b"null", b"[]", b"1", b'"x"', b"true", b"NaN", b"-Infinity", b"1e999",
    b"9" * 5000, b'{"a":' * 5000, b"[" * 20_000, b"[" * 2000 + b"]" * 2000,
    b'{"reward":1,"reward":"x"}', b"\xff\xfe{\x00}\x00", b"\xef\xbb\xbf{}", b"{", b"<xml/>",
    b"a=b&c=d", b"\x00" * 50, b"\x1f\x8b\x08\x00", b"\xff\xd8\xff\x00\xff\xd9",
    b'{"\\ud800":"\\udfff"}', b"--x\r\n\r\n", b"{} {}", b'{"a":1e-99999}', b'{"a":-0}',
    b"\xff\xfe\xfa", b'{"messages":[{"role":"user","content":"\xed\xa0\x80"}]}',
]  # fmt: skip


def segment(name: str) -> st.SearchStrategy[bytes]:
    right = st.sampled_from([value.encode() for value in RIGHT[name]])
    return st.one_of(right, right, st.sampled_from(ODD_SEGMENTS), st.binary(max_size=6).map(quoted))


def quoted(raw: bytes) -> bytes:
    return "".join(f"%{byte:02X}" for byte in raw).encode()


VALUES = st.sampled_from(ODD_VALUES) | st.binary(max_size=4).map(quoted)
QUERIES = st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=3).map(
    lambda pairs: b"&".join(name + b"=" + value for name, value in pairs)
)


class Live:
    """One gateway for all examples, on a loop of its own, with everything that has a route."""

    def __init__(self, folder: Path) -> None:
        self.loop = asyncio.new_event_loop()
        self.folder = folder
        self.bench = Bench(folder, body_timeout_s=0.2)
        self.bench.films = folder / "films"
        users = Users(folder)
        self.keys = {"anna": users.add("anna").encode()}
        self.bench.users = users
        self.run(self.bench.start())
        self.keys["owner"] = self.bench.gateway.key.encode()
        (folder / "checkpoints" / "000003").mkdir(parents=True)
        self.bench.gateway.versions.keeper = LiveVersions(
            OwnVersions(),  # type: ignore[arg-type]
            UserVersions(),  # type: ignore[arg-type]
            self.bench.store,
            folder,
        )

    def close(self) -> None:
        self.run(self.bench.stop())
        self.loop.close()

    def run(self, work: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(work)

    def send(self, raw: bytes) -> Answer:
        answer: Answer = self.run(send(self.bench, raw))
        return answer

    async def seat(self) -> str:
        """A seat in a session whose client waits for its reply."""
        claim = asyncio.create_task(self.bench.post("/v1/seats?timeout_s=9", None))
        await until(lambda: self.bench.gateway._responders._claims)
        self.waiting = asyncio.create_task(self.bench.chat(HELLO, f"seated-{uuid4().hex}"))
        _, claimed, _ = await claim
        return str(claimed["seat"])


class OwnVersions:
    """The run's own line, as far as the gateway asks for it."""

    def kept_versions(self) -> list[int]:
        return [0, 3]

    async def rollback(self, version: int) -> int:
        if version not in self.kept_versions():
            raise ConfigError(f"got version {version}, expected one of 0, 3")
        return 9


class UserVersions:
    """The lines of users."""

    def kept_versions(self, user: str) -> list[int]:
        if user != "anna":
            raise ConfigError(f"there is no user {user!r}")
        return [0, 3]

    async def rollback(self, version: int, user: str) -> int:
        if version not in self.kept_versions(user):
            raise ConfigError(f"got version {version}, expected one of 0, 3")
        return 9


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    live = Live(tmp_path_factory.mktemp("fuzz"))
    yield live
    live.close()


@st.composite
def framed(draw: st.DrawFn, body: Body) -> tuple[list[Header], bytes]:
    """Headers that say how long a body is, and what is sent of it."""
    raw = draw(st.sampled_from(ODD_BODIES) | body.map(lambda value: json.dumps(value).encode()))
    how = draw(st.integers(0, 9))
    if how == 0:
        return draw(st.sampled_from(FRAMINGS)), raw
    if how == 1:
        chunk = b"%x\r\n%s\r\n" % (len(raw), raw) if raw else b""
        return [("Transfer-Encoding", b"chunked")], chunk + b"0\r\n\r\n"
    if how == 2:
        return [("Transfer-Encoding", b"chunked")], draw(
            st.sampled_from([b"zz\r\n", b"-1\r\n\r\n"])
        )
    return [("Content-Length", str(len(raw)).encode())], raw


@st.composite
def requests(draw: st.DrawFn, route: tuple[str, str], live: Live, seat: str) -> bytes:
    method, pattern = route
    if draw(st.integers(0, 19)) == 0:
        method = draw(st.sampled_from(["HEAD", "PUT", "PATCH", "OPTIONS", "TRACE", "FOO", "get"]))
    parts = [
        draw(segment(part[1:-1])).replace(b"SEAT", seat.encode())
        if part.startswith("{")
        else part.encode()
        for part in pattern.split("/")
    ]
    target, query = b"/".join(parts), draw(QUERIES)
    if query:
        target += b"?" + query
    key = draw(st.sampled_from(["owner", "owner", "owner", "anna", "odd", "none"]))
    headers: list[Header] = []
    if key == "odd":
        headers.append(("Authorization", draw(st.sampled_from(ODD_KEYS))))
    elif key != "none":
        headers.append(("Authorization", b"Bearer " + live.keys[key]))
    if draw(st.booleans()):
        headers += draw(st.sampled_from(ODD_HEADERS))
    framing, body = draw(framed(ROUTES[route]))
    return request(method, target, [*headers, *framing], body)


def check(answer: Answer, raw: bytes) -> None:
    """Below 500; a refusal is one clear line, in the words of the dialect."""
    assert answer.status < 500, (raw, answer)
    if answer.status >= 400 and not raw.startswith(b"HEAD"):
        is_anthropic = set(answer.error) == {"message", "type"} and b"/v1/messages" in raw
        assert is_anthropic or set(answer.error) == {"message", "type", "param", "code"}
        message = answer.error["message"]
        assert len(message.splitlines()) == 1, message
        assert 5 < len(message) <= 1000, message


def test_every_route_is_fuzzed(live: Live) -> None:
    routes = {
        (route.method, route.resource.canonical)
        for route in live.bench.gateway._app().router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    assert routes == set(ROUTES)


@pytest.mark.parametrize("route", ROUTES, ids=" ".join)
def test_no_route_answers_by_a_500(live: Live, route: tuple[str, str]) -> None:
    seat = live.run(live.seat())

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def fuzz(data: st.DataObject) -> None:
        raw = data.draw(requests(route, live, seat))
        check(live.send(raw), raw)

    fuzz()
    assert live.bench.gateway.stats.failed == 0
    live.run(live.bench.ask("DELETE", f"/v1/seats/{seat}"))
    live.run(live.waiting)
    assert live.run(live.bench.chat(HELLO, "afterwards"))[0] == 200


@pytest.mark.parametrize(
    "raw",
    [
        b"hello\r\n\r\n",
        b"GET /healthz\r\n\r\n",
        b"GET  /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\nHost: x\r\n\r\n",
        b"GET /healthz HTTP/one\r\nHost: x\r\n\r\n",
        b"G\xff\xff /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n: no name\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n folded: x\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nA: b\r\n folded\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nA: \x00\r\n\r\n",
        b"GET /healthz HTTP/1.1\rHost: x\r\n\r\n",
        b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nA: " + b"x" * 9000 + b"\r\n\r\n",
        b"GET http://[::1/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://x:99999999/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET \xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64 + b"\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\nContent-Encoding: br\r\n\r\n{}",
        b"POST /v1/completions HTTP/1.1\r\nExpect: odd\r\nContent-Length: 2\r\n\r\n{}",
        b"GET /healthz HTTP/1.1\r\nExpect: odd\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused_in_one_line(
    live: Live, raw: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    check(live.send(raw), raw)
    assert not [record for record in caplog.records if record.exc_info], "a stranger fills no log"
    assert live.bench.gateway.stats.failed == 0


def test_a_body_that_nobody_reads_and_nobody_could_fills_no_log(
    live: Live, caplog: pytest.LogCaptureFixture
) -> None:
    packed: list[Header] = [("Content-Encoding", b"deflate"), ("Content-Length", b"50")]

    async def until_closed() -> bytes:
        async with live.bench.connection() as (reader, writer):
            writer.write(request("GET", b"/v1/models", packed, b"x" * 40))
            begun = await reader.readuntil(b"}}")
            writer.write(b"x" * 10)
            return begun + await reader.read()

    assert b"invalid_key" in live.run(asyncio.wait_for(until_closed(), 60))
    assert not [record for record in caplog.records if record.exc_info]


def test_whatever_bytes_come_the_gateway_answers_the_next(live: Live) -> None:
    @settings(max_examples=200, deadline=None)
    @given(raw=st.binary(max_size=200))
    def fuzz(raw: bytes) -> None:
        async def poke() -> bytes:
            async with live.bench.connection() as (reader, writer):
                writer.write(raw + b"\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n")
                return await reader.read(12)

        line = live.run(asyncio.wait_for(poke(), 60))
        assert line[:9] in (b"HTTP/1.0 ", b"HTTP/1.1 ")
        assert line[9:10] in b"234"

    fuzz()
    assert live.run(live.bench.get("/healthz"))[0] == 200
    assert live.bench.gateway.stats.failed == 0


HEADS = st.fixed_dictionaries(
    {
        "number": mostly(st.integers(0, 9)),
        "route": mostly(st.sampled_from(["chat", "end", "cancel", "odd"])),
        "session_id": mostly(st.sampled_from(["s1", "s2", "a b", "../x"])),
        "headers": mostly(
            st.dictionaries(
                st.sampled_from(["X-Task-Id", "X-Group-Id", "X-Split", "X-Turn-Type"]),
                mostly(st.sampled_from(["1", "t", "train", "\ud800"])),
                max_size=2,
            )
        ),
    }
)
LINES = (HEADS | CHATS | ENDS | JSON).map(lambda value: json.dumps(value).encode())
FRAMES = st.one_of(
    st.tuples(HEADS.map(lambda head: json.dumps(head).encode()), LINES).map(b"\n".join),
    st.lists(LINES, max_size=4).map(b"\n".join),
    st.sampled_from([b"", b"\n", b"[" * 20_000 + b"\n{}", b"\xff\n\xff", b"{}\n{}\n{}"]),
    st.binary(max_size=40),
)


def test_no_frame_on_a_link_is_answered_by_a_500(live: Live) -> None:
    @settings(max_examples=300, deadline=None)
    @given(frames=st.lists(FRAMES, min_size=1, max_size=3))
    def fuzz(frames: list[bytes]) -> None:
        for status in live.run(statuses(frames)):
            assert status < 500

    async def statuses(frames: list[bytes]) -> list[int]:
        """Statuses of all answers, up to the one whose number says it is the last."""
        answered: list[int] = []
        ending = {"number": 10**6, "route": "end", "session_id": "link", "headers": {}}
        async with live.bench.http.ws_connect("/link") as link:
            for frame in frames:
                await link.send_bytes(frame)
            await link.send_bytes(json.dumps(ending).encode() + b"\n{}")
            async for message in link:
                if message.type is not WSMsgType.BINARY:
                    break
                for head in map(json.loads, message.data.split(b"\n")[::2]):
                    answered.append(head["status"])
                    if head["number"] == 10**6:
                        return answered
        assert link.close_code == 1002, "else it is closed for a protocol error"
        return answered

    fuzz()
    assert live.bench.gateway.stats.failed == 0
