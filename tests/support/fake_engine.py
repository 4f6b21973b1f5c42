"""A machine without Docker, and a socket that answers its ping, or something else."""

import contextlib
import socket
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from clawrl_gym.envs.sandbox.docker import addresses, engine

OK = b"HTTP/1.0 200 OK\r\n\r\nOK"


class FakeEngine:
    """Answers every connection to a unix socket, in a thread, as long as the block lasts."""

    def __init__(self, path: Path, answer: bytes = OK) -> None:
        self.url = f"unix://{path}"
        self._answer = answer
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(10)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                with self._server.accept()[0] as client:
                    client.recv(1024)
                    client.sendall(self._answer)


def without_engines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who has set nothing, in a folder without an engine, on a machine without one."""
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(folder / "config"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setattr(addresses, "_SYSTEM_SOCKET", folder / "system.sock")
    monkeypatch.setattr(addresses, "_checkout", lambda: folder / "checkout")
    monkeypatch.setattr(engine, "_clients", {})
    monkeypatch.chdir(folder)
