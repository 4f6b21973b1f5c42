"""Whether a task's verifier gives verdicts at all, asked on machines that no agent has touched.

An agent may break a verifier, and earns 0 for it; a verifier that says nothing, or 0, whatever is
done is the task's own error. So where an episode of a user's task got no verdict or earned nothing,
the task's own solution is played on a fresh machine, once in this process. A verifier that rewards
it works. One that gives it no verdict, or 0 although the solution came to its end, is broken.
Without a solution that comes to its end the verifier is asked over an untouched machine, where any
reward is a verdict.

    ~/.cache/clawrl_gym/verifiers/KEY.json    a task found broken, for the start of later runs
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from clawrl_gym.core.errors import AgentFault, TaskError
from clawrl_gym.core.files.files import cache_root
from clawrl_gym.envs.terminal.folders.grading import MissingVerdict
from clawrl_gym.envs.terminal.task import SUBMIT, Task


class Play(Protocol):
    """A fresh machine of a task, as `Trial` is."""

    def oracle(self) -> tuple[str, ...]: ...
    def succeeds(self, command: str) -> bool: ...
    def submit(self) -> str | None: ...
    @property
    def reward(self) -> float: ...
    @property
    def missing(self) -> MissingVerdict | None: ...
    def close(self) -> None: ...


class Begin(Protocol):
    """Starts a fresh machine of a task. Raises SandboxError."""

    def __call__(self, task: Task) -> Play: ...


_known: dict[object, str | None] = {}
"""Problem of a verifier, None where it works, by `Task.key` and what opens its machines."""
_asking: defaultdict[object, threading.Lock] = defaultdict(threading.Lock)
_guard = threading.Lock()


def problem_of(task: Task, begin: Begin, opener: object = None) -> str | None:
    """Why the verifier gives no verdict even without the agent's work; None where it gives one.

    `opener`: what opens the machines where that is not the sandbox's own kind; then nothing is
    recorded. Raises SandboxError where no machine comes up.
    """
    name = (task.key, opener)
    with _guard:
        lock = _asking[name]
    with lock:
        if name not in _known:
            _known[name] = problem = _ask(task, begin)
            if opener is None:
                _record(task, problem)
        return _known[name]


def known_problem(key: str) -> str | None:
    """Problem that an earlier process found in a task's verifier, and when; None for nothing."""
    try:
        row = json.loads(_file(key).read_text(encoding="utf-8"))
        return f"{row['problem']} (found {row['found']})"
    except (OSError, ValueError, KeyError, TypeError):
        return None


def rewarded(task: Task, opener: object = None) -> None:
    """A reward shows that the verifier works, whatever was found before."""
    name = (task.key, opener)
    if _known.get(name, "") is None:
        return
    _known[name] = None
    if opener is None:
        _record(task, None)


def _ask(task: Task, begin: Begin) -> str | None:
    """Play the task's own solution, and where that says nothing do nothing."""
    found = _play_solution(task, begin)
    if found is not None:
        return found.problem
    play = begin(task)
    try:
        try:
            while play.submit() is not None and play.missing is None:
                pass
        except AgentFault as fault:  # there is no agent: the verifier ended its own machine
            return str(fault)
        return None if play.missing is None else play.missing.reason
    finally:
        play.close()


class _Finding:
    """Finding from the task's own solution."""

    def __init__(self, problem: str | None) -> None:
        self.problem = problem


def _play_solution(task: Task, begin: Begin) -> _Finding | None:
    """Play the solution; None where it shows nothing: it is missing, or fails on this machine."""
    if not all(part.solution for part in task.steps or (task,)):
        return None
    play = begin(task)
    try:
        for command in (*play.oracle(), SUBMIT):
            if command != SUBMIT:
                if not play.succeeds(command):
                    return None
                continue
            following = play.submit()
            if play.missing is not None:
                return _Finding(play.missing.reason)
            if following is None:
                break
        if play.reward > 0:
            return _Finding(None)
        return _Finding("it gives 0 to the task's own solution")
    except TaskError:
        return None
    except AgentFault as fault:
        return _Finding(str(fault))
    finally:
        play.close()


def _file(key: str) -> Path:
    return cache_root() / "verifiers" / f"{key}.json"


def _record(task: Task, problem: str | None) -> None:
    """Where nothing can be written, later runs find it out again."""
    path = _file(task.key)
    with suppress(OSError):
        if problem is None:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        found = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        row = {"task": task.id, "problem": problem, "found": found}
        path.write_text(json.dumps(row), encoding="utf-8")
