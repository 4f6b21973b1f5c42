"""Grades what an agent left: a reward, and a report that says what failed.

Checks are read from outside, so a task that has only checks trusts nothing inside the sandbox.
A bash grader runs on a machine of its own to which data travels (`Task.takes`), or in a fresh
sandbox over the agent's files. A grader that met what the agent left and gave no verdict (no reward
that can be read, no summary, no end) makes a `MissingVerdict`: 0, else an agent could choose not to
be graded, unless `verdicts.py` finds that the task never gets one. A grader's machine that does not
come up before that is an EnvError, never a reward.
"""

from __future__ import annotations

import json
import math
import posixpath
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from clawrl_gym.core.errors import EnvError, SandboxError
from clawrl_gym.core.types import is_success
from clawrl_gym.envs.report import REPORT_FAILED, REPORT_PASSED, Grade, report_of
from clawrl_gym.envs.sandbox.interface import ExecResult, ListsFiles, Sandbox
from clawrl_gym.envs.terminal.folders.handover import hand_over
from clawrl_gym.envs.terminal.folders.machines import (
    Machines,
    agents_doing,
    make_log_folders,
    write_files,
)
from clawrl_gym.envs.terminal.pytest_summary import HEADER, failures_of
from clawrl_gym.envs.terminal.task import MachineSpec, Task

MAX_READ_BYTES = 4 << 20
"""Longest file that a check or a reward may read."""

MAX_ENTRIES = 10_000
"""Most files and folders that a check looks through."""

PROBE_TIMEOUT_S = 10.0

MAX_REPORTED_CHARS = 400
"""Most characters of a grader's output; its last lines are reported."""
MAX_REPORTED_FAILURES = 10
"""Most reported failures of a run of pytest."""
TESTS = "/tests"
"""Where graders' files go in the layouts of users' tasks."""
_ABOVE_TESTS = (
    "/conftest.py", "/pytest.ini", "/.pytest.ini", "/tox.ini", "/setup.cfg", "/pyproject.toml"
)  # fmt: skip
"""Where pytest looks for its settings when it is given tests below TESTS."""
_KILLED = (128 + 1, 128 + 2, 128 + 3, 128 + 6, 128 + 9, 128 + 15)
"""Exit codes of a grader that a signal has ended, which only what it ran can have sent."""
_FORGET_CUSTOMIZING = (
    "find /etc /usr/local /opt /root /home -xdev "
    "'(' -name sitecustomize.py -o -name usercustomize.py ')' -delete 2> /dev/null"
)


@dataclass(frozen=True, slots=True)
class MissingVerdict(Grade):
    """A reward of 0 in place of a verdict that the grader did not give."""

    reason: str = ""
    """What it did instead, in words."""


def report_of_output(result: ExecResult, timeout_s: float) -> str:
    """The report of a grader that found the task not solved: its last lines."""
    lines = [line.rstrip() for line in result.output.splitlines() if line.strip()]
    tail, room = list[str](), MAX_REPORTED_CHARS
    if result.timed_out:
        tail.append(f"it ran past {timeout_s:g} s")
    for line in reversed(lines):
        room -= len(line) + 1
        if room < 0:
            break
        tail.insert(0, line)
    if lines and lines[-1] not in tail:
        tail.insert(0, lines[-1][:MAX_REPORTED_CHARS])
    return "\n".join([REPORT_FAILED, *tail])


class SandboxFiles:
    """Files of a sandbox, relative to the task's working directory."""

    def __init__(self, sandbox: Sandbox, workdir: str) -> None:
        self._sandbox = sandbox
        self._workdir = workdir

    def read(self, path: str) -> bytes | None:
        try:
            return self._sandbox.read(posixpath.join(self._workdir, path), MAX_READ_BYTES)
        except OSError:
            return None
        except SandboxError:
            self._require_alive()
            return None

    def mode(self, path: str) -> int | None:
        try:
            return self._sandbox.mode(posixpath.join(self._workdir, path))
        except OSError:
            return None
        except SandboxError:
            self._require_alive()
            return None

    def tree(self) -> dict[str, int] | None:
        """Raises EnvError for a kind of sandbox that cannot list."""
        if not isinstance(self._sandbox, ListsFiles):
            raise EnvError(
                f"{type(self._sandbox).__name__} has no method tree(path, max_entries), which "
                "tasks need that refuse side effects"
            )
        try:
            return self._sandbox.tree(self._workdir, MAX_ENTRIES)
        except OSError:
            return None
        except SandboxError:
            self._require_alive()
            return None

    def _require_alive(self) -> None:
        """A folder where a file should be is a wrong answer; a dead sandbox is no answer."""
        self._sandbox.exec(":", PROBE_TIMEOUT_S)


