"""One shell in a sandbox: commands in, output and exit codes out, with deadlines.

What carries the bytes is a `Transport`: two descriptors on this machine, or an engine's stream.
Each command brings a random token that the shell reads only after the command has ended, and an
answer without it is ignored: nothing printed can shift or forge an answer.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from clawrl_gym.core.processes.slow_machine import cpu_waits
from clawrl_gym.envs.sandbox.interface import ExecResult
from clawrl_gym.envs.sandbox.transport import Exchange, Transport

_NUMBER = re.compile("[0-9]{1,9}")
_DRAINS = 32
"""Bound on reading what a command left behind: a background process may never stop."""
_MOST_MESSAGE_BYTES = 4096
_GREET_TRIES = 3
"""A shell that ends as soon as it starts will not get better."""
_KILL_GRACES_S = (0.1, 0.1, 0.2, 0.3, 0.5)
"""Seconds for the shell to answer after its child was killed; it may have started the next."""
_SHELL_GRACE_S = 1.0
"""Seconds for a new shell to be announced after the old one was killed."""


_TELLING_S = 1.0
"""A shorter command says nothing about the machine."""
_TICKS_PER_S = 100.0
"""Ticks a second in /proc, on every Linux of today."""
_CPU_TICKS = (
    '"$(\\builtin read -ra ticks <"/proc/$$/stat" && '
    '\\builtin echo "$((ticks[13] + ticks[14] + ticks[15] + ticks[16]))")"'
)
"""Expands to the ticks of CPU time that the shell and its ended children used."""
_MOST_WAITING = 0.98


def waited_for_cpu_s(took_s: float, used_s: float, waiting_share: float) -> float:
    """Seconds that a command waited for a CPU: what it used of one came at the share that the
    machine had left. One that sleeps uses nothing and waits for nothing.

    `waiting_share`: of their time, that processes of the machine waited meanwhile.
    """
    share = min(_MOST_WAITING, max(0.0, waiting_share))
    return max(0.0, min(took_s - used_s, used_s * share / (1.0 - share)))


class CommandEnding(Enum):
    """Ways in which waiting for a command's answer ends."""

    COMPLETED = "completed"
    DEADLINE = "deadline"
    SHELL_ENDED = "shell ended"
    """A new shell is waiting."""
    DEAD = "dead"
    """No shell is left."""


@dataclass(slots=True)
class Capture:
    """Output up to a limit; what comes later is counted and dropped."""

    limit: int
    content: bytearray
    total: int = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self.limit - len(self.content)
        if room > 0:
            self.content += data[:room]

    @property
    def text(self) -> str:
        return self.content.decode(errors="replace")

    @property
    def truncated(self) -> bool:
        return self.total > self.limit


class ShellSession:
    """One shell at the end of a transport, and the next one when it ends."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._unsent = b""
        self._received = b""
        self._token = ""
        self.code: int | None = None
        """Exit code of the last command that answered."""
        self.feeder_pid = 0
        """Number inside of a process that the shell cannot be without; 0 where there is none."""

    def send(self, command: str) -> None:
        """Give the shell a command; NUL characters cannot be in one and are left out."""
        text = command.replace("\0", "").replace("'", "'\\''")
        self._post(f"\\eval '{text}' </dev/null >&4 2>&4 3>&- 4>&-\n", '"$?"')

    def ask(self, expression: str) -> None:
        """The answer's code is what the shell expands this to, a number: `"$BASHPID"`."""
        self._post("", expression)

    def _post(self, line: str, answer: str) -> None:
        self._token = secrets.token_hex(16)
        self.code = None
        text = f"{line}\\printf '{self._transport.mark}E {self._token} %s\\0' {answer} >&3\n"
        self._unsent += text.encode(errors="replace")

    def wait(self, capture: Capture, deadline: float) -> CommandEnding:
        """Collect output until the command's answer, the shell's end or the deadline."""
        while True:
            left_s = max(0.0, deadline - time.monotonic())
            ended = self._exchange(capture, left_s).ended
            ending = self._next_message() or (CommandEnding.DEAD if ended else None)
            if ending is not None:
                self.drain(capture)
                return ending
            if left_s <= 0:
                return CommandEnding.DEADLINE

    def drain(self, capture: Capture) -> None:
        """Take the output that is there by now."""
        unsent, self._unsent = self._unsent, b""
        for _ in range(_DRAINS):
            if not self._exchange(capture, 0).output:
                break
        self._unsent = unsent

    def _exchange(self, capture: Capture, timeout_s: float) -> Exchange:
        exchange = self._transport.exchange(self._unsent, timeout_s)
        self._unsent = self._unsent[exchange.sent :]
        self._received += exchange.messages
        capture.add(exchange.output)
        return exchange

    def _next_message(self) -> CommandEnding | None:
        while b"\0" in self._received:
            message, _, self._received = self._received.partition(b"\0")
            kind, *words = message.decode(errors="replace").split(" ")
            if kind == "D":
                # An init process that names a word starts the next shell once it has read it back.
                self._unsent = f"go {words[1]}\n".encode() if len(words) == 2 else b""
                return CommandEnding.SHELL_ENDED
            if kind == "F" and len(words) == 1 and _NUMBER.fullmatch(words[0]):
                self.feeder_pid = int(words[0])
            if kind == "E" and len(words) == 2 and words[0] == self._token:
                self.code = int(words[1]) if _NUMBER.fullmatch(words[1]) else None
                return CommandEnding.COMPLETED
        self._received = self._received[-_MOST_MESSAGE_BYTES:]
        return None

    def close(self) -> None:
        self._transport.close()


