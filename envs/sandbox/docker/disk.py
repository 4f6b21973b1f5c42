"""Watches what containers write, where the engine itself cannot limit it.

Then the limit is soft: a container is looked at about twice a second while a command runs in it,
after commands, and every ten seconds anyway; less often where it holds so many files that one look
takes more than 40 ms, for looking takes a tenth of a container's time at most. One thread looks at
all of a process, one after the other: sixteen looks of 60 ms are a second. Whoever has written too
much and writes more has its processes killed. Any one file is limited by the kernel, at once
(ulimit fsize). What can be written between two looks, into many files, is not limited.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox.docker.engine import engine, engine_call

_PAUSE_S = 0.4
_SHARE = 0.1
"""Largest share of the time for looking at one container."""
_ALL_EVERY_S = 10.0
_TICK_S = 0.1


@dataclass(slots=True)
class WatchedContainer:
    """One container; the sandbox's thread sets `running` and `dirty`."""

    container: str
    most_bytes: int
    on_full: Callable[[int], None]
    """Called in the watcher's thread with the bytes written, each time that they have grown."""
    running: bool = False
    dirty: bool = False
    last_bytes: int = 0
    looked_s: float = -math.inf
    """Time on the monotonic clock when the last look ended."""
    cost_s: float = 0.0
    """Seconds that it took."""

    @property
    def is_active(self) -> bool:
        """Something runs in it, or ran since the last look."""
        return self.running or self.dirty

    def is_due(self, now_s: float) -> bool:
        """Whether it is looked at now. Its own cost counts, never what others cost."""
        pause_s = max(_PAUSE_S, self.cost_s / _SHARE)
        if not self.is_active:
            pause_s = max(pause_s, _ALL_EVERY_S)
        return now_s >= self.looked_s + pause_s

    def look(self) -> None:
        self.dirty = self.running
        started_s = time.monotonic()
        try:
            used = written_bytes(self.container)
        finally:
            self.looked_s = time.monotonic()
            self.cost_s = self.looked_s - started_s
        if used > max(self.most_bytes, self.last_bytes):
            self.on_full(used)
        self.last_bytes = used


def due(entries: Iterable[WatchedContainer], now_s: float) -> list[WatchedContainer]:
    """Containers that are due for a look now, those with a running command first."""
    return sorted(
        (watched for watched in entries if watched.is_due(now_s)),
        key=lambda watched: not watched.is_active,
    )


class DiskWatcher:
    """One thread for all containers of this process; started with the first."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._entries: dict[int, WatchedContainer] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        threading.Thread(target=self._work, name="docker-disk", daemon=True).start()

    def add(self, watched: WatchedContainer) -> None:
        """Idempotent."""
        with self._lock:
            self._entries[id(watched)] = watched
        self._wake.set()

    def drop(self, watched: WatchedContainer) -> None:
        with self._lock:
            self._entries.pop(id(watched), None)
            if not self._entries:
                self._wake.clear()

    def _work(self) -> None:
        pause = threading.Event()
        while True:
            self._wake.wait()
            with self._lock:
                entries = list(self._entries.values())
            for watched in due(entries, time.monotonic()):
                with contextlib.suppress(SandboxError):  # it may be ending
                    watched.look()
            pause.wait(_TICK_S)


_lock = threading.Lock()
_watcher: DiskWatcher | None = None


def disk_watcher() -> DiskWatcher:
    """This process's own."""
    global _watcher
    with _lock:
        if _watcher is None or _watcher.pid != os.getpid():
            _watcher = DiskWatcher()
        return _watcher


def written_bytes(container: str) -> int:
    """Bytes in the container's own layer."""
    api = engine().api
    url = f"{api.base_url}/v{api.api_version}/containers/{container}/json"
    measuring = engine_call(f"could not measure the container {container[:12]}")
    with (
        measuring,
        api.get(url, params={"size": "true"}, timeout=api.timeout, stream=True) as answer,
    ):
        answer.raise_for_status()
        return int(answer.json().get("SizeRw") or 0)
