"""From what the agent left to a reward, and to a report that says what failed.

Checks are read from outside, so a task that has only checks trusts nothing inside the sandbox.
A bash grader runs in a fresh sandbox over the agent's files, or on a machine of its own that gets
the declared artifacts. What prevents a verdict is an EnvError, never a reward of 0.
"""

from __future__ import annotations

import json
import math
import posixpath
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import replace

from clawrl_gym.core.errors import EnvError, SandboxError
from clawrl_gym.envs.report import REPORT_FAILED, REPORT_PASSED, Grade, report_of
from clawrl_gym.envs.sandbox.interface import ExecResult, Sandbox
from clawrl_gym.envs.terminal import artifacts
from clawrl_gym.envs.terminal.machines import Machines, write_files
from clawrl_gym.envs.terminal.pytest_summary import failures_of
from clawrl_gym.envs.terminal.task import MachineSpec, Task

MAX_READ_BYTES = 4 << 20
"""Longest file that a check or a reward may read."""

PROBE_TIMEOUT_S = 10.0

MAX_REPORTED_CHARS = 400
"""Of a grader's output; its last lines are reported."""
MAX_REPORTED_FAILURES = 10
"""Of a run of pytest."""
TESTS = "/tests"
"""Where graders' files go in the layouts of users' tasks."""
_ABOVE_TESTS = (
    "/conftest.py", "/pytest.ini", "/.pytest.ini", "/tox.ini", "/setup.cfg", "/pyproject.toml"
)  # fmt: skip
"""Where pytest looks for its settings when it is given tests below TESTS."""
_FORGET_CUSTOMIZING = (
    "find /etc /usr/local /opt /root /home -xdev "
    "'(' -name sitecustomize.py -o -name usercustomize.py ')' -delete 2> /dev/null"
)


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
    """What stands in a sandbox, relative to the task's working directory."""

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

    def _require_alive(self) -> None:
        """A folder where a file should be is a wrong answer; a dead sandbox is no answer."""
        self._sandbox.exec(":", PROBE_TIMEOUT_S)


def grade(
    task: Task, sandbox: Sandbox, timeout_s: float, machines: Machines | None = None
) -> tuple[Grade, Sandbox]:
    """The grade, and the sandbox with the agent's files that is open now.

    A grader closes the agent's own. `machines` is for graders on a machine of their own.
    """
    workdir = task.workdir or "/"
    files_left = SandboxFiles(sandbox, workdir)
    failures = [words for check in task.checks if (words := check.failure(files_left)) is not None]
    if not task.checks and not task.grader:
        failures.append("the task has nothing that checks it")
    if failures or not task.grader:
        return Grade(0.0 if failures else 1.0, report_of(failures)), sandbox
    limit_s = task.grader_timeout_s or timeout_s
    fresh = sandbox.successor()
    try:
        for hook in task.collect:
            fresh.exec(f"cd {shlex.quote(workdir)} 2> /dev/null; ( {hook.command}\n)",
                       hook.timeout_s)  # fmt: skip
        if task.verifier is None:
            return _run_grader(task, fresh, limit_s), fresh
        if machines is None:
            raise EnvError(f"task {task.id!r} needs a machine for its grader, got none")
        return _grade_apart(task, task.verifier, fresh, limit_s, machines), fresh
    except BaseException:
        fresh.close()
        raise


def _grade_apart(
    task: Task, machine: MachineSpec, agent_sandbox: Sandbox, timeout_s: float, machines: Machines
) -> Grade:
    """On the grader's own machine, which sees of the agent's only the artifacts."""
    archives = artifacts.collect_artifacts(agent_sandbox, task.artifacts, machines.artifact_bytes)
    grader_sandbox, workdir = machines.open(machine, f"the verifier of task {task.id!r}")
    try:
        for archive in archives:
            artifacts.unpack_artifact(grader_sandbox, archive)
        return _run_grader(replace(task, workdir=workdir), grader_sandbox, timeout_s)
    finally:
        grader_sandbox.close()


