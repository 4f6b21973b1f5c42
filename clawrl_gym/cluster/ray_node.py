"""This machine as a node of a Ray cluster: Ray's own processes, held by one that ends with them.

Nothing of it stays: no process when it ends, no folder of Ray's.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from clawrl_gym.cluster import joining
from clawrl_gym.core.errors import ClusterError, ConfigError
from clawrl_gym.core.files.scratch import Scratch
from clawrl_gym.core.processes.descendants import adopt_orphans, die_with_parent, end_descendants

_START_S = 90.0
_LEAVE_S = 10.0
_LOOK_S = 0.2
_STARTED = "Ray runtime started."
_HEAD = {  # a node that is gone is noticed within 10 s or so
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "4",
}


@dataclass(frozen=True, slots=True)
class NodePlan:
    """A node that is to be started."""

    address: str
    """HOST:PORT of the cluster's head, which this node itself may be."""
    is_head: bool
    host: str
    """This machine's address for the others."""
    resources: Mapping[str, int]
    token: str


def own_address(address: str) -> str:
    """This machine's address on the way to another one. Raises ConfigError."""
    host, port = joining.split(address)
    try:
        with socket.create_connection((host, port), timeout=3.0) as connection:
            return str(connection.getsockname()[0])
    except OSError as error:
        raise ConfigError(joining.closed(address, error.strerror or str(error))) from error


def made_token(file: str | None) -> str:
    """The token of a new head: the one that is there, or a new one that is kept."""
    try:
        return joining.token_of(file)
    except ConfigError:
        path = Path(file or joining.DEFAULT_TOKEN_FILE).expanduser()
        if path.exists():
            raise
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    token = secrets.token_hex(32)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        stream.write(token + "\n")
    return token


def check_cluster(plan: NodePlan) -> None:
    """Raise ConfigError when it cannot be joined."""
    _, members = joining.members_at(plan.address, plan.token)
    if plan.host in {member["address"] for member in members}:
        raise ConfigError(
            f"{plan.host} is a node of the cluster at {plan.address} already: a machine joins once"
        )


class RayNode:
    """A running node."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log

    def wait(self) -> NoReturn:
        """Wait until it ends by itself. Raises ClusterError, for nobody wanted that."""
        self._process.wait()
        raise ClusterError(
            f"Ray on this machine ended ({self._last_words()}): the cluster's head ended, or a "
            "process of it was killed; start this command again"
        )

    def wait_until_started(self) -> None:
        """Raises ClusterError when it does not, ConfigError when the versions do not fit."""
        deadline_s = time.monotonic() + _START_S
        while _STARTED not in self._written():
            if self._process.poll() is not None:
                line = joining.versions_differ(RuntimeError(self._written()))
                if line is not None:
                    raise ConfigError(line)
                raise ClusterError(f"Ray did not start on this machine: {self._last_words()}")
            if time.monotonic() > deadline_s:
                raise ClusterError(f"Ray had not started on this machine after {_START_S:g} s")
            time.sleep(_LOOK_S)

    def leave(self) -> None:
        """End it in order, then whatever is left of it."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_LEAVE_S)
        end_descendants()

    def _written(self) -> str:
        text = self._log.read_text(encoding="utf-8", errors="replace")
        return re.sub(r"\x1b\[[0-9;]*m", "", text)

    def _last_words(self) -> str:
        lines = [line.strip() for line in self._written().splitlines() if line.strip()]
        return lines[-1][:300] if lines else "it said nothing"


@contextmanager
def running_node(plan: NodePlan) -> Iterator[RayNode]:
    """Start it; it ends with the block. Raises ClusterError or ConfigError."""
    adopt_orphans()
    with Scratch("node") as folder:
        log = folder / "ray.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                _command(plan, folder),
                env=_environment(plan),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent,
            )
        node = RayNode(process, log)
        try:
            node.wait_until_started()
            yield node
        finally:
            node.leave()


def _command(plan: NodePlan, folder: Path) -> list[str]:
    ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
    ray += [f"--node-ip-address={plan.host}", f"--temp-dir={folder}"]
    ray.append(f"--resources={json.dumps(dict(plan.resources))}")
    if not plan.is_head:
        return [*ray, f"--address={plan.address}"]
    port = joining.split(plan.address)[1]
    return [*ray, "--head", f"--port={port}", "--include-dashboard=false", "--no-monitor"]


def _environment(plan: NodePlan) -> dict[str, str]:
    package = str(Path(__file__).resolve().parents[2])
    variables = {
        **os.environ,
        **joining.authentication(plan.token),
        "PYTHONPATH": os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")])),
        "RAY_prestart_worker_first_driver": "0",
    }
    return {**variables, **_HEAD} if plan.is_head else variables
