"""The transport of a container: one attached stream of the engine, with output and messages in it.

The engine frames what the container writes: a byte for the stream (1 output, 2 error), three of
nothing, four of length. Messages come in the output, so that they arrive after what was written
before them; a mark that only the init process and its shells were told says where each begins.
"""

from __future__ import annotations

import contextlib
import secrets
import select
import socket
import struct

from clawrl_gym.envs.sandbox.transport import Exchange

_READ_BYTES = 1 << 16
_HEADER = struct.Struct(">BxxxI")
_STDERR = 2
_MOST_ERROR_BYTES = 4096


class ContainerTransport:
    """A `Transport` over the socket of an attached container, which this closes."""

    def __init__(self, attached: socket.socket) -> None:
        self._socket = attached
        self._socket.setblocking(False)
        self.mark = secrets.token_hex(16)
        self._first = f"{self.mark}\n".encode()
        """First line, which the init process reads before anything else."""
        self._frames = bytearray()
        self._text = bytearray()
        self._error = bytearray()

    @property
    def error(self) -> str:
        """Standard error: the trouble of the engine or of the init process."""
        return self._error.decode(errors="replace").strip()

    def exchange(self, unsent: bytes, timeout_s: float) -> Exchange:
        sent, ended = 0, False
        poll = select.poll()
        wish = select.POLLOUT if self._first or unsent else 0
        poll.register(self._socket, select.POLLIN | wish)
        events = sum(event for _, event in poll.poll(timeout_s * 1e3))
        if events & select.POLLOUT:
            with contextlib.suppress(OSError):  # an end is seen by receiving, after its last words
                sent = self._send(unsent)
        try:
            if events & (select.POLLIN | select.POLLHUP | select.POLLERR | select.POLLNVAL):
                data = self._socket.recv(_READ_BYTES)
                ended = not data
                self._frames += data
        except BlockingIOError:
            pass
        except OSError:
            ended = True
        self._unframe()
        output, messages = self._split()
        return Exchange(sent, output, messages, ended)

    def _send(self, unsent: bytes) -> int:
        if self._first:
            self._first = self._first[self._socket.send(self._first) :]
            return 0
        return self._socket.send(unsent)

    def _unframe(self) -> None:
        start = 0
        while len(self._frames) >= start + _HEADER.size:
            kind, size = _HEADER.unpack_from(self._frames, start)
            end = start + _HEADER.size + size
            if len(self._frames) < end:
                break
            data = self._frames[start + _HEADER.size : end]
            if kind == _STDERR:
                self._error = (self._error + data)[-_MOST_ERROR_BYTES:]
            else:
                self._text += data
            start = end
        del self._frames[:start]

    def _split(self) -> tuple[bytes, bytes]:
        """Output up to what may be a message's beginning, and the messages that are whole."""
        mark = self.mark.encode()
        output, messages = bytearray(), bytearray()
        while (at := self._text.find(mark)) >= 0 and (end := self._text.find(b"\0", at)) >= 0:
            output += self._text[:at]
            messages += self._text[at + len(mark) : end + 1]
            del self._text[: end + 1]
        plain = at if at >= 0 else len(self._text) - _overlap(self._text, mark)
        output += self._text[:plain]
        del self._text[:plain]
        return bytes(output), bytes(messages)

    def close(self) -> None:
        """The end of the container's standard input, and so of all that is in it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def _overlap(text: bytearray, mark: bytes) -> int:
    """Number of bytes at the end of `text` that may be the mark's beginning."""
    for size in range(min(len(mark) - 1, len(text)), 0, -1):
        if text.endswith(mark[:size]):
            return size
    return 0
