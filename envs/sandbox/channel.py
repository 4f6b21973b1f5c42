"""The owner's side of one sandbox's channel to the launcher: everything but its shell.

Holds the channel, the root folder's descriptor and the host's id of the sandbox's user. Its end
is the sandbox's end: the launcher kills what the closed channel belonged to.
"""

from __future__ import annotations

import contextlib
import os
import socket

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox import kernel

_ANSWER_S = 30.0
_MESSAGE_BYTES = 256


class LauncherChannel:
    """One isolated machine, with processes that can be ended and started anew over its files."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._channel.settimeout(_ANSWER_S)
        self.root_fd = -1
        self.owner: int | None = None
        """The host's id of the sandbox's root user; None when that is this process's own."""

    def started(self) -> None:
        """Take what the start handed over; afterwards the root outlives the processes."""
        answer, fds = self._receive("started")
        if not fds:
            raise SandboxError("the sandbox launcher handed over no root folder")
        self._drop_root()
        self.root_fd = fds[0]
        self.owner = int(answer) if int(answer) >= 0 else None
        self._send("hold")
        self._receive("held")  # a shell that is ended sooner takes its files along

    def kill_all_but(self, inner_pid: int) -> None:
        """Kill every process but the first and the one with this number in the sandbox."""
        self._send(f"kill {inner_pid}")
        self._receive("killed")

    def restart(self, fds: tuple[int, int], *, renew: bool) -> None:
        """End all processes; start anew with this session and output over the same files."""
        self._forget_answers()
        self._send("restart renewed" if renew else "restart", fds)

    def close(self) -> None:
        """End it and wait until nothing is left; idempotent."""
        self._drop_root()
        with contextlib.suppress(SandboxError), self._channel:
            self._send("close")
            self._receive("closed")

    def _forget_answers(self) -> None:
        """Drop what nobody waited for: a start that failed may have handed its root over."""
        self._channel.settimeout(0)
        with contextlib.suppress(OSError):
            while received := kernel.receive(self._channel, _MESSAGE_BYTES, 1):
                for fd in received[1]:
                    os.close(fd)
                if not received[0]:
                    break
        self._channel.settimeout(_ANSWER_S)

    def _drop_root(self) -> None:
        if self.root_fd >= 0:
            os.close(self.root_fd)
            self.root_fd = -1

    def _send(self, text: str, fds: tuple[int, ...] = ()) -> None:
        try:
            socket.send_fds(self._channel, [text.encode()], list(fds))
        except OSError as error:
            raise SandboxError(f"the sandbox launcher is gone: {error}") from error

    def _receive(self, word: str) -> tuple[str, list[int]]:
        try:
            data, fds = kernel.receive(self._channel, _MESSAGE_BYTES, 1)
        except OSError as error:
            raise SandboxError(f"the sandbox launcher did not answer: {error}") from error
        answer, _, rest = data.decode().partition(" ")
        if answer == word:
            return rest, fds
        for fd in fds:
            os.close(fd)
        if word == "closed" and data:  # an answer that came too late for who asked
            return self._receive(word)
        raise SandboxError(f"the sandbox launcher answered {answer!r}, expected {word!r}")
