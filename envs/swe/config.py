"""The configuration of `ClawRL/SWE-v0`, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal, Self

from pydantic import Field

from clawrl_gym.config.envs import SandboxConfig
from clawrl_gym.envs.kind import RegisteredEnvConfig
from clawrl_gym.envs.swe import GYM_CLASS, GYM_ID


class SweEnvConfig(RegisteredEnvConfig):
    """`ClawRL/SWE-v0`: a repository with an issue, in the fields of SWE-bench."""

    gym_class: ClassVar[str] = GYM_CLASS
    usual_agent: ClassVar[str] = "swe"
    starts_here: ClassVar[bool] = True
    marks_failures: ClassVar[bool] = True
    hosts_agents: ClassVar[bool] = True
    task_keys: ClassVar[tuple[str, ...]] = ("instances", "heldout")
    shipped_tasks: ClassVar[frozenset[str]] = frozenset({"corpus", "easy", "composed"})

    type: Literal["swe"] = "swe"
    id: str = GYM_ID
    instances: str = "corpus"
    """`corpus`: the shipped made-up repositories, `easy`: those of them that the tiny policy can
    learn, `composed`: several things to fix in one of them; else a JSON, JSONL or Parquet file, a
    folder of such files or of a task repository, or the id of a data set on the hub."""
    families: list[str] | None = None
    """Only these repositories of the corpus, or families of composed ones; None takes all whose
    tests can run."""
    heldout: str | None = None
    """Where held-out instances come from, like `instances`; None holds out about one in five."""
    hub_split: str = "test"
    """Split of a data set on the hub."""
    train_on_verified: bool = False
    """SWE-bench Verified is a benchmark: training on it has to be asked for."""
    log_parser: str | None = None
    """swebench's parser for instances that name none, such as parse_log_pytest."""
    test_command: str | None = None
    """Command that runs tests for instances without a script of their own; {files} stands for the
    test files that the instance's test patch touches."""
    max_turns: int = Field(30, ge=1)
    """Commands after which an episode is truncated; what was changed is graded all the same."""
    command_timeout_s: float = Field(60.0, gt=0)
    grader_timeout_s: float = Field(900.0, gt=0)
    sandbox: SandboxConfig = SandboxConfig(
        memory_mb=2048, disk_mb=2048, pids=256, output_bytes=65_536
    )

    def settled(self, say: Callable[[str], None]) -> Self:
        settled: Self = self.env_class().settled(self, say)
        return settled

    def check_sandbox(self) -> None:
        self.env_class().check_sandbox(self)

    def prepare(self, say: Callable[[str], None]) -> None:
        self.env_class().prepare(self, say)

    def long_preparation(self) -> str | None:
        missing: str | None = self.env_class().long_preparation(self)
        return missing