def grade(
    task: Task, sandbox: Sandbox, timeout_s: float, machines: Machines | None = None
) -> tuple[Grade, Sandbox]:
    """The grade, and the sandbox with the agent's files that is open now.

    A grader closes the agent's own. `machines` is for graders on a machine of their own. Raises
    AgentFault where the agent left nothing that could be graded.
    """
    workdir = task.workdir or "/"
    with agents_doing(machines, task.machine, "what was left cannot be looked at"):
        failures = _failed_checks(task, SandboxFiles(sandbox, workdir))
    if not task.checks and not task.grader:
        failures.append("the task has nothing that checks it")
    if failures or not task.grader:
        return Grade(0.0 if failures else 1.0, report_of(failures)), sandbox
    limit_s = task.grader_timeout_s or timeout_s
    with agents_doing(machines, task.machine, "what was left cannot be graded"):
        left = sandbox.successor()
    try:
        with agents_doing(machines, task.machine, "what was left cannot be graded"):
            for hook in task.collect:
                left.exec(f"cd {shlex.quote(workdir)} 2> /dev/null; ( {hook.command}\n)",
                          hook.timeout_s)  # fmt: skip
            if task.verifier is None:
                return _run_grader(task, left, limit_s), left
        if machines is None:
            raise EnvError(f"task {task.id!r} needs a machine for its grader, got none")
        return _grade_apart(task, task.verifier, left, limit_s, machines), left
    except BaseException:
        left.close()
        raise


def _failed_checks(task: Task, files_left: SandboxFiles) -> list[str]:
    return [words for check in task.checks if (words := check.failure(files_left)) is not None]


def _grade_apart(
    task: Task, machine: MachineSpec, left: Sandbox, timeout_s: float, machines: Machines
) -> Grade:
    """Grade on the grader's own machine, to which only what `Task.takes` says has travelled."""
    verifier, workdir = machines.open(machine, f"the verifier of task {task.id!r}")
    try:
        with agents_doing(machines, machine, "grading ended the verifier's machine"):
            return _grade_on(task, left, verifier, workdir, timeout_s, machines.artifact_bytes)
    finally:
        verifier.close()


def _grade_on(
    task: Task, left: Sandbox, verifier: Sandbox, workdir: str, timeout_s: float, max_bytes: int
) -> Grade:
    if task.reward_files:
        make_log_folders(verifier)
    handed_over = hand_over(task, left, verifier, workdir, max_bytes)
    graded = _run_grader(replace(task, workdir=workdir), verifier, timeout_s, handed_over.exports)
    if not handed_over.notes or is_success(graded.reward):
        return graded
    return replace(graded, report="\n".join([graded.report, *handed_over.notes]))


def _run_grader(task: Task, fresh: Sandbox, timeout_s: float, exports: str = ":") -> Grade:
    """A failure that the agent may have caused is a reward of 0, and is reported."""
    obstacle = _clear(task, fresh)
    if obstacle:
        return Grade(0.0, report_of([obstacle]))
    write_files(fresh, task.grader_files, "/")
    before = f"cd {shlex.quote(task.workdir or '/')} 2> /dev/null || cd /"
    before = before if exports == ":" else f"{exports}\n{before}"
    if task.expected_tests is not None:
        return _read_summary(task, task.expected_tests, fresh, before, timeout_s)
    result = fresh.exec(f"{before}\n{task.grader}", timeout_s)
    if not task.reward_files:
        return _graded(1.0 if result.exit_code == 0 else 0.0, result, timeout_s)
    if result.timed_out:
        report = report_of_output(result, timeout_s)
        return MissingVerdict(0.0, report, f"the verifier ran past {timeout_s:g} s")
    if result.exit_code is None or result.exit_code in _KILLED:
        return _no_verdict(f"the verifier was killed (exit code {result.exit_code})", result)
    try:
        reward = _read_reward(task.reward_files, fresh)
    except (OSError, SandboxError, EnvError) as error:
        fresh.exec(":", PROBE_TIMEOUT_S)  # raises when the sandbox is dead
        return _no_verdict(f"the verifier ended with {result.exit_code}; {error}", result)
    return _graded(reward, result, timeout_s)


