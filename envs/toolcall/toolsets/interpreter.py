"""A Python interpreter that lives in a sandbox: variables stay from call to call.

The sandbox is the only thing that keeps code in: nothing here reads it or refuses a word of it.
The interpreter is a coprocess of the sandbox's shell, so a call costs no start of a process. A call
that runs too long is first interrupted inside, where variables survive; what does not listen is
killed, and the result says that its variables are lost.
"""

from __future__ import annotations

import base64
import secrets
import shlex
from collections.abc import Callable
from pathlib import Path

from clawrl_gym.core.errors import SandboxError
from clawrl_gym.envs.sandbox.interface import ExecResult, Sandbox

_START_S = 20.0
_GRACE_S = 1.0
"""Seconds for an interrupted call to end by itself."""
_LATE, _DEAD = 75, 76
LOST = "(this is a new interpreter: earlier variables are lost)"
RENEWED = "(this is a new interpreter in a new sandbox: earlier variables and files are lost)"
LATE = "(stopped: it took too long)"
_START = """\
trap '' PIPE
ended() {{ return "$1"; }}
if command -v python3 >/dev/null; then
  {{ coproc PY {{ trap - PIPE; exec python3 -I -S -c {driver} 2>&9; }} 2>/dev/null; }} 9>&1
  disown -a
  read -r -u "${{PY[0]}}" said
else
  ended 127
fi"""
_CALL = """\
word=
{{ printf '%s\\n' '{limit_s} {token} {code}' >&"${{PY[1]}}" &&
  while read -r -u "${{PY[0]}}" said word && [ "$word" != {token} ]; do :; done; }} 2>/dev/null
if [ "$word" != {token} ]; then ended {dead}; elif [ "$said" = late ]; then ended {late}; fi"""
"""Only words of the shell: no process of it is there to be killed with the code's. The token keeps
answers that the code forged from being taken for a later call's."""


class Interpreter:
    """One interpreter in a sandbox of its own; started by the first `run`. Not thread-safe."""

    def __init__(self, open_sandbox: Callable[[], Sandbox]) -> None:
        self._open_sandbox = open_sandbox
        self._sandbox: Sandbox | None = None
        self._is_running = False
        self._was_running = False

    def start(self) -> None:
        """Have an interpreter that waits. Raises SandboxError when there cannot be one."""
        if self._sandbox is None:
            self._sandbox = self._open_sandbox()
        command = _START.format(driver=shlex.quote(_driver()))
        started = self._sandbox.exec(command, _START_S)
        if started.exit_code != 0:
            output = started.output.strip()[-300:] or "no word from it"
            raise SandboxError(
                f"no Python interpreter in the sandbox (exit code {started.exit_code}): {output}; "
                "its root file system, or its image, must have python3"
            )
        self._is_running = self._was_running = True

    def run(self, code: str, timeout_s: float) -> str:
        """Output of the code, then its last expression's value, or the end of a traceback.

        Raises SandboxError when the sandbox fails by itself.
        """
        notes = [] if self._is_running else self._start_again()
        assert self._sandbox is not None
        encoded = base64.b64encode(code.encode(errors="replace")).decode()
        command = _CALL.format(
            limit_s=f"{timeout_s:.3f}", token=secrets.token_hex(8), code=encoded,
            late=_LATE, dead=_DEAD,
        )  # fmt: skip
        execution = self._sandbox.exec(command, timeout_s + _GRACE_S)
        return "\n".join([*notes, self._result(execution)])

    def _start_again(self) -> list[str]:
        """Start, and what there is to say about it.

        A sandbox in which an interpreter ran and none starts any more was broken by the code that
        ran there, which is no failure of the machine: another one takes its place.
        """
        if not self._was_running:
            self.start()
            return []
        try:
            self.start()
        except SandboxError:
            self.close()
            self.start()
            return [RENEWED]
        return [LOST]

    def close(self) -> None:
        """End everything; idempotent."""
        sandbox, self._sandbox = self._sandbox, None
        self._is_running = False
        if sandbox is not None:
            sandbox.close()

    def _result(self, execution: ExecResult) -> str:
        notes = ["(output cut)"] if execution.truncated else []
        if execution.timed_out or execution.exit_code == _LATE:
            notes.append(LATE)
        if execution.exit_code not in (0, _LATE):
            self._is_running = False
            notes.append(
                "(the interpreter was stopped: its variables are lost)"
                if execution.timed_out
                else "(stopped: it ended by itself, perhaps out of memory: its variables are lost)"
            )
        output = execution.output.rstrip("\n")
        return "\n".join([output, *notes] if output or notes else ["(no output)"]).lstrip("\n")


def _driver() -> str:
    return (Path(__file__).parent / "interpreter_program.py").read_text()
