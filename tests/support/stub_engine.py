"""A stand-in for PolicyServer with a child process that answers like vLLM, started in a second.

It can be named to a process of another machine, as the tests of engines on a cluster do. A reply's
text is the digest of the weights that are served.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys
from pathlib import Path

from aiohttp import web

from clawrl_gym.core.processes.descendants import die_with_parent, forks_die_with_parent
from clawrl_gym.inference.engine import EngineSetup
from clawrl_gym.inference.vllm.engine import VllmEngine
from clawrl_gym.inference.vllm.process import FORKSERVER_VARIABLE, forked_for
from clawrl_gym.inference.vllm.server import PolicyServer


class StubServer(PolicyServer):
    """A PolicyServer whose program is this file."""

    def _argv(self) -> list[str]:
        return [
            sys.executable, "-m", "tests.support.stub_engine",
            str(self.folder.current), self._host, str(self._port),
        ]  # fmt: skip


class StubEngine(VllmEngine):
    """Made of it."""

    def __init__(self, setup: EngineSetup) -> None:
        super().__init__(setup, StubServer)


class Stub:
    """What the child does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loaded = self._version = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {os.environ['VLLM_API_KEY']}":
            return web.Response(status=401)
        body = await request.json() if request.can_read_body else {}
        if request.path == "/collective_rpc":
            self._loaded = digest(self._folder / "model.safetensors")
        if request.path == "/update_weight_version":
            self._version = body["new_version"]
        if request.path == "/clawrl/reply":
            return web.json_response(self._reply())
        return web.json_response({"success": True})

    def _reply(self) -> dict[str, object]:
        return {
            "prompt_ids": [],
            "prefix_matched": True,
            "finish_reason": "stop",
            "stop_reason": None,
            "text": self._loaded,
            "deltas": None,
            "ids": [10, 2],
            "logprobs": [-0.5, -0.25],
            "weight_versions": [{"version": self._version, "start": 0, "end": 2}],
        }


def digest(weights: Path) -> str:
    return hashlib.sha256(weights.read_bytes()).hexdigest()


def main(folder: str, host: str, port: str) -> None:
    die_with_parent()
    forks_die_with_parent()
    sys.stdout.write("the stub starts\n")
    if forked_for(socket.socket(fileno=int(os.environ.pop(FORKSERVER_VARIABLE)))):
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", Stub(Path(folder)).answer)
        web.run_app(app, host=host, port=int(port), print=lambda *_: None, reuse_address=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
