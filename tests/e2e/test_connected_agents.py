"""Codex and Claude Code, unmodified, reach the address that `connect` wrote."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from clawrl_gym.gateway.wire.identify import Identifier, Origin
from tests.e2e import coding_agents_client
from tests.support.chat_form import chat_form
from tests.support.recordings import shipped

pytestmark = [pytest.mark.openclaw, pytest.mark.slow]
ROUTES = {"claude-code": "/v1/messages", "codex": "/v1/responses"}


class Asked:
    """A server that refuses every request, and keeps them."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                requests.append((self.path.partition("?")[0], dict(self.headers.items()), body))
                error = {"type": "invalid_request_error", "message": "no more today"}
                data = json.dumps({"type": "error", "error": error}).encode()
                self.send_response(400)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                """Nothing."""

        return Handler


@pytest.fixture
def asked() -> Iterator[Asked]:
    server = Asked()
    yield server
    server.stop()


@pytest.mark.parametrize("name", ROUTES)
def test_it_asks_where_it_was_pointed_and_is_understood(
    name: str, asked: Asked, tmp_path: Path
) -> None:
    ended = coding_agents_client.ask(name, "Say hi.", tmp_path, asked.url, "sk-test")
    assert asked.requests, ended.stdout + ended.stderr
    path, headers, body = asked.requests[-1]
    assert path == ROUTES[name]
    lowercase = {key.lower(): value for key, value in headers.items()}
    assert lowercase["authorization"] == "Bearer sk-test"
    assert body["model"] == "policy"
    form = chat_form(path, body)
    identity = Identifier(shipped()).identify(form["messages"], form, Origin(headers=headers))
    assert (identity.kind, identity.rule, identity.matched_by) == ("main", "", "header")
