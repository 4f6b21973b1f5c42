"""Where a task's verifier runs, what travels to it, and whether the agent can have prepared it.

`separate`: on a machine of its own, to which the work folder and what the task names travel.
`shared`: likewise, with all files that the agent left but those of the system.
`in_place`: in the agent's own sandbox after its processes have ended, with the programs that it
installed. What is kept away there, and with `shared`, are kinds that are known: not trusted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.terminal.task import MachineSpec, Task

VerifierMode = Literal["auto", "separate", "shared", "in_place"]


def with_verifier(
    task: Task,
    mode: VerifierMode,
    *,
    machine: MachineSpec,
    own: MachineSpec | None = None,
    asks_to_share: bool = False,
) -> Task:
    """The task with its verifier placed. `machine`: the agent's; `own`: one that the task describes
    for its verifier, which gets the declared artifacts alone."""
    if own is not None:
        return replace(task, verifier=own, takes="artifacts", trusted=True)
    if mode == "in_place":
        return replace(task, verifier=None, trusted=False)
    shares = mode == "shared" or (mode == "auto" and asks_to_share)
    takes: Literal["work", "all"] = "all" if shares else "work"
    return replace(task, verifier=machine, takes=takes, trusted=not shares)


def is_trusted(task: Task) -> bool | None:
    """Whether all its steps are trusted; None where nothing of the agent's sandbox decides."""
    verdicts = [part.trusted for part in task.steps or (task,) if part.trusted is not None]
    return all(verdicts) if verdicts else None


def require_trusted(task: Task) -> None:
    """Raises TaskError for a task whose grades are not trusted."""
    if is_trusted(task) is False:
        raise TaskError(
            f"the verifier of task {task.id!r} shares the agent's files, so its grades are not "
            "trusted, which env.only_trusted asks for: set env.verifier=separate"
        )
