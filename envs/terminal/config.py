"""The configuration of `ClawRL/Terminal-v0`, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

from pydantic import Field

from clawrl_gym.config.envs import SandboxConfig
from clawrl_gym.envs.kind import RegisteredEnvConfig
from clawrl_gym.envs.terminal import GYM_CLASS, GYM_ID
from clawrl_gym.envs.terminal.folders.verifier import VerifierMode


class TerminalEnvConfig(RegisteredEnvConfig):
    """`ClawRL/Terminal-v0`: a shell in a sandbox."""

    gym_class: ClassVar[str] = GYM_CLASS
    usual_agent: ClassVar[str] = "terminal"
    starts_here: ClassVar[bool] = True
    marks_failures: ClassVar[bool] = True
    hosts_agents: ClassVar[bool] = True
    task_keys: ClassVar[tuple[str, ...]] = ("tasks",)
    shipped_tasks: ClassVar[frozenset[str]] = frozenset({"generated", "composed", "plain"})

    type: Literal["terminal"] = "terminal"
    id: str = GYM_ID
    tasks: str = "generated"
    """`generated`: the shipped seeded families of single commands; `plain`: those that chain up to
    three skills, said plainly; `composed`: those that chain up to eight, with things to find out;
    or a folder of tasks in the Harbor or Terminal-Bench layout."""
    families: list[str] | None = None
    """Only these generated families; None takes all."""
    spare_replies: int | None = Field(None, ge=1)
    """`generated` only: replies beyond the commands of a task's solution, for looks and for
    `submit`, which then ends the task, and the request states how many there are. None: a task ends
    after as many commands as its solution has, and its request does not say so; the shipped policy
    was made for these. Set it, say to 3, for any other policy."""
    example: bool = False
    """The system message shows another training task of the same family with a reply that solves
    it: for a policy that cannot guess the form of a reply."""
    train_on_verified: bool = False
    """Tasks of SWE-bench Verified are held out, for it is a benchmark: training on them has to be
    asked for."""
    max_turns: int = Field(8, ge=1)
    """Commands after which an episode is truncated (a task may end earlier by itself)."""
    command_timeout_s: float = Field(10.0, gt=0)
    grader_timeout_s: float = Field(60.0, gt=0)
    verifier: VerifierMode = "auto"
    """Where the verifier of a folder's tasks runs: `separate`, in a sandbox of its own to which the
    work folder and what the task names travel as data; `shared`, likewise, with all that the agent
    left beside the system; `in_place`, in the agent's own, with what it installed. `auto`:
    separate, but shared where task.toml asks for it. Only separate grades are trusted."""
    only_trusted: bool = False
    """Leave out tasks whose grades are not trusted."""
    sandbox: SandboxConfig = SandboxConfig()

    def check_sandbox(self) -> None:
        self.env_class().check_sandbox(self)

    def prepare(self, say: Callable[[str], None]) -> None:
        self.env_class().prepare(self, say)

    def long_preparation(self) -> str | None:
        missing: str | None = self.env_class().long_preparation(self)
        return missing