def _read_reward(paths: Sequence[str], fresh: Sandbox) -> float:
    """Reward in the first file that exists. Raises EnvError for none, or for what is no number."""
    for path in paths:
        try:
            return parse_reward(fresh.read(path, MAX_READ_BYTES), path)
        except FileNotFoundError:
            continue
    raise EnvError(f"it left none of {', '.join(paths)}")


def _no_verdict(reason: str, result: ExecResult) -> MissingVerdict:
    tail = report_of_output(result, 0.0).split("\n")[1:]
    said = f"{reason}: {tail[-1].strip()}" if tail else reason
    return MissingVerdict(0.0, "\n".join([report_of([reason]), *tail]), said)


def _read_summary(
    task: Task, expected: Sequence[str], fresh: Sandbox, before: str, timeout_s: float
) -> Grade:
    """The output goes into a file: of what a command prints, only the beginning is kept."""
    log = f"/tmp/{secrets.token_hex(8)}.log"
    result = fresh.exec(f"{before}\n( {task.grader}\n) > {log} 2>&1", timeout_s)
    fresh.exec(f"tail -c {MAX_READ_BYTES // 2} {log} > {log}.end", PROBE_TIMEOUT_S)
    summary = (SandboxFiles(fresh, "/").read(f"{log}.end") or b"").decode(errors="replace")
    failures = failures_of(summary, expected)
    if result.timed_out:
        reason = f"the tests ran past {timeout_s:g} s"
        return MissingVerdict(0.0, report_of([reason]), reason)
    if HEADER not in summary:
        last = summary.strip().rpartition("\n")[2][:MAX_REPORTED_CHARS]
        reason = f"{failures[0]} (exit code {result.exit_code}){f': {last}' if last else ''}"
        return MissingVerdict(0.0, report_of(failures), reason)
    if not failures and result.exit_code != 0:
        failures = [f"the test script ended with exit code {result.exit_code}"]
    return Grade(0.0 if failures else 1.0, report_of(failures[:MAX_REPORTED_FAILURES]))


def _graded(reward: float, result: ExecResult, timeout_s: float) -> Grade:
    """Solved from a reward of 1 on; less has its report, even when part of it was earned."""
    report = REPORT_PASSED if is_success(reward) else report_of_output(result, timeout_s)
    return Grade(reward, report)


def _clear(task: Task, fresh: Sandbox) -> str:
    """Remove rewards and tests that the agent wrote itself; what is still there, in words.

    On a machine of the agent's so is what would steer Python and pytest from outside the task: a
    conftest.py beside the tests or above them, a sitecustomize.py. What agents may install
    (packages, plug-ins of pytest) stays, as tasks ask for it: such a grade is not trusted.
    """
    folders = sorted({posixpath.dirname(path) for path in task.reward_files})
    brings_tests = any(path.startswith(f"{TESTS}/") for path in task.grader_files)
    shared = brings_tests and task.verifier is None
    steering = [TESTS, *(_ABOVE_TESTS if task.workdir != "/" else ())] if shared else []
    if not folders and not steering:
        return ""
    make_folders = f"; mkdir -p {' '.join(folders)}" if folders else ""
    fresh.exec(f"rm -rf {' '.join([*folders, *steering])}{make_folders}", PROBE_TIMEOUT_S)
    if shared:
        fresh.exec(_FORGET_CUSTOMIZING, PROBE_TIMEOUT_S)
    files_left = SandboxFiles(fresh, "/")
    left = [path for path in (*task.reward_files, *steering) if files_left.mode(path) is not None]
    return f"the agent's own {left[0]} cannot be removed" if left else ""


def parse_reward(data: bytes, path: str) -> float:
    """One finite number: bare, or a JSON object's `reward` or only value. Raises EnvError."""
    text = data.decode("utf-8-sig", errors="replace").strip()
    try:
        value = json.loads(text) if path.endswith(".json") else float(text)
        if isinstance(value, dict):
            value = next(iter(value.values())) if len(value) == 1 else value["reward"]
        if isinstance(value, int | float) and math.isfinite(value):
            return float(value)
    except (ValueError, KeyError, OverflowError, RecursionError):
        pass
    raise EnvError(f"got {text[:200]!r} in {path}, expected one finite number as the reward")
