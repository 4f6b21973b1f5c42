"""The owner's side of one sandbox, but for its shell: what the launcher does with it.

Costs no descriptor. A channel that is closed, or that nobody holds any more, is the sandbox's end.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import asdict

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox.interface import Limits
from clawrl_gym.envs.sandbox.launcher_client import LauncherClient


class LauncherChannel:
    """One isolated machine, whose processes can be ended and restarted over its files."""

    def __init__(self, launcher: LauncherClient) -> None:
        """Raises SandboxError where there is no room for one more."""
        launcher.room.enter()
        self.launcher = launcher
        self._number = launcher.next_number()
        self._drop = weakref.finalize(self, launcher.drop, self._number)
        self._drop.atexit = False
        self.owner: tuple[int, int] | None = None
        """The host's ids of the sandbox's root user and group, which are the same number; None when
        that user is this process's own."""

    def start(
        self,
        limits: Limits,
        rootfs: str | None,
        workdir: str,
        env: Mapping[str, str],
        mounts: Mapping[str, str],
        fds: tuple[int, int],
    ) -> None:
        """Ask for processes on (session, output). What fails is said on the output."""
        request = {"limits": asdict(limits), "rootfs": rootfs, "workdir": workdir}
        request |= {"env": dict(env), "mounts": dict(mounts)}
        self.launcher.send(self._number, "start", json.dumps(request), fds)

    def started(self) -> None:
        """Called when the shell has answered; afterwards files outlive the processes."""
        answer, _ = self._ask("hold", "", "held")  # a shell that ends sooner takes its files along
        uid = int(answer)
        self.owner = (uid, uid) if uid >= 0 else None

    @contextlib.contextmanager
    def root(self) -> Iterator[int]:
        """A descriptor of the folder that its files are in."""
        _, fds = self._ask("root", "", "root")
        if not fds:  # more than this process may hold
            raise SandboxError("no descriptor for a sandbox's files; raise `ulimit -n`")
        try:
            yield fds[0]
        finally:
            os.close(fds[0])

    def listener(self) -> socket.socket:
        """A listening socket on the sandbox's own loopback."""
        _, fds = self._ask("listen", "", "listening")
        if not fds:  # more than this process may hold
            raise SandboxError("no descriptor for a sandbox's socket; raise `ulimit -n`")
        return socket.socket(fileno=fds[0])

    def kill_all_but(self, inner_pid: int) -> None:
        """Kill every process but the first and the one with this number in the sandbox."""
        self._ask("kill", str(inner_pid), "killed")

    def restart(self, fds: tuple[int, int], *, renew: bool) -> None:
        """End all processes; restart with this session and output over the same files."""
        self.launcher.send(self._number, "restart", "renewed" if renew else "", fds)

    def close(self) -> None:
        """End it and wait until nothing is left; idempotent."""
        if self._drop.detach() is not None:
            with contextlib.suppress(SandboxError):
                self._ask("close", "", "closed")
            self.launcher.room.leave()

    def _ask(self, word: str, argument: str, expected: str) -> tuple[str, list[int]]:
        answer, rest, fds = self.launcher.ask(self._number, word, argument)
        if answer != expected:
            raise SandboxError(f"the sandbox launcher answered {answer!r}, expected {expected!r}")
        return rest, fds