def _run_grader(task: Task, fresh: Sandbox, timeout_s: float) -> Grade:
    _clear(task, fresh)
    write_files(fresh, task.grader_files, "/")
    change_folder = f"cd {shlex.quote(task.workdir or '/')} 2> /dev/null || cd /"
    if task.expected_tests is not None:
        return _read_summary(task, task.expected_tests, fresh, change_folder, timeout_s)
    result = fresh.exec(f"{change_folder}\n{task.grader}", timeout_s)
    if not task.reward_files:
        return _graded(1.0 if result.exit_code == 0 else 0.0, result, timeout_s)
    for path in task.reward_files:
        try:
            reward = parse_reward(fresh.read(path, MAX_READ_BYTES), path)
            return _graded(reward, result, timeout_s)
        except FileNotFoundError:
            continue
    outcome = f"ran past {timeout_s:g} s" if result.timed_out else f"ended with {result.exit_code}"
    raise EnvError(
        f"the grader of task {task.id!r} {outcome} and left none of {', '.join(task.reward_files)}"
        f"; its last output: {result.output[-500:]!r}"
    )


def _read_summary(
    task: Task, expected: Sequence[str], fresh: Sandbox, change_folder: str, timeout_s: float
) -> Grade:
    """The output goes into a file: of what a command prints, only the beginning is kept."""
    log = f"/tmp/{secrets.token_hex(8)}.log"
    result = fresh.exec(f"{change_folder}\n( {task.grader}\n) > {log} 2>&1", timeout_s)
    fresh.exec(f"tail -c {MAX_READ_BYTES // 2} {log} > {log}.end", PROBE_TIMEOUT_S)
    summary = (SandboxFiles(fresh, "/").read(f"{log}.end") or b"").decode(errors="replace")
    failures = failures_of(summary, expected)
    if result.timed_out:
        failures = [f"the tests ran past {timeout_s:g} s"]
    elif not failures and result.exit_code != 0:
        failures = [f"the test script ended with exit code {result.exit_code}"]
    return Grade(0.0 if failures else 1.0, report_of(failures[:MAX_REPORTED_FAILURES]))


def _graded(reward: float, result: ExecResult, timeout_s: float) -> Grade:
    """Solved from a reward of 1 on; less has its report, even when part of it was earned."""
    return Grade(reward, REPORT_PASSED if reward >= 1.0 else report_of_output(result, timeout_s))


def _clear(task: Task, fresh: Sandbox) -> None:
    """Remove rewards and tests that the agent wrote itself, and look from outside: they are gone.

    So is what would steer Python and pytest from outside the task: a conftest.py beside the tests
    or above them, a sitecustomize.py. What agents may install (packages, plug-ins of pytest)
    stays, as tasks ask for it: only a verifier of its own is safe from that.
    """
    folders = sorted({posixpath.dirname(path) for path in task.reward_files})
    brings_tests = any(path.startswith(f"{TESTS}/") for path in task.grader_files)
    shared = brings_tests and task.verifier is None
    steering = [TESTS, *(_ABOVE_TESTS if task.workdir != "/" else ())] if shared else []
    if not folders and not steering:
        return
    make_folders = f"; mkdir -p {' '.join(folders)}" if folders else ""
    fresh.exec(f"rm -rf {' '.join([*folders, *steering])}{make_folders}", PROBE_TIMEOUT_S)
    if shared:
        fresh.exec(_FORGET_CUSTOMIZING, PROBE_TIMEOUT_S)
    files_left = SandboxFiles(fresh, "/")
    for path in (*task.reward_files, *steering):
        if files_left.mode(path) is not None:
            raise EnvError(f"cannot remove the agent's own {path} before grading {task.id!r}")


def parse_reward(data: bytes, path: str) -> float:
    """One finite number: bare, or a JSON object's `reward` or only value. Raises EnvError."""
    text = data.decode(errors="replace").strip()
    try:
        value = json.loads(text) if path.endswith(".json") else float(text)
        if isinstance(value, dict):
            value = next(iter(value.values())) if len(value) == 1 else value["reward"]
        if isinstance(value, int | float) and math.isfinite(value):
            return float(value)
    except (ValueError, KeyError, OverflowError, RecursionError):
        pass
    raise EnvError(f"got {text[:200]!r} in {path}, expected one finite number as the reward")
