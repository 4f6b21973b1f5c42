"""A run on a cluster of two machines, which are network namespaces of this one.

The driver is on the head, the other node holds workers. Machines have a /tmp of their own, so the
run's place must not be below it; what stays in theirs is not looked at.
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack

from clawrl_gym.core.processes.descendants import descendants
from tests.chaos.processes import Process, find
from tests.chaos.target import Target
from tests.support.machines import Machine, machines, until

PORT = 6379
_TOKEN = {"RAY_AUTH_TOKEN": "0123456789abcdef" * 4}
_JOIN_S = 90.0


class ClusterTarget(Target):
    """A training run that has joined a cluster."""

    _machines: ExitStack | None = None

    def _prepare(self) -> None:
        if self.place.is_relative_to("/tmp"):
            raise ValueError(
                f"got {self.place}, expected a place that machines can see: --out=runs/x"
            )
        super()._prepare()  # first: machines see the mounts that were there when they were made
        if self._machines is None:
            self._machines = ExitStack()
            self._head, self._other = self._machines.enter_context(machines(2))
            self._begin_node(self._head, "--head", f"--host={self._head.address}")
            self.rejoin()

    def _begin_node(self, machine: Machine, *arguments: str) -> None:
        log = self.place / f"node-{machine.namespace}.log"
        log.unlink(missing_ok=True)
        limits = ("--sandbox=8", "--docker=0", "--browser=0")
        line = [sys.executable, "-m", "clawrl_gym.node", *arguments, *limits]
        until(log, "Ctrl-C", machine.start(line, log, _TOKEN), _JOIN_S)

    def _spawn(self, line: list[str]) -> subprocess.Popen[bytes]:
        process = self._head.start(line, self._log, _TOKEN)
        while not (children := descendants(process.pid)) and process.poll() is None:
            time.sleep(0.02)
        self._driver = min(children, default=process.pid)
        return process

    def _line(self) -> list[str]:
        address = f"ray.address={self._head.address}:{PORT}"
        return [*super()._line(), *(() if self.folder.exists() else (address,))]

    @property
    def pid(self) -> int:
        """Process id of the driver; the process that was started only leads into its machine."""
        return self._driver

    @property
    def processes(self) -> list[Process]:
        """Processes of both machines."""
        found = map(find, [*self._head.processes(""), *self._other.processes("")])
        return [process for process in found if process is not None]

    def kill_node(self) -> None:
        """The other machine's raylet."""
        self._other.kill("raylet")

    def cut(self) -> None:
        """The other machine is off the network."""
        self._other.cut()

    def mend(self) -> None:
        """It is on the network again."""
        self._other.mend()

    def rejoin(self) -> None:
        """Unless the other machine is a node of the cluster."""
        if not self._other.processes("raylet"):
            self._begin_node(self._other, f"--address={self._head.address}:{PORT}")

    def close(self) -> None:
        super().close()
        if self._machines is not None:
            self._machines.close()
            self._machines = None
