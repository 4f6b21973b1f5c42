"""Removes what dead owners left on the engine: containers with our label, and no others."""

from __future__ import annotations

import logging
import os
import threading

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox.docker.container import remove
from clawrl_gym.envs.sandbox.docker.engine import engine, engine_call
from clawrl_gym.envs.sandbox.docker.ownership import OWNER_LABEL, is_left_over

_EVERY_S = 60.0
_log = logging.getLogger(__name__)
_lock = threading.Lock()
_reaping_pid = 0


def reap() -> int:
    """Remove what expired and what belongs to dead processes; returns how many."""
    with engine_call("could not list containers"):
        containers = engine().api.containers(all=True, filters={"label": OWNER_LABEL})
    doomed = [entry["Id"] for entry in containers if is_left_over(entry.get("Labels") or {})]
    for identity in doomed:
        remove(identity)
    return len(doomed)


def keep_reaping() -> None:
    """Reap now and every minute, as long as this process lives."""
    global _reaping_pid
    with _lock:
        if _reaping_pid == os.getpid():
            return
        _reaping_pid = os.getpid()
    threading.Thread(target=_work, name="docker-reaper", daemon=True).start()


def _work() -> None:
    pause = threading.Event()
    while True:
        try:
            count = reap()
        except SandboxError as error:
            _log.debug("no containers reaped: %s", error)
        else:
            if count:
                _log.info("removed %d containers that dead owners left or that expired", count)
        pause.wait(_EVERY_S)
