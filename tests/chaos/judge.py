"""A judge in a process of its own: an OpenAI server that votes by a digest, as slowly as told.

python -m tests.chaos.judge PORT DELAY_FILE
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from zlib import crc32

from tests.e2e.runs import ROOT

DELAY_S = 0.01
"""Seconds of an answer that nobody slows down."""
_START_S = 10.0


class JudgeServer:
    """The process, with a place that its port and its delay stay in."""

    def __init__(self, place: Path) -> None:
        self._delay_file = place / "judge_delay_s"
        self._port_file = place / "judge_port"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        """The same in all lives: the configuration of the run that is judged has it."""
        if not self._port_file.exists():
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self._port_file.write_text(str(free.getsockname()[1]))
        return int(self._port_file.read_text())

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Unless it runs; returns when it answers."""
        if self._process is not None and self._process.poll() is None:
            return
        self.delay(DELAY_S)
        line = [sys.executable, "-m", "tests.chaos.judge", str(self.port), str(self._delay_file)]
        self._process = subprocess.Popen(line, cwd=ROOT, start_new_session=True)
        deadline_s = time.monotonic() + _START_S
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.port), 1).close()
            except ConnectionRefusedError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.05)

    def delay(self, delay_s: float) -> None:
        """Delay each answer from now on."""
        self._delay_file.write_text(str(delay_s))

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Votes(BaseHTTPRequestHandler):
    """Every answer is a vote that the question alone decides."""

    protocol_version = "HTTP/1.1"
    delay_file: Path

    def do_GET(self) -> None:
        self._answer({"object": "list", "data": [{"id": "judge", "object": "model"}]})

    def do_POST(self) -> None:
        question = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        time.sleep(float(self.delay_file.read_text() or DELAY_S))
        message = {"role": "assistant", "content": f"\\boxed{{{crc32(question) % 3 - 1}}}"}
        self._answer({"choices": [{"message": message, "finish_reason": "stop"}]})

    def _answer(self, body: dict[str, object]) -> None:
        encoded = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


if __name__ == "__main__":
    Votes.delay_file = Path(sys.argv[2])
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Votes).serve_forever()
