"""The real `serve` command in a process of its own, and a client that talks to it."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from clawrl_gym.core.processes.descendants import descendants
from tests.e2e.runs import ROOT


class Serving:
    """One `serve` under its supervisor, writing lines."""

    def __init__(
        self, folder: Path, *overrides: str, python: str = sys.executable, cwd: Path = ROOT
    ) -> None:
        self.folder = folder
        self.lines: list[str] = []
        self._news = threading.Condition()
        arguments = ["gateway.port=0", f"run.dir={folder}", "ui=line", "live.flush_s=5", *overrides]
        self.process = subprocess.Popen(
            [python, "-m", "clawrl_gym.serve", *arguments],
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        self.url = self.wait_for("gateway: ready at ").split("ready at ")[1].split()[0]
        self.key = (folder / "gateway.key").read_text().strip()
        self.http = httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {self.key}"}, timeout=120
        )

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self.lines.append("(ended)")
            self._news.notify_all()

    def wait_for(self, word: str, *, after: int = 0, timeout_s: float = 180) -> str:
        """The first line behind the first `after` ones that holds `word`."""
        found = self.wait_until(
            lambda: next((line for line in self.lines[after:] if word in line), None),
            f"{word!r} in the output",
            timeout_s,
        )
        return str(found)

    def wait_until(self, condition: Callable[[], Any], what: str, timeout_s: float = 120) -> Any:
        """The condition's first true value; looked at whenever a line comes, and now and then."""
        deadline_s = time.monotonic() + timeout_s
        with self._news:
            while not (found := condition()):
                told = "\n".join(self.lines[-40:])
                assert "(ended)" not in self.lines, f"serve ended before {what}:\n{told}"
                assert time.monotonic() < deadline_s, f"no {what} within {timeout_s} s:\n{told}"
                self._news.wait(0.2)
        return found

    def chat(self, session_id: str, messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        """One plain chat request; returns the reply."""
        body = {"model": "policy", "messages": messages, "max_tokens": 24, **more}
        answer = self.http.post(
            "/v1/chat/completions", json=body, headers={"X-Session-Id": session_id}
        )
        assert answer.status_code == 200, answer.text
        message: dict[str, Any] = answer.json()["choices"][0]["message"]
        return message

    def session(self, session_id: str) -> dict[str, Any]:
        """What the gateway shows of a session."""
        answer = self.http.get(f"/v1/sessions/{session_id}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def version(self) -> int:
        """The weight version that answers now."""
        body = {
            "model": "policy", "max_tokens": 1,
            "messages": [{"role": "user", "content": f"Ping {time.monotonic_ns()}"}],
        }  # fmt: skip
        answer = self.http.post("/v1/chat/completions", json=body, headers={"X-Turn-Type": "side"})
        assert answer.status_code == 200, answer.text
        return int(answer.headers["X-Weight-Version"])

    def pids(self, word: str) -> list[int]:
        """Processes of this run whose command line holds `word`, oldest first."""
        found = []
        for pid in sorted(descendants(self.process.pid)):
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if word in line:
                found.append(pid)
        return found

    def kill(self, word: str) -> None:
        """kill -9 of the first process of this run with `word` in its command line."""
        found = self.pids(word)
        assert found, f"no process with {word!r}"
        os.kill(found[0], signal.SIGKILL)

    def stop(self) -> int:
        """Ctrl-C; returns the exit code."""
        self.http.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(timeout=120)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                raise
        self._reading.join(timeout=60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.returncode