class Shell:
    """A session and what kills in its sandbox.

    `kill_all_but` gets the number that a process has inside, and spares it and the init process; 0
    spares the init process alone.
    """

    def __init__(
        self, session: ShellSession, output_bytes: int, kill_all_but: Callable[[int], None]
    ) -> None:
        self._session = session
        self._output_bytes = output_bytes
        self._kill_all_but = kill_all_but
        self._ticks = 0
        """CPU ticks used up to the last question."""
        self.pid = 0
        """Number of the shell inside."""

    def run(self, command: str, timeout_s: float) -> tuple[ExecResult, CommandEnding]:
        """Outcome of a command; unless it ANSWERED, the shell was lost and has to be greeted."""
        capture = Capture(self._output_bytes, bytearray())
        began_s, machine_s = time.monotonic(), cpu_waits.seconds()
        self._session.drain(capture)
        self._session.send(command)
        ending = self._session.wait(capture, began_s + timeout_s)
        timed_out = ending is CommandEnding.DEADLINE
        if timed_out:
            ending = self._interrupt(capture)
        code = self._session.code if ending is CommandEnding.COMPLETED and not timed_out else None
        lost = ending is not CommandEnding.COMPLETED
        took_s, waited_s = time.monotonic() - began_s, 0.0
        if took_s > _TELLING_S and not lost:
            waited_s = waited_for_cpu_s(
                took_s, self._used_cpu_s(), (cpu_waits.seconds() - machine_s) / took_s
            )
        return ExecResult(capture.text, code, timed_out, capture.truncated, lost, waited_s), ending

    def _used_cpu_s(self) -> float:
        """CPU time that the shell and its children that have ended used since the last question."""
        self._session.ask(_CPU_TICKS)
        ending = self._session.wait(Capture(0, bytearray()), time.monotonic() + _SHELL_GRACE_S)
        ticks = (self._session.code or 0) if ending is CommandEnding.COMPLETED else 0
        used, self._ticks = max(0, ticks - self._ticks), ticks
        return used / _TICKS_PER_S

    def greet(self, capture: Capture, timeout_s: float) -> bool:
        """Learn the shell's process number; False when no shell answers."""
        deadline = time.monotonic() + timeout_s
        for _ in range(_GREET_TRIES):
            self._session.ask('"$BASHPID"')
            ending = self._session.wait(capture, deadline)
            if ending is not CommandEnding.SHELL_ENDED:
                break
        self.pid, self._ticks = self._session.code or 0, 0
        return ending is CommandEnding.COMPLETED and self.pid > 0

    def _interrupt(self, capture: Capture) -> CommandEnding:
        """Kill what the command left running; the shell itself only if it still does not answer."""
        for grace_s in _KILL_GRACES_S:
            self._kill_all_but(self.pid)
            ending = self._session.wait(capture, time.monotonic() + grace_s)
            if ending is not CommandEnding.DEADLINE:
                return ending
        self._kill_all_but(0)
        return self._session.wait(capture, time.monotonic() + _SHELL_GRACE_S)
