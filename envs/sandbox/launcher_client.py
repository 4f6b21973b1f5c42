"""The owner's handle on its launcher: started once per process, safe to use from every thread.

The launcher runs with an empty environment and without this package's other imports. It ends
when this process does, and takes every sandbox with it.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import logging
import os
import queue
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

from clawrl_gym.core import errors
from clawrl_gym.core.errors import SandboxError
from clawrl_gym.core.files.open_files import allow_open_files
from clawrl_gym.envs.sandbox import kernel
from clawrl_gym.envs.sandbox.room import Room, most_sandboxes
from clawrl_gym.envs.sandbox.start_line import StartLine

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
_OPEN_FILES = 1 << 16
"""Open files of this process: each sandbox costs it two, and two more while it starts."""
_MOST_STARTING = 16
_ANSWER_S = 30.0
_END_S = 10.0
_SEND_TIMEOUT = struct.pack("ll", 30, 0)
"""Seconds and microseconds for a launcher that is behind."""
_MESSAGE_BYTES = 256

Answer = tuple[str, str, list[int]]
"""Word, argument, descriptors; an empty word when the launcher is gone."""


class LauncherClient:
    """One launcher, and one connection to it for all threads: each message is one datagram."""

    def __init__(self) -> None:
        allow_open_files(_OPEN_FILES)
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
        self.limits_kind, uid_ranges = self._await_ready()
        self.room = Room(*most_sandboxes(uid_ranges))
        self._numbers, self._requests = itertools.count(1), itertools.count(1)
        self._answers: dict[int, queue.SimpleQueue[Answer]] = {}
        """Where the answers of requests are waited for."""
        self._gone = False
        self.line = StartLine(_MOST_STARTING)
        self._reader = threading.Thread(target=self._read, name="sandbox-launcher", daemon=True)
        self._reader.start()
        if not self.limits_kind.startswith("cgroup"):
            _log.warning("sandboxes have rlimits instead of cgroup limits: see the doctor's report")
        if uid_ranges is None and os.geteuid() == 0:
            _log.warning("sandboxes have no uid ranges of their own: see the doctor's report")

    def _await_ready(self) -> tuple[str, int | None]:
        """Which limits hold, and how many sandboxes can have a uid range of their own."""
        self._control.settimeout(_START_S)
        try:
            _, _, answer = self._control.recv(256).decode().partition(" ")
        except TimeoutError:
            answer = ""
        self._control.settimeout(None)
        words = answer.split()
        if len(words) != 3 or words[0] != "ready":
            self._process.kill()
            stderr = self._process.communicate()[1].decode(errors="replace").strip()
            self._control.close()
            raise SandboxError(f"the sandbox launcher did not start: {stderr or 'no word from it'}")
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SEND_TIMEOUT)
        return words[1], int(words[2]) if words[2].isdigit() else None

    @property
    def alive(self) -> bool:
        return self.owner_pid == os.getpid() and self._process.poll() is None

    @property
    def launcher_pid(self) -> int:
        return self._process.pid

    def next_number(self) -> int:
        """Number of the next sandbox."""
        return next(self._numbers)

    def send(
        self,
        sandbox: int,
        word: str,
        argument: str = "",
        fds: tuple[int, ...] = (),
        request: int = 0,
    ) -> None:
        """Raises SandboxError for a launcher that takes no message."""
        if self.owner_pid != os.getpid():
            raise SandboxError("the sandbox belongs to the process that this one was forked from")
        text = f"{request} {sandbox} {word} {argument}".encode()
        try:
            socket.send_fds(self._control, [text], list(fds))
        except OSError as error:
            raise SandboxError(f"the sandbox launcher takes no request: {error}") from error

    def ask(self, sandbox: int, word: str, argument: str = "") -> Answer:
        """Send it and wait for the answer. Raises SandboxError without one."""
        request = next(self._requests)
        answer = self._answers[request] = queue.SimpleQueue()
        try:
            if self._gone:
                raise SandboxError("the sandbox launcher is gone")
            self.send(sandbox, word, argument, request=request)
            word, rest, fds = answer.get(timeout=_ANSWER_S)
        except queue.Empty:
            raise SandboxError(
                f"the sandbox launcher did not answer {word!r} within {_ANSWER_S:.0f} s"
            ) from None
        finally:
            self._answers.pop(request, None)
        if not word:
            raise SandboxError("the sandbox launcher is gone")
        return word, rest, fds

    def drop(self, sandbox: int) -> None:
        """End a sandbox that nobody holds any more, without waiting for it."""
        if self.owner_pid == os.getpid():
            self.room.leave()
            with contextlib.suppress(OSError):
                self._control.send(f"0 {sandbox} close ".encode(), socket.MSG_DONTWAIT)

    def _read(self) -> None:
        """Give each answer to the thread that waits for it, until the launcher is gone."""
        while True:
            try:
                content, fds = kernel.receive(self._control, _MESSAGE_BYTES, 1)
            except OSError:
                break
            if not content:
                break
            request, _, answer = content.decode().partition(" ")
            word, _, rest = answer.partition(" ")
            waiting = self._answers.pop(int(request), None)
            if waiting is not None:
                waiting.put((word, rest, fds))
                continue
            for fd in fds:  # it came too late
                os.close(fd)
        self._gone = True
        for waiting in list(self._answers.values()):
            waiting.put(("", "", []))

    def close(self) -> None:
        """End the launcher and every sandbox of it."""
        if self.owner_pid != os.getpid():
            self._control.close()  # of a forked child: the connection is its parent's
            return
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)  # which wakes the reader too
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        self._reader.join(_END_S)
        self._control.close()
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
