"""An agent's process in a sandbox: started in the background, looked at, ended, cleaned up after.

All calls block for about a second at most, so that an episode can end at any time. Whatever the
agent does to its own files (a forged exit code, a link in their place) concerns itself alone.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from clawrl_gym.agents.cli.recipe import HOME
from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox.interface import Sandbox

_CALL_S = 60.0
"""Longest wait for a command of ours: after it, everything in the sandbox is killed."""
_PAUSE_S = 0.5
_TAIL_BYTES = 2000
_SHOWN_CHARS = 500
_NUMBER_BYTES = 16
_START = f"setsid bash {HOME}/start </dev/null >{HOME}/output 2>&1 & echo $! >{HOME}/pid"
_ALIVE, _OVER = 3, 4
_LOOK = f"""\
(for _ in 1 2 3 4 5 6 7 8 9 10; do
  [ ! -e {HOME}/exit ] && kill -0 %d 2>/dev/null || exit {_OVER}
  sleep 0.1
done
exit {_ALIVE})"""


@dataclass(frozen=True, slots=True)
class Exit:
    """How an agent's process ended."""

    code: int | None
    """None: it was ended."""
    why: str
    """Reason for which it was ended."""
    output: str
    """The end of what it printed."""

    @property
    def problem(self) -> str | None:
        """What was wrong, in words; None for an agent that came to a good end."""
        if self.code == 0 and not self.why:
            return None
        how = self.why or (
            "was killed" if self.code is None else f"ended with exit code {self.code}"
        )
        return f"the agent {how}; it printed: {self.output[-_SHOWN_CHARS:] or 'nothing'}"


class GuestProcess:
    """One start of an agent in a sandbox."""

    def __init__(self, sandbox: Sandbox, pid: int) -> None:
        """`pid`: its number inside, which is its process group's too."""
        self._sandbox = sandbox
        self._pid = pid

    @classmethod
    def started(cls, sandbox: Sandbox, files: Mapping[str, str]) -> Self:
        """`files`: contents by path, with the script that starts it. Raises SandboxError."""
        sandbox.exec(f"rm -rf {HOME}; mkdir -m 700 {HOME}", _CALL_S)
        for path, text in files.items():
            sandbox.write(path, text.encode(errors="replace"))
        result = sandbox.exec(_START, _CALL_S)
        pid = _number(sandbox, "pid")
        if pid is None or pid < 2:
            raise SandboxError(f"the agent could not be started: {result.output[-_SHOWN_CHARS:]}")
        return cls(sandbox, pid)

    def is_alive(self) -> bool:
        """Whether it still runs, after about a second or as soon as it has ended."""
        result = self._sandbox.exec(_LOOK % self._pid, _CALL_S)
        if result.exit_code in (_ALIVE, _OVER):
            return result.exit_code == _ALIVE
        time.sleep(_PAUSE_S)  # it left no process for the look, or ended the shell
        return True

    def end(self, why: str) -> Exit:
        """How it ended; what still runs of its process group is killed. `why`: it is ended now."""
        code = None if why else _number(self._sandbox, "exit")
        self._sandbox.exec(f"kill -KILL -- -{self._pid} 2>/dev/null", _CALL_S)
        tail = self._sandbox.exec(f"tail -c {_TAIL_BYTES} {HOME}/output", _CALL_S)
        return Exit(code, why, tail.output.strip())

    def clean(self) -> None:
        """Leave nothing of it but its work."""
        self._sandbox.exec(
            f"kill -KILL -- -{self._pid} 2>/dev/null; rm -rf {shlex.quote(HOME)}", _CALL_S
        )


def _number(sandbox: Sandbox, name: str) -> int | None:
    """A number that stands in one of its files."""
    try:
        text = sandbox.read(f"{HOME}/{name}", _NUMBER_BYTES).strip()
    except (FileNotFoundError, SandboxError):
        return None
    return int(text) if text.isdigit() else None
