"""From what the agent left to a reward.

Checks are read from outside, so a task that has only checks trusts nothing inside the sandbox.
A bash grader runs in a fresh sandbox over the agent's files. What prevents a verdict is an
EnvError, never a reward of 0.
"""

from __future__ import annotations

import json
import math
import posixpath
import shlex
from collections.abc import Mapping

from clawrl_gym.envs.sandbox.base import Sandbox
from clawrl_gym.envs.tasks import FileData, Task
from clawrl_gym.errors import EnvError, SandboxError

MAX_READ_BYTES = 4 << 20
"""Longest file that a check or a reward may read."""

PROBE_TIMEOUT_S = 10.0


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


def grade(task: Task, sandbox: Sandbox, timeout_s: float) -> tuple[float, Sandbox]:
    """The reward, and the sandbox that is open now: a grader closes the agent's."""
    left = SandboxLeftovers(sandbox, task.workdir)
    if not all(check.passed(left) for check in task.checks):
        return 0.0, sandbox
    if not task.grader:
        return (1.0 if task.checks else 0.0), sandbox
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


def _run_grader(task: Task, fresh: Sandbox, timeout_s: float) -> float:
    if task.reward_files:
        _clear_rewards(task, fresh)
    write_files(fresh, task.grader_files)
    go = f"cd {shlex.quote(task.workdir)} 2> /dev/null || cd /"
    done = fresh.exec(f"{go}\n{task.grader}", timeout_s)
    if not task.reward_files:
        return 1.0 if done.exit_code == 0 else 0.0
    for path in task.reward_files:
        try:
            return parse_reward(fresh.read(path, MAX_READ_BYTES), path)
        except FileNotFoundError:
            continue
    why = f"ran past {timeout_s:g} s" if done.timed_out else f"ended with {done.exit_code}"
    raise EnvError(
        f"the grader of task {task.id!r} {why} and left none of {', '.join(task.reward_files)}; "
        f"its last output: {done.output[-500:]!r}"
    )


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
