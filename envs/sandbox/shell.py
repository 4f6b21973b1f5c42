"""Running commands in a sandbox's shell, with deadlines: the same for every kind of sandbox."""

from __future__ import annotations

import time
from collections.abc import Callable

from clawrl_gym.envs.sandbox.interface import ExecResult
from clawrl_gym.envs.sandbox.session import Capture, Ending, ShellSession

_GREET_TRIES = 3
"""A shell that ends as soon as it starts will not get better."""
_KILL_GRACES_S = (0.1, 0.1, 0.2, 0.3, 0.5)
"""For the shell to answer after what it waited for was killed; it may have started the next."""
_SHELL_GRACE_S = 1.0
"""For a new shell to be announced after the old one was killed."""


class Shell:
    """A session and what kills in its sandbox.

    `kill_all_but` gets the number that a process has inside, and spares it and the holder; 0
    spares the holder alone.
    """

    def __init__(
        self, session: ShellSession, output_bytes: int, kill_all_but: Callable[[int], None]
    ) -> None:
        self._session = session
        self._output_bytes = output_bytes
        self._kill_all_but = kill_all_but
        self.pid = 0
        """Number of the shell inside."""

    def run(self, command: str, timeout_s: float) -> tuple[ExecResult, Ending]:
        """What a command did; unless it ANSWERED, the shell was lost and has to be greeted."""
        capture = Capture(self._output_bytes, bytearray())
        self._session.drain(capture)
        self._session.send(command)
        ending = self._session.wait(capture, time.monotonic() + timeout_s)
        timed_out = ending is Ending.DEADLINE
        if timed_out:
            ending = self._interrupt(capture)
        code = self._session.code if ending is Ending.ANSWERED and not timed_out else None
        lost = ending is not Ending.ANSWERED
        return ExecResult(capture.text, code, timed_out, capture.truncated, lost), ending

    def greet(self, capture: Capture, timeout_s: float) -> bool:
        """Learn the shell's process number; False when no shell answers."""
        deadline = time.monotonic() + timeout_s
        for _ in range(_GREET_TRIES):
            self._session.ask('"$BASHPID"')
            ending = self._session.wait(capture, deadline)
            if ending is not Ending.SHELL_ENDED:
                break
        self.pid = self._session.code or 0
        return ending is Ending.ANSWERED and self.pid > 0

    def _interrupt(self, capture: Capture) -> Ending:
        """Kill what the command left running; the shell itself only if it still does not answer."""
        for grace_s in _KILL_GRACES_S:
            self._kill_all_but(self.pid)
            ending = self._session.wait(capture, time.monotonic() + grace_s)
            if ending is not Ending.DEADLINE:
                return ending
        self._kill_all_but(0)
        return self._session.wait(capture, time.monotonic() + _SHELL_GRACE_S)
