"""The real OpenClaw from npm: installed once, run in a folder of its own, used as a person does."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
import uuid
from pathlib import Path
from typing import Any

from clawrl_gym.gateway.openclaw import snippet
from tests.e2e.npm_packages import CACHE, TOOLS, install, node
from tests.e2e.runs import ROOT

PACKAGE = Path(__file__).parent / "openclaw"
PLUGIN = ROOT / "agents" / "openclaw"
QUIET = {
    "update": {"checkOnStart": False},
    "models": {"catalogRefresh": {"enabled": False}},
    "discovery": {"mdns": {"mode": "off"}},
}
SILENCE = {
    "DO_NOT_TRACK": "1",
    "NO_COLOR": "1",
    "OPENCLAW_DISABLE_BONJOUR": "1",
    "OPENCLAW_NO_AUTO_UPDATE": "1",
    "OPENCLAW_NO_RESPAWN": "1",
    "OPENCLAW_SKIP_CHANNELS": "1",
}


def beside_packages(script: str) -> Path:
    """One of ours, where node finds the packages that it imports."""
    installed = install(PACKAGE) / script
    installed.write_text((PACKAGE / script).read_text())
    return installed


class OpenClaw:
    """One OpenClaw with its gateway running, pointed at a base URL by the snippet."""

    def __init__(self, folder: Path, base_url: str, key: str, *, plugin: bool) -> None:
        self.folder = folder
        self.workspace = folder / "workspace"
        self.workspace.mkdir(parents=True)
        self._command = [
            node(),
            str(install(PACKAGE) / "node_modules" / "openclaw" / "openclaw.mjs"),
        ]
        self._port = _free_port()
        self._env = {
            **SILENCE,
            "PATH": TOOLS,
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "NODE_COMPILE_CACHE": str(CACHE / "compiled"),
            "OPENCLAW_STATE_DIR": str(folder / "state"),
            "OPENCLAW_CONFIG_PATH": str(folder / "openclaw.json"),
        }
        (folder / "openclaw.json").write_text(json.dumps(self._config()))
        self.run("config", "patch", "--stdin", stdin=snippet(base_url, key, max_tokens=64))
        if plugin:
            self.run("plugins", "install", str(PLUGIN), "--force", "--accept-capabilities")
        self._log = (folder / "gateway.log").open("wb")
        self._gateway = subprocess.Popen(
            [*self._command, "gateway", "run"],
            cwd=folder,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._calls = subprocess.Popen(
            [node(), str(beside_packages("gateway_calls.mjs"))],
            cwd=folder,
            env=self._env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._wait_until_ready()

    def _config(self) -> dict[str, Any]:
        """What a person's own file says before the snippet is added to it."""
        token = {"mode": "token", "token": "token-of-the-test"}
        return {
            **QUIET,
            "gateway": {"mode": "local", "port": self._port, "bind": "loopback", "auth": token},
            "agents": {
                "defaults": {
                    "workspace": str(self.workspace),
                    "heartbeat": {"every": "12h", "target": "none"},
                }
            },
            "logging": {"file": str(self.folder / "openclaw.log")},
        }

    def _wait_until_ready(self, timeout_s: float = 90) -> None:
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/healthz", timeout=2):
                    return
            except OSError:
                assert self._gateway.poll() is None, f"OpenClaw ended:\n{self.logged()}"
                assert time.monotonic() < deadline_s, f"OpenClaw is not ready:\n{self.logged()}"
                time.sleep(0.2)

    def run(self, *arguments: str, stdin: str = "", timeout_s: float = 120) -> str:
        """One `openclaw` command; returns what it printed. Fails when the exit code is not 0."""
        done = subprocess.run(
            [*self._command, *arguments],
            cwd=self.folder,
            env=self._env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        told = f"openclaw {' '.join(arguments)}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        assert done.returncode == 0, f"{told}\n{self.logged()}"
        return done.stdout

    def say(self, session_id: str, text: str) -> str:
        """A message of the user, as `openclaw agent` sends it; returns the text of the reply."""
        answer = self.call(
            "agent",
            final=True,
            message=text,
            sessionId=session_id,
            sessionKey=f"agent:main:explicit:{session_id}",
            deliver=False,
            timeout=120,
            idempotencyKey=uuid.uuid4().hex,
        )
        return self._text_of(answer)

    def type(self, session_id: str, text: str) -> str:
        """The same by the command itself, which takes seconds to start."""
        told = self.run("agent", "--session-id", session_id, "--message", text, "--json")
        return self._text_of(json.loads(told[told.index("{") :]))

    def _text_of(self, answer: dict[str, Any]) -> str:
        assert answer["status"] == "ok", f"{answer}\n{self.logged()}"
        return "\n".join(part.get("text") or "" for part in answer["result"]["payloads"])

    def tell(self, session_id: str, text: str) -> None:
        """A message of the user, whatever becomes of the reply: a small policy may have none."""
        with contextlib.suppress(AssertionError):
            self.say(session_id, text)

    def call(self, method: str, *, final: bool = False, **params: Any) -> Any:
        """A method of OpenClaw's gateway, as its web page calls it; `final`: not only that it has
        been taken."""
        assert self._calls.stdin is not None
        assert self._calls.stdout is not None
        print(
            json.dumps({"method": method, "params": params, "final": final}),
            file=self._calls.stdin,
            flush=True,
        )
        line = self._calls.stdout.readline()
        answer = json.loads(line) if line else {"error": "the process of calls has ended"}
        assert "result" in answer, f"{method}: {answer['error']}\n{self.logged()}"
        return answer["result"]

    def wake(self, text: str) -> None:
        """An event that makes a heartbeat at once, in the main session."""
        self.call("wake", mode="now", text=text)

    def logged(self) -> str:
        """The end of what its gateway printed."""
        log = self.folder / "gateway.log"
        return log.read_text(errors="replace")[-3000:] if log.exists() else ""

    def stop(self) -> None:
        """End its gateway and all that it started."""
        self._calls.kill()
        self._calls.communicate()
        self._gateway.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._gateway.wait(timeout=60)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._gateway.pid, signal.SIGKILL)
        self._gateway.wait()
        self._log.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
