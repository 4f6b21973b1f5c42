"""Clients of a run that serves: short conversations one after the other, and what was acknowledged.

A request that fails is sent again, word by word, until it is answered.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import httpx

from tests.chaos.ledger import digest_of

_TIMEOUT_S = 60.0
_PAUSE_S = 0.25
_SAID = (
    "Copy a{}.txt to b.txt.",
    "No, that is wrong. Please do it again.",
    "Thanks, that is right!",
)


class Talker:
    """One client in a thread of its own."""

    def __init__(self, name: str, base_url: str, key_file: Path, ledger: Path) -> None:
        """`name` begins the ids of its sessions, which no other talker may use."""
        self._name = name
        self._base_url = base_url
        self._key_file = key_file
        self._file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._ends = threading.Event()
        self.answered: list[tuple[float, float]] = []
        """For each answer, when it was first asked for and when it came."""
        self._thread = threading.Thread(target=self._talk, daemon=True)
        self._thread.start()

    def _talk(self) -> None:
        with httpx.Client(base_url=self._base_url, timeout=_TIMEOUT_S) as http:
            number = 0
            while not self._ends.is_set():
                history: list[dict[str, Any]] = []
                for words in _SAID:
                    history.append({"role": "user", "content": words.format(number)})
                    reply = self._answer(http, f"{self._name}-{number}", history)
                    if reply is None:
                        return
                    history.append(reply)
                number += 1

    def _answer(
        self, http: httpx.Client, session_id: str, history: list[dict[str, Any]]
    ) -> dict[str, Any] | None:
        """None when the talk is over."""
        began_s = time.time()
        while not self._ends.is_set():
            try:
                key = self._key_file.read_text().strip()
                answer = http.post(
                    "/v1/chat/completions",
                    json={"model": "policy", "messages": history, "max_tokens": 24},
                    headers={"X-Session-Id": session_id, "Authorization": f"Bearer {key}"},
                )
                answer.raise_for_status()
            except (httpx.HTTPError, OSError):
                self._ends.wait(_PAUSE_S)
                continue
            message: dict[str, Any] = answer.json()["choices"][0]["message"]
            os.write(self._file, f"{digest_of(message)}\n".encode())  # type: ignore[arg-type]
            self.answered.append((began_s, time.time()))
            return message
        return None

    def close(self) -> None:
        """After the answer that it waits for, if one comes soon."""
        self._ends.set()
        self._thread.join(_TIMEOUT_S)
        os.close(self._file)
