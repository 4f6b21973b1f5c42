"""From what the agent left to a reward, and to a report that says what failed.

Checks are read from outside, so a task that has only checks trusts nothing inside the sandbox.
A bash grader runs in a fresh sandbox over the agent's files. What prevents a verdict is an
EnvError, never a reward of 0.
"""

from __future__ import annotations

import json
import math
import posixpath
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clawrl_gym.envs.sandbox.base import ExecResult, Sandbox
from clawrl_gym.envs.tasks import FileData, Task
from clawrl_gym.errors import EnvError, SandboxError

MAX_READ_BYTES = 4 << 20
"""Longest file that a check or a reward may read."""

PROBE_TIMEOUT_S = 10.0

MAX_REPORTED_CHARS = 400
"""Of a grader's output; its last lines are reported."""
REPORT_PASSED = "Test report: passed"
REPORT_FAILED = "Test report: failed"


@dataclass(frozen=True, slots=True)
class Grade:
    """What an episode earned, and why not more."""

    reward: float
    report: str
    """For whoever learns from the episode; no prompt of the episode has it."""


def report_of(failures: Sequence[str]) -> str:
    """The report of checks: what each that failed says."""
    listed = [f"- {_one_line(failure)}" for failure in failures]
    return "\n".join([REPORT_FAILED, *listed]) if listed else REPORT_PASSED


def report_of_output(done: ExecResult, timeout_s: float) -> str:
    """The report of a grader that found the task not solved: its last lines."""
    lines = [line.rstrip() for line in done.output.splitlines() if line.strip()]
    kept, room = list[str](), MAX_REPORTED_CHARS
    if done.timed_out:
        kept.append(f"it ran past {timeout_s:g} s")
    for line in reversed(lines):
        room -= len(line) + 1
        if room < 0:
            break
        kept.insert(0, line)
    if lines and lines[-1] not in kept:
        kept.insert(0, lines[-1][:MAX_REPORTED_CHARS])
    return "\n".join([REPORT_FAILED, *kept])


def _one_line(text: str) -> str:
    """A failure on its own line, whatever is in a file's name."""
    return " ".join(text.split())


class SandboxLeftovers:
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


def grade(task: Task, sandbox: Sandbox, timeout_s: float) -> tuple[Grade, Sandbox]:
    """The grade, and the sandbox that is open now: a grader closes the agent's."""
    left = SandboxLeftovers(sandbox, task.workdir)
    failures = [words for check in task.checks if (words := check.why(left)) is not None]
    if not task.checks and not task.grader:
        failures.append("the task has nothing that checks it")
    if failures or not task.grader:
        return Grade(0.0 if failures else 1.0, report_of(failures)), sandbox
    fresh = sandbox.successor()
    try:
        return _run_grader(task, fresh, task.grader_timeout_s or timeout_s), fresh
    except BaseException:
        fresh.close()
        raise


def write_files(sandbox: Sandbox, files: Mapping[str, FileData]) -> None:
    """Write a task's own files."""
    for path, file in files.items():
        sandbox.write(path, file.data, file.mode)


def _run_grader(task: Task, fresh: Sandbox, timeout_s: float) -> Grade:
    if task.reward_files:
        _clear_rewards(task, fresh)
    write_files(fresh, task.grader_files)
    go = f"cd {shlex.quote(task.workdir)} 2> /dev/null || cd /"
    done = fresh.exec(f"{go}\n{task.grader}", timeout_s)
    if not task.reward_files:
        return _graded(1.0 if done.exit_code == 0 else 0.0, done, timeout_s)
    for path in task.reward_files:
        try:
            reward = parse_reward(fresh.read(path, MAX_READ_BYTES), path)
            return _graded(reward, done, timeout_s)
        except FileNotFoundError:
            continue
    why = f"ran past {timeout_s:g} s" if done.timed_out else f"ended with {done.exit_code}"
    raise EnvError(
        f"the grader of task {task.id!r} {why} and left none of {', '.join(task.reward_files)}; "
        f"its last output: {done.output[-500:]!r}"
    )


def _graded(reward: float, done: ExecResult, timeout_s: float) -> Grade:
    """Solved from a reward of 1 on; less has its report, even when part of it was earned."""
    return Grade(reward, REPORT_PASSED if reward >= 1.0 else report_of_output(done, timeout_s))


def _clear_rewards(task: Task, fresh: Sandbox) -> None:
    """Remove rewards that the agent wrote itself, and look from outside that they are gone."""
    folders = sorted({posixpath.dirname(path) for path in task.reward_files})
    fresh.exec(f"rm -rf {' '.join(folders)}; mkdir -p {' '.join(folders)}", PROBE_TIMEOUT_S)
    left = SandboxLeftovers(fresh, "/")
    for path in task.reward_files:
        if left.mode(path) is not None:
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
