"""A socket that answers Docker's ping, or something else."""

import contextlib
import socket
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

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
