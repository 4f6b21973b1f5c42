"""The grade of an episode: all goals of its task, one of which may be a program of the user's."""

from __future__ import annotations

import ast
import json
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import SystemRandom

from clawrl_gym.core.errors import SandboxError, TaskError
from clawrl_gym.envs.report import Grade, report_of
from clawrl_gym.envs.sandbox.interface import Sandbox
from clawrl_gym.envs.toolcall.task import Goal, Outcome
from clawrl_gym.envs.twins.programs import is_trusted, twins_of_program

_RUNNER = "/root/run.py"
_PROGRAM = "/root/check.py"
_OUTCOME = "/root/outcome.json"
_TOKEN_FILE = "/root/done"
_MAX_SAID_CHARS = 500
_SPOILT = "what was left passes a check that nothing can pass"
_QUICK_S = 2.0
_FEW = 10
"""A check that takes longer, or has more twins, meets them once and not twice."""
_KILLED = 128
"""Exit codes above it are signals."""
_RUN = """\
import runpy, sys
path, done = sys.argv[1], sys.stdin.readline().strip()
sys.argv[1:] = sys.argv[2:]
try:
    runpy.run_path(path, run_name="__main__")
except SystemExit as end:
    if end.code not in (None, 0):
        raise
with open("/root/done", "w") as file:
    file.write(done)
"""
"""A check that was left by os._exit, say by code of the policy that it ran, is none."""


def grade(goals: Sequence[Goal], outcome: Outcome) -> Grade:
    """1 when every goal is met, else 0. Raises EnvError when a goal could not be looked at."""
    missing = [line for goal in goals for line in goal.missing(outcome)]
    return Grade(0.0 if missing else 1.0, report_of(missing))


@dataclass(frozen=True, slots=True)
class ProgramGoal:
    """A Python program, run in a fresh sandbox, comes to its end or to exit code 0.

    It finds the path of a JSON file in `sys.argv[1]`: `said` (texts), `calls` (name, arguments,
    result, failed, in order) and `states` (by toolset). What it prints is the report, so it should
    not print the answer. What passes is held against the program's twins, for code of the policy
    that it runs may do with its process what it likes.
    """

    program: str
    open_sandbox: Callable[[], Sandbox]
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        try:
            ast.parse(self.program)
        except (SyntaxError, ValueError) as error:
            raise TaskError(f"the program of a goal is no Python: {error}") from error

    @property
    def is_trusted(self) -> bool:
        """Whether its twins find every value that the policy's code may lie with."""
        return is_trusted(self.program)

    def missing(self, outcome: Outcome) -> Sequence[str]:
        try:
            return self._missing(outcome)
        except SandboxError:
            try:
                return self._missing(outcome)  # what failed once may not fail again
            except SandboxError:
                self._run(self.program, Outcome((), (), {}))  # raises when the machine is to blame
                return ["with what was left the check does not come to its end"]

    def _missing(self, outcome: Outcome) -> list[str]:
        """Passed is what passes the program each time and none of its twins."""
        start, random = time.monotonic(), SystemRandom()
        missing = self._run(self.program, outcome)
        twins = twins_of_program(self.program, random)
        if time.monotonic() - start < _QUICK_S and len(twins) <= _FEW:
            twins += twins_of_program(self.program, random)
        for program in random.sample([*twins, self.program], len(twins) + 1):
            if missing:
                return missing
            failed = self._run(program, outcome)
            missing = failed if program == self.program else [] if failed else [_SPOILT]
        return missing

    def _run(self, program: str, outcome: Outcome) -> list[str]:
        """Missing parts by a program, in a sandbox of its own. Raises SandboxError."""
        sandbox = self.open_sandbox()
        try:
            return self._said_in(sandbox, program, outcome)
        finally:
            sandbox.close()

    def _said_in(self, sandbox: Sandbox, program: str, outcome: Outcome) -> list[str]:
        sandbox.write(_RUNNER, _RUN.encode())
        sandbox.write(_PROGRAM, program.encode())
        sandbox.write(_OUTCOME, _as_json(outcome))
        token = secrets.token_hex(16)
        command = f"echo {token} | python3 -I {_RUNNER} {_PROGRAM} {_OUTCOME}"
        check = sandbox.exec(command, self.timeout_s)
        if check.timed_out:
            return ["the check took too long"]
        if check.shell_restarted:
            raise SandboxError(f"the shell of a goal's program ended: {check.output[-200:]!r}")
        if check.exit_code == 127:
            raise SandboxError("the sandbox has no python3, which a goal's program needs")
        if check.exit_code == 0 and _read(sandbox, _TOKEN_FILE) == token:
            return []
        if check.exit_code is not None and check.exit_code > _KILLED:
            return ["the check was killed, perhaps out of memory"]
        lines = check.output.strip().splitlines()
        return [lines[-1][:_MAX_SAID_CHARS] if lines else "the check failed"]


def _read(sandbox: Sandbox, path: str) -> str:
    try:
        return sandbox.read(path, 256).decode(errors="replace")
    except (FileNotFoundError, SandboxError):
        return ""


def _as_json(outcome: Outcome) -> bytes:
    calls = [
        {
            "name": executed.call.name,
            "arguments": dict(executed.arguments),
            "result": executed.result,
            "failed": executed.failed,
        }
        for reply in outcome.calls
        for executed in reply
    ]
    return json.dumps(
        {"said": list(outcome.replies), "calls": calls, "states": dict(outcome.states)}
    ).encode()
