"""Transports of commands to a sandbox's shell, and of its output and messages back.

On this machine that is a socket for commands and messages, and a pipe for output. Commands
inherit neither, and messages have the socket for themselves.
"""

from __future__ import annotations

import os
import select
import socket
from dataclasses import dataclass
from typing import Protocol

_READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Exchange:
    """Result of one exchange over a transport."""

    sent: int
    output: bytes
    messages: bytes
    ended: bool
    """Nobody is left at the other end."""


class Transport(Protocol):
    """Carries commands to what keeps a shell running, and their output and messages back.

    The shell writes output to its descriptor 4 and messages, each ended by NUL, to 3.
    """

    @property
    def mark(self) -> str:
        """Beginning of every message; empty where messages have a channel of their own."""
        ...

    def exchange(self, unsent: bytes, timeout_s: float) -> Exchange:
        """Send what can be sent and take what is there; wait for either up to `timeout_s`."""
        ...

    def close(self) -> None:
        """Idempotent."""
        ...


class LocalTransport:
    """A `Transport`; `remote` holds the other ends until a sandbox took them."""

    mark = ""

    def __init__(self) -> None:
        self._output_fd, self._remote_output_fd = os.pipe2(os.O_CLOEXEC)
        try:
            self._socket, self._remote_socket = socket.socketpair()
        except OSError:
            os.close(self._output_fd)
            os.close(self._remote_output_fd)
            raise
        os.set_blocking(self._output_fd, False)
        self._socket.setblocking(False)
        self._hung_up = False

    @property
    def remote(self) -> tuple[int, int]:
        return self._remote_socket.fileno(), self._remote_output_fd

    def close_remote(self) -> None:
        self._remote_socket.close()
        if self._remote_output_fd >= 0:
            os.close(self._remote_output_fd)
            self._remote_output_fd = -1

    def exchange(self, unsent: bytes, timeout_s: float) -> Exchange:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN | (select.POLLOUT if unsent else 0))
        if not self._hung_up:
            poll.register(self._output_fd, select.POLLIN)
        ready = dict(poll.poll(timeout_s * 1e3))
        output = self._read_output(ready.get(self._output_fd, 0))
        events = ready.get(self._socket.fileno(), 0)
        sent, messages, ended = 0, b"", False
        try:
            if events & select.POLLOUT:
                sent = self._socket.send(unsent)
            if events & (select.POLLIN | select.POLLHUP | select.POLLERR):
                messages = self._socket.recv(_READ_BYTES)
                ended = not messages
        except BlockingIOError:
            pass
        except OSError:
            ended = True
        return Exchange(sent, output, messages, ended)

    def _read_output(self, events: int) -> bytes:
        if not events & select.POLLIN:
            self._hung_up = self._hung_up or bool(events)  # nobody is left to write
            return b""
        try:
            return os.read(self._output_fd, _READ_BYTES)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        self.close_remote()
        self._socket.close()
        if self._output_fd >= 0:
            os.close(self._output_fd)
            self._output_fd = -1

    def __del__(self) -> None:
        """Close the transport of a sandbox that nobody closed."""
        if hasattr(self, "_socket"):
            self.close()
