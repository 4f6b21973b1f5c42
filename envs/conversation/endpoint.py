"""JSON over HTTP for an environment: blocking, with one deadline for the whole call.

No proxies and no redirects: a key goes to the address that was configured and nowhere else.
"""

from __future__ import annotations

import http.client
import json
import time
from typing import Any
from urllib.parse import urlsplit

from clawrl_gym.core.errors import ConfigError, EnvError

MAX_ANSWER_BYTES = 8 * 2**20
_CHUNK_BYTES = 65_536


class Endpoint:
    """One server's base URL."""

    def __init__(self, base_url: str, key: str | None) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"got the URL {base_url!r}, expected one such as http://HOST:PORT/v1")
        try:
            port = parts.port
        except ValueError as error:
            raise ConfigError(f"got the URL {base_url!r}: {error}") from error
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, port
        self._path = parts.path.rstrip("/")
        self._where = f"{parts.scheme}://{parts.hostname}{f':{port}' if port else ''}{self._path}"
        self._headers = {"Content-Type": "application/json"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"

    def call(self, method: str, path: str, body: Any, timeout_s: float) -> tuple[int, Any]:
        """Status and JSON of the answer. Raises EnvError when there is none in time."""
        deadline_s = time.monotonic() + timeout_s
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=timeout_s)
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, self._path + path, sent, self._headers)
            answer = connection.getresponse()
            return answer.status, json.loads(_read(answer, connection, deadline_s))
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise EnvError(
                f"{method} {self._where}{path} gave no answer: {type(error).__name__}: {error}"
            ) from error
        finally:
            connection.close()


def _read(
    answer: http.client.HTTPResponse, connection: http.client.HTTPConnection, deadline_s: float
) -> bytes:
    """The whole body; a server that trickles is not waited for longer than the deadline."""
    data = b""
    while True:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("it took too long")
        if connection.sock is not None:
            connection.sock.settimeout(left_s)
        chunk = answer.read1(_CHUNK_BYTES)
        data += chunk
        if len(data) > MAX_ANSWER_BYTES:
            raise ValueError(f"it is longer than {MAX_ANSWER_BYTES} bytes")
        if not chunk:
            return data


def user_endpoint(user: str, base_url: str | None, key: str | None) -> Endpoint | None:
    """Where a model finds a simulated user's words; None when they are scripted.

    Raises ConfigError for what cannot be.
    """
    if user == "scripted":
        return None
    if user != "model":
        raise ConfigError(f"got env.user={user!r}, expected 'scripted' or 'model'")
    if base_url is None:
        raise ConfigError(
            "got env.user=model and no env.user_base_url, expected the base URL of an "
            "OpenAI-compatible server, such as http://127.0.0.1:8000/v1"
        )
    return Endpoint(base_url, key)
