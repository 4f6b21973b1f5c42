"""The owner's side of one shell: commands in, output and exit codes out, over two descriptors.

Commands go to the shell's standard input through a socket that no command inherits; output comes
over a pipe. Each command brings a random token that the shell reads only after the command has
ended, and an answer without it is ignored: nothing printed can shift or forge an answer.
"""

from __future__ import annotations

import os
import re
import secrets
import select
import socket
import time
from dataclasses import dataclass
from enum import Enum

_NUMBER = re.compile("[0-9]{1,9}")
_READ_BYTES = 1 << 16
_DRAIN_READS = 32
"""Bound on reading what a command left in the pipe: a background process may never stop."""


class Ending(Enum):
    """How waiting for a command's answer ended."""

    ANSWERED = "answered"
    DEADLINE = "deadline"
    SHELL_ENDED = "shell ended"
    """A new shell is waiting."""
    DEAD = "dead"
    """No shell is left."""


@dataclass(slots=True)
class Capture:
    """Output up to a limit; what comes later is counted and dropped."""

    limit: int
    kept: bytearray
    total: int = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self.limit - len(self.kept)
        if room > 0:
            self.kept += data[:room]

    @property
    def text(self) -> str:
        return self.kept.decode(errors="replace")

    @property
    def truncated(self) -> bool:
        return self.total > self.limit


class Session:
    """One shell's two descriptors; `remote` holds the other ends until a sandbox took them."""

    def __init__(self) -> None:
        self._socket, self._remote_socket = socket.socketpair()
        self._output_fd, self._remote_output_fd = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._output_fd, False)
        self._socket.setblocking(False)
        self._unsent = b""
        self._received = b""
        self._token = ""
        self.code: int | None = None
        """Exit code of the last command that answered."""

    @property
    def remote(self) -> tuple[int, int]:
        return self._remote_socket.fileno(), self._remote_output_fd

    def close_remote(self) -> None:
        self._remote_socket.close()
        if self._remote_output_fd >= 0:
            os.close(self._remote_output_fd)
            self._remote_output_fd = -1

    def send(self, command: str) -> None:
        """Give the shell a command; NUL characters cannot be in one and are left out."""
        text = command.replace("\0", "").replace("'", "'\\''")
        self._post(f"\\eval '{text}' </dev/null >&4 2>&4 3>&- 4>&-\n", '"$?"')

    def ask_shell_pid(self) -> None:
        """The answer's code is the shell's process number in the sandbox."""
        self._post("", '"$BASHPID"')

    def _post(self, line: str, answer: str) -> None:
        self._token = secrets.token_hex(16)
        self.code = None
        text = f"{line}\\printf 'E {self._token} %s\\0' {answer} >&3\n"
        self._unsent += text.encode(errors="replace")

    def wait(self, capture: Capture, deadline: float) -> Ending:
        """Collect output until the command's answer, the shell's end or the deadline."""
        poll = select.poll()
        poll.register(self._output_fd, select.POLLIN)
        while True:
            wish = select.POLLIN | (select.POLLOUT if self._unsent else 0)
            poll.register(self._socket, wish)
            left_ms = (deadline - time.monotonic()) * 1e3
            ready = dict(poll.poll(max(0.0, left_ms)))
            if ready.get(self._output_fd, 0) & select.POLLIN:
                self._collect(capture)
            elif self._output_fd in ready:
                poll.unregister(self._output_fd)  # hung up: nobody is left to write
            if self._socket.fileno() in ready:
                ending = self._exchange(ready[self._socket.fileno()])
                if ending is not None:
                    self.drain(capture)
                    return ending
            if left_ms <= 0:
                return Ending.DEADLINE

    def drain(self, capture: Capture) -> None:
        """Take what is in the pipe by now."""
        for _ in range(_DRAIN_READS):
            if not self._collect(capture):
                return

    def _collect(self, capture: Capture) -> bool:
        """One read; False when there was nothing."""
        try:
            data = os.read(self._output_fd, _READ_BYTES)
        except BlockingIOError:
            return False
        capture.add(data)
        return bool(data)

    def _exchange(self, events: int) -> Ending | None:
        try:
            if events & select.POLLOUT and self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
            if events & (select.POLLIN | select.POLLHUP | select.POLLERR):
                data = self._socket.recv(_READ_BYTES)
                if not data:
                    return Ending.DEAD
                self._received += data
        except BlockingIOError:
            return None
        except OSError:
            return Ending.DEAD
        return self._next_message()

    def _next_message(self) -> Ending | None:
        while b"\0" in self._received:
            message, _, self._received = self._received.partition(b"\0")
            kind, *words = message.decode(errors="replace").split(" ")
            if kind == "D":
                self._unsent = b""
                return Ending.SHELL_ENDED
            if kind == "E" and len(words) == 2 and words[0] == self._token:
                self.code = int(words[1]) if _NUMBER.fullmatch(words[1]) else None
                return Ending.ANSWERED
        self._received = self._received[-4096:]
        return None

    def close(self) -> None:
        self.close_remote()
        self._socket.close()
        if self._output_fd >= 0:
            os.close(self._output_fd)
            self._output_fd = -1
