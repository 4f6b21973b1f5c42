"""What an agent inside a sandbox may try to reach beyond its own session: none of it works.

A fake gateway notes what arrives; markers stand for what must never be seen inside. The door and
the sandbox are the real ones.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from clawrl_gym.agents.cli.recipe import AGENT_FOLDER
from clawrl_gym.envs.sandbox.bubblewrap import BubblewrapSandbox, open_sandbox
from clawrl_gym.envs.sandbox.interface import Limits
from clawrl_gym.rollout.episodes.session_relay import ROUTES, SessionRelay

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(120)]

MARK = "MUST-NOT-BE-SEEN"
KEY = f"sk-{MARK}"
ALLOWED_HEADERS = {
    "accept", "accept-encoding", "anthropic-beta", "anthropic-version", "authorization",
    "content-length", "content-type", "host", "user-agent",
}  # fmt: skip


@dataclass
class Outside:
    """The machine around the sandbox, and what reached it."""

    sandbox: BubblewrapSandbox
    port: int = 0
    """Port of the door, inside."""
    other_port: int = 0
    """Port of the door of another sandbox."""
    gateway_port: int = 0
    host_port: int = 0
    """Port of a server that is none of the sandbox's business."""
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    intruders: int = 0
    """Connections to the host's server, or to the other sandbox's door."""

    def run(self, program: str) -> str:
        """What a Python program prints inside."""
        names = f"PORT, OTHER, GATEWAY, HOST = {self.port}, {self.other_port}, "
        names += f"{self.gateway_port}, {self.host_port}\n"
        return self.sandbox.exec(
            f"timeout 20 python3 -c {shlex.quote(names + TOOLS + program)}", 30
        ).output


TOOLS = """
import glob, http.client, os, socket, subprocess, sys
HIT = "MUST-NOT" + "-BE-SEEN"
def raw(data, port=PORT, host="127.0.0.1", wait=1.0):
    if isinstance(data, str):
        data = data.encode()
    link = socket.create_connection((host, port), timeout=3)
    link.settimeout(wait)
    got = b""
    try:
        link.sendall(data)
        while True:
            more = link.recv(65536)
            if not more:
                break
            got += more
    except OSError as error:
        got += str(error).encode()
    print(got.decode(errors="replace"))
def ask(line, *headers, body="{}"):
    raw("\\r\\n".join([line + " HTTP/1.1", "Host: x", "Connection: close",
        "Content-Type: application/json", f"Content-Length: {len(body)}", *headers, "", body]))
def sh(command):
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    print(done.stdout, done.stderr)
"""

