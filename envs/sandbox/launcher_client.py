"""The owner's handle on its launcher: started once per process, safe to use from every thread.

The launcher runs with an empty environment and without this package's other imports. It ends
when this process does, and takes every sandbox with it.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from clawrl_gym.core import errors
from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox.interface import Limits

# A bare package in place of ours, whose own __init__ registers environments and imports numpy.
_PROGRAM = """\
import sys, types
package = types.ModuleType("clawrl_gym")
package.__path__ = [sys.argv.pop(1)]
sys.modules["clawrl_gym"] = package
from clawrl_gym.envs.sandbox.launcher import main
main()
"""
_log = logging.getLogger(__name__)
_START_S = 30.0
_END_S = 10.0


class LauncherClient:
    """One launcher. `request` is one datagram, so threads need no lock."""

    def __init__(self) -> None:
        self._control, launcher_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        package = str(Path(errors.__file__).parents[1])
        with launcher_socket:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", "-c", _PROGRAM, package),
                    *(str(launcher_socket.fileno()), str(os.getpid())),
                ],
                pass_fds=[launcher_socket.fileno()],
                env={},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        self.owner_pid = os.getpid()
        self.limits_kind = self._await_ready()
        if not self.limits_kind.startswith("cgroup"):
            _log.warning("sandboxes have rlimits instead of cgroup limits: see the doctor's report")

    def _await_ready(self) -> str:
        self._control.settimeout(_START_S)
        try:
            word, _, kind = self._control.recv(256).decode().partition(" ")
        except TimeoutError:
            word, kind = "", ""
        self._control.settimeout(None)
        if word != "ready":
            self._process.kill()
            stderr = self._process.communicate()[1].decode(errors="replace").strip()
            self._control.close()
            raise SandboxError(f"the sandbox launcher did not start: {stderr or 'no word from it'}")
        return kind

    @property
    def alive(self) -> bool:
        return self.owner_pid == os.getpid() and self._process.poll() is None

    @property
    def launcher_pid(self) -> int:
        return self._process.pid

    def request(
        self,
        limits: Limits,
        rootfs: str | None,
        workdir: str,
        env: Mapping[str, str],
        mounts: Mapping[str, str],
        fds: tuple[int, int, int],
    ) -> None:
        """Ask for a sandbox on (channel, session, output); its answers come over the channel."""
        request = {"limits": asdict(limits), "rootfs": rootfs}
        request |= {"workdir": workdir, "env": dict(env), "mounts": dict(mounts)}
        try:
            socket.send_fds(self._control, [json.dumps(request).encode()], list(fds))
        except OSError as error:
            raise SandboxError(f"the sandbox launcher takes no request: {error}") from error

    def close(self) -> None:
        """End the launcher and every sandbox of it."""
        self._control.close()
        if self.owner_pid != os.getpid():
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        if self._process.stderr is not None:
            self._process.stderr.close()


_lock = threading.Lock()
_client: LauncherClient | None = None


def launcher_client() -> LauncherClient:
    """This process's launcher, started when first asked for (again in a forked child)."""
    global _client
    with _lock:
        if _client is None or not _client.alive:
            if _client is not None:
                _client.close()
            _client = LauncherClient()
            atexit.register(_client.close)
        return _client