HTTP = {
    "metrics": 'ask("GET /metrics")',
    "own session's record": 'ask("GET /v1/sessions/mine")',
    "another session's record": 'ask("GET /v1/sessions/other")',
    "another session's policy": 'ask("POST /sessions/other/v1/chat/completions")',
    "dots behind the base": 'ask("POST /v1/../../other/v1/chat/completions")',
    "dots behind a route": 'ask("POST /v1/chat/completions/../../../../other/v1/models")',
    "escaped dots": 'ask("POST /v1/%2e%2e/%2e%2e/other/v1/chat/completions")',
    "escaped slashes": 'ask("POST /v1/chat%2f..%2f..%2fother")',
    "doubly escaped dots": 'ask("GET /v1/%252e%252e/metrics")',
    "two slashes": 'ask("GET //metrics")',
    "backslashes": 'ask("GET /v1\\\\\\\\..\\\\\\\\metrics")',
    "a path parameter": 'ask("GET /v1/models;/../../metrics")',
    "a path in the query": 'ask("GET /v1/models?/../../../metrics")',
    "a NUL in the path": 'ask("GET /v1/models\\0/../metrics")',
    "line ends in the path": 'ask("GET /v1/models%0d%0aHost:%20evil")',
    "absolute form to the gateway": 'ask(f"GET http://127.0.0.1:{GATEWAY}/metrics")',
    "absolute form to the host": 'ask(f"GET http://127.0.0.1:{HOST}/")',
    "absolute form of a route": 'ask(f"POST http://127.0.0.1:{HOST}/v1/chat/completions")',
    "a tunnel": 'ask(f"CONNECT 127.0.0.1:{HOST}")',
    "a tunnel to the gateway": 'ask(f"CONNECT 127.0.0.1:{GATEWAY}")',
    "another host": 'ask("GET /v1/models", f"Host: 127.0.0.1:{HOST}")',
    "a forwarded host": 'ask("GET /v1/models", f"X-Forwarded-Host: 127.0.0.1:{HOST}")',
    "another session's header": 'ask("POST /v1/chat/completions", "X-Session-Id: other")',
    "an evaluation's header": 'ask("POST /v1/chat/completions", "X-Clawrl-Evaluation: 1")',
    "a turn's kind": 'ask("POST /v1/chat/completions", "X-Turn-Type: side")',
    "the end by header": 'ask("POST /v1/chat/completions", "X-Session-Done: true")',
    "a key of its own": 'ask("POST /v1/messages", "Authorization: Bearer x", "x-api-key: y")',
    "a proxy's key": 'ask("GET /v1/models", "Proxy-Authorization: Basic eDp5")',
    "another method by header": 'ask("GET /v1/models", "X-HTTP-Method-Override: DELETE")',
    "its own reward": 'ask("POST /end", body=\'{"reward": 1}\')',
    "its own reward by v1": 'ask("POST /v1/sessions/mine/end", body=\'{"reward": 1}\')',
    "its own beginning": 'ask("POST /begin")',
    "its own deletion": 'ask("DELETE /v1/sessions/mine")',
    "feedback": 'ask("POST /v1/feedback", body=\'{"reward": 1}\')',
    "a film": 'ask("POST /film")',
    "versions": 'ask("GET /v1/versions")',
    "a rollback": 'ask("POST /v1/versions/rollback")',
    "users": 'ask("GET /v1/users")',
    "the link": 'ask("GET /v1/link", "Upgrade: websocket", "Connection: Upgrade")',
    "a method of a route's": 'ask("DELETE /v1/chat/completions")',
    "two lengths": 'ask("POST /v1/chat/completions", "Content-Length: 400")',
    "a length and chunks": """
ask("POST /v1/chat/completions", "Transfer-Encoding: chunked",
    body="0\\r\\n\\r\\nGET /sessions/other/v1/models HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")""",
    "chunks in two words": """
ask("POST /v1/chat/completions", "Transfer-Encoding: identity", "Transfer-Encoding: chunked",
    body="0\\r\\n\\r\\nGET /metrics HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")""",
    "a folded header": 'ask("GET /v1/models", "X-A: b", " X-Session-Id: other")',
    "a bare line end": 'ask("GET /v1/models", "Accept: a\\nX-Session-Id: other")',
    "a header in a header": 'ask("GET /v1/models", "Accept: a\\r X-Session-Id: other")',
    "a second request": """
one = "GET {} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n"
raw(one.format("/v1/models") + one.format("/metrics"))""",
    "chunks without a length": """
raw("POST /v1/chat/completions HTTP/1.1\\r\\nHost: x\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n"
    "0\\r\\n\\r\\nGET /metrics HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")""",
    "no HTTP at all": 'raw(b"\\x16\\x03\\x01\\x00\\xa5" + os.urandom(400))',
    "a huge header": 'ask("GET /v1/models", "X-A: " + "a" * 1000000)',
    "a huge path": 'ask("GET /v1/models?" + "a" * 1000000)',
    "a huge body": """
try:
    link = http.client.HTTPConnection("127.0.0.1", PORT, timeout=10)
    link.request("POST", "/v1/chat/completions", iter([b"a" * (1 << 20)] * 40))
    print(link.getresponse().status)
except OSError as error:
    print(error)""",
}
"""Requests through the door."""

NETWORK = {
    "the host's loopback": 'raw("GET / HTTP/1.0\\r\\n\\r\\n", HOST)',
    "the host's loopback by IPv6": 'raw("GET / HTTP/1.0\\r\\n\\r\\n", HOST, "::1")',
    "all addresses of the host": 'raw("GET / HTTP/1.0\\r\\n\\r\\n", HOST, "0.0.0.0")',
    "the gateway's port": 'raw("GET /metrics HTTP/1.0\\r\\n\\r\\n", GATEWAY)',
    "another sandbox's door": 'raw("GET /v1/models HTTP/1.0\\r\\n\\r\\n", OTHER)',
    "the internet": 'raw("GET / HTTP/1.0\\r\\n\\r\\n", 80, "1.1.1.1")',
    "a cloud's metadata": 'raw("GET / HTTP/1.0\\r\\n\\r\\n", 80, "169.254.169.254")',
    "names": 'print(socket.getaddrinfo("example.com", 80))\nprint(HIT)',
    "a datagram": """
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.sendto(b"x", ("1.1.1.1", 53))
print(HIT)""",
    "a raw socket": """
socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
print(HIT)""",
    "a packet socket": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\nprint(HIT)",
    "a virtual machine's socket": """
socket.socket(40, socket.SOCK_STREAM)
print(HIT)""",
    "the host's abstract socket": """
link = socket.socket(socket.AF_UNIX)
link.connect("\\0clawrl-test-abstract")
print(HIT)""",
    "the door's own port": """
link = socket.socket()
link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
link.bind(("127.0.0.1", PORT))
link.listen()
print(HIT)""",
    "another network": 'sh("unshare -rn true && nsenter -t 1 -n true && echo MUST-NOT-BE-SEEN")',
    "a new interface": 'sh("ip link add x type dummy && echo MUST-NOT-BE-SEEN")',
    "who is behind the door": """
link = socket.create_connection(("127.0.0.1", PORT))
print(link.getpeername())
cred = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
print(HIT if any(cred[:4]) and cred[:4] != b"\\xff" * 4 else "nobody")""",
}
"""Ways around the door."""

MACHINE = {
    "its own variables": "print(dict(os.environ))",
    "the first process's variables": "sh(\"tr '\\\\0' '\\\\n' </proc/1/environ\")",
    "all processes' variables": "sh(\"cat /proc/[0-9]*/environ | tr '\\\\0' '\\\\n'\")",
    "all processes' commands": 'sh("cat /proc/[0-9]*/cmdline")',
    "the door's descriptor": """
import re
inodes = re.findall(r"0A .*?(\\d+) \\d+ [0-9a-f]{16} ", open("/proc/net/tcp").read())
held = [os.readlink(fd) for fd in glob.glob("/proc/[0-9]*/fd/*") if os.path.islink(fd)]
print(HIT if any(f"socket:[{one}]" in held for one in inodes) else "nowhere")""",
    "a write to the installation": f'open("{AGENT_FOLDER}/tool", "w").write("x")',
    "a new file beside it": f'open("{AGENT_FOLDER}/new", "w").write("x")',
    "its removal": f'os.remove("{AGENT_FOLDER}/tool")',
    "its permissions": f'os.chmod("{AGENT_FOLDER}/tool", 0o777)\nprint(HIT)',
    "its name": f'os.rename("{AGENT_FOLDER}", "/tmp/moved")\nprint(HIT)',
    "its mount": f'sh("mount -o remount,rw {AGENT_FOLDER} && echo MUST-NOT-BE-SEEN")',
    "a mount over it": f'sh("mount -t tmpfs x {AGENT_FOLDER} && echo MUST-NOT-BE-SEEN")',
    "without its mount": f'sh("umount {AGENT_FOLDER} && echo MUST-NOT-BE-SEEN")',
    "above the installation": f'sh("cat {AGENT_FOLDER}/../secret {AGENT_FOLDER}/../../*/secret")',
    "the installation's link out": f'sh("cat {AGENT_FOLDER}/out")',
    "through the first process's root": f'sh("cat /proc/1/root{AGENT_FOLDER}/../secret")',
    "the first process's memory": 'open("/proc/1/mem", "rb").read(1)\nprint(HIT)',
    "tracing": """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print(HIT if libc.ptrace(16, 1, 0, 0) == 0 else os.strerror(ctypes.get_errno()))""",
    "the kernel's settings": """
open("/proc/sys/kernel/core_pattern", "w").write("|/tmp/x")
print(HIT)""",
}
"""The machine around it."""

ATTEMPTS = {**HTTP, **NETWORK, **MACHINE}


@asynccontextmanager
async def serving(outside: Outside, other: BubblewrapSandbox) -> AsyncIterator[None]:
    """The gateway, another server of the host, and the doors of both sandboxes."""

    async def answer(request: web.Request) -> web.Response:
        outside.requests.append((request.method, request.raw_path, dict(request.headers)))
        is_own = request.raw_path.startswith("/sessions/mine/v1/")
        return web.json_response({"is": "mine" if is_own else MARK})

    async def intrude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        outside.intruders += 1
        writer.write(MARK.encode())
        writer.close()

    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    gateway = web.TCPSite(runner, "127.0.0.1", 0)
    await gateway.start()
    outside.gateway_port = runner.addresses[0][1]
    host = await asyncio.start_server(intrude, "127.0.0.1", 0)
    outside.host_port = host.sockets[0].getsockname()[1]
    abstract = await asyncio.start_unix_server(intrude, "\0clawrl-test-abstract")
    door, others = outside.sandbox.listen(), other.listen()
    outside.port, outside.other_port = door.getsockname()[1], others.getsockname()[1]
    others_server = await asyncio.start_server(intrude, sock=others)
    url = f"http://127.0.0.1:{outside.gateway_port}/sessions/mine/v1"
    try:
        async with SessionRelay(url, KEY, timeout_s=10.0).listening(door):
            yield
    finally:
        for server in (host, abstract, others_server):
            server.close()
        await runner.cleanup()


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    folder = tmp_path_factory.mktemp("cli")
    installation = folder / "agent"
    installation.mkdir()
    (folder / "secret").write_text(MARK)
    (installation / "tool").write_text("as it was")
    (installation / "out").symlink_to(folder / "secret")
    limits = Limits(memory_mb=256, disk_mb=32, pids=48)
    ready, over = threading.Event(), threading.Event()
    with (
        open_sandbox(limits, mounts={AGENT_FOLDER: str(installation)}) as sandbox,
        open_sandbox(limits) as other,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("OPENAI_API_KEY", KEY)
        outside = Outside(sandbox)

        async def serve() -> None:
            async with serving(outside, other):
                ready.set()
                await asyncio.to_thread(over.wait)

        thread = threading.Thread(target=asyncio.run, args=(serve(),))
        thread.start()
        assert ready.wait(20)
        try:
            yield outside
        finally:
            over.set()
            thread.join()
        assert (installation / "tool").read_text() == "as it was"
        assert sorted(path.name for path in installation.iterdir()) == ["out", "tool"]


def test_there_are_many_attempts() -> None:
    assert len(ATTEMPTS) >= 40


def test_the_door_leads_to_the_sessions_own_policy(outside: Outside) -> None:
    outside.requests.clear()
    assert '{"is": "mine"}' in outside.run('ask("POST /v1/chat/completions")')
    method, path, headers = outside.requests[-1]
    assert (method, path) == ("POST", "/sessions/mine/v1/chat/completions")
    assert headers["Authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_no_attempt_gets_out(outside: Outside, attempt: str) -> None:
    outside.requests.clear()
    outside.intruders = 0
    said = outside.run(ATTEMPTS[attempt])
    assert said.strip(), "the attempt was not made"
    assert MARK not in said
    assert outside.intruders == 0
    for method, path, headers in outside.requests:
        assert path.startswith("/sessions/mine/v1/")
        assert (method, path.removeprefix("/sessions/mine")) in ROUTES
        assert {name.lower() for name in headers} <= ALLOWED_HEADERS
        assert headers["Host"] == f"127.0.0.1:{outside.gateway_port}"
        assert headers["Authorization"] == f"Bearer {KEY}"
        assert "other" not in json.dumps(headers)


def test_connections_are_bounded_and_the_door_still_opens_afterwards(outside: Outside) -> None:
    said = outside.run(
        """
links = [socket.create_connection(("127.0.0.1", PORT)) for _ in range(300)]
for link in links[64:]:
    link.settimeout(15)
    try:
        print(link.recv(1))
    except ConnectionResetError:
        print(b"")
"""
    )
    assert said.split() == ["b''"] * (300 - 64)
    assert '{"is": "mine"}' in outside.run('ask("POST /v1/chat/completions")')


def test_the_host_reaches_no_door_of_a_sandbox(outside: Outside) -> None:
    with socket.socket() as link:
        link.settimeout(2)
        assert link.connect_ex(("127.0.0.1", outside.port)) != 0


def test_a_folder_that_is_shown_is_found_inside(outside: Outside) -> None:
    assert outside.sandbox.exec(f"cat {AGENT_FOLDER}/tool", 5).output == "as it was"
    assert Path(AGENT_FOLDER).is_absolute()
