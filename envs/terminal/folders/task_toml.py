"""A Harbor task's task.toml, checked; keys that Harbor itself ignores are ignored."""

from __future__ import annotations

import re
import tomllib
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.terminal.folders.task_folder import TaskFolder
from clawrl_gym.envs.terminal.task import Artifact, Health


def _no_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("expected a number")
    return value


Seconds = Annotated[float, Field(gt=0, lt=1e6), BeforeValidator(_no_bool)]
_PORTABLE = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


def _variables(values: object) -> object:
    """Variables of this machine are never read, only their defaults."""
    if not isinstance(values, dict):
        return values
    result = {}
    for key, value in values.items():
        plain = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(value))
        if "${" in plain or "\0" in plain or not re.fullmatch(r"[A-Za-z_]\w*", key):
            raise ValueError(
                f"got {key}={value!r}, expected a plain value or ${{NAME:-default}}: variables of "
                "this machine are not handed in"
            )
        result[key] = plain
    return result


def _user(value: object) -> object:
    if value is None or isinstance(value, bool):
        return value
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", str(value)):
        raise ValueError(f"got the user {value!r}, expected a name or a number")
    return str(value)


Variables = Annotated[dict[str, str], BeforeValidator(_variables)]
User = Annotated[str | None, BeforeValidator(_user)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=False)


class HealthTable(_Table):
    command: str = Field(min_length=1)
    interval_sec: Seconds = 5.0
    timeout_sec: Seconds = 30.0
    start_period_sec: float = Field(0.0, ge=0, lt=1e6)
    start_interval_sec: Seconds = 5.0
    retries: int = Field(3, ge=1, le=1000)

    def health(self) -> Health:
        return Health(
            self.command, self.interval_sec, self.timeout_sec, self.start_period_sec,
            self.start_interval_sec, self.retries,
        )  # fmt: skip


class EnvironmentTable(_Table):
    build_timeout_sec: Seconds = 600.0
    docker_image: str | None = None
    os: str = "linux"
    gpus: int | None = None
    gpu_types: list[str] | None = None
    tpu: dict[str, object] | None = None
    mcp_servers: list[object] = []
    skills_dir: str | None = None
    env: Variables = {}
    healthcheck: HealthTable | None = None
    workdir: str | None = None
    network_mode: str | None = None
    allowed_hosts: list[str] | None = None

    def refused(self) -> dict[str, bool]:
        """Features that our sandboxes lack, by name, and whether each is asked for."""
        return {
            f"environment.os={self.os!r}": self.os != "linux",
            "gpus": bool(self.gpus or self.gpu_types),
            "tpu": bool(self.tpu),
            "mcp_servers": bool(self.mcp_servers),
            "an allow-list of hosts": bool(self.allowed_hosts) or self.network_mode == "allowlist",
        }


class AgentTable(_Table):
    user: User = None
    network_mode: str | None = None
    allowed_hosts: list[str] | None = None


class CollectTable(_Table):
    command: str = Field(min_length=1)
    service: str = "main"
    timeout_sec: Seconds = 60.0
    user: User = None


class VerifierTable(_Table):
    timeout_sec: Seconds = 600.0
    env: Variables = {}
    user: User = None
    environment_mode: Literal["shared", "separate"] | None = None
    environment: EnvironmentTable | None = None
    collect: list[CollectTable] = []
    network_mode: str | None = None
    allowed_hosts: list[str] | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.environment_mode == "shared" and self.environment is not None:
            raise ValueError("got environment_mode='shared' together with an environment")
        return self

    @property
    def is_separate(self) -> bool | None:
        """None: not said at this level."""
        if self.environment_mode is not None:
            return self.environment_mode == "separate"
        return True if self.environment is not None else None


class ArtifactTable(_Table):
    source: str = Field(pattern="^/")
    exclude: list[str] = []
    service: str | None = None

    @model_validator(mode="after")
    def _inside(self) -> Self:
        if ".." in self.source.split("/") or self.source.strip("/") == "" or "\0" in self.source:
            raise ValueError(f"got the artifact {self.source!r}, expected an absolute path below /")
        return self

    def artifact(self) -> Artifact:
        return Artifact(self.source, tuple(self.exclude))


def _artifact(value: object) -> object:
    return {"source": value} if isinstance(value, str) else value


Artifacts = list[Annotated[ArtifactTable, BeforeValidator(_artifact)]]


class StepTable(_Table):
    name: str = Field(pattern=_PORTABLE, max_length=100)
    agent: AgentTable = AgentTable()
    verifier: VerifierTable = VerifierTable()
    min_reward: float | dict[str, float] | None = None
    healthcheck: HealthTable | None = None
    artifacts: Artifacts = []

    @property
    def least(self) -> float | None:
        """One number: gates on other keys than `reward` have no number here."""
        return (
            self.min_reward.get("reward") if isinstance(self.min_reward, dict) else self.min_reward
        )


class SolutionTable(_Table):
    env: Variables = {}


class TaskToml(_Table):
    metadata: dict[str, object] = {}
    agent: AgentTable = AgentTable()
    verifier: VerifierTable = VerifierTable()
    environment: EnvironmentTable = EnvironmentTable()
    solution: SolutionTable = SolutionTable()
    steps: list[StepTable] = []
    artifacts: Artifacts = []
    multi_step_reward_strategy: Literal["mean", "final"] | None = None

    @model_validator(mode="after")
    def _different_names(self) -> Self:
        names = [step.name for step in self.steps]
        if len(set(names)) != len(names):
            raise ValueError(f"got steps of the same name: {names}")
        return self


def read_task_toml(task_folder: TaskFolder) -> TaskToml:
    """Raises TaskError naming the folder and the key, also for what no sandbox of ours gives."""
    try:
        document = tomllib.loads(task_folder.text("task.toml"))
    except (ValueError, RecursionError, OverflowError) as error:
        raise TaskError(f"{task_folder}: 'task.toml': {error}") from error
    config = task_folder.validated("task.toml", TaskToml, document)
    unsupported = sorted(name for name, is_asked in _refused(config).items() if is_asked)
    if unsupported:
        raise TaskError(f"{task_folder} asks for {', '.join(unsupported)}: not supported")
    return config


def _refused(config: TaskToml) -> dict[str, bool]:
    verifiers = [config.verifier, *(step.verifier for step in config.steps)]
    agents = [config.agent, *(step.agent for step in config.steps)]
    environments = [config.environment, *(v.environment for v in verifiers if v.environment)]
    gates = [set(step.min_reward) for step in config.steps if isinstance(step.min_reward, dict)]
    artifacts = [*config.artifacts, *(a for step in config.steps for a in step.artifacts)]
    services = {hook.service for verifier in verifiers for hook in verifier.collect}
    services |= {artifact.service or "main" for artifact in artifacts}
    hook_users = {hook.user for verifier in verifiers for hook in verifier.collect}
    users = {agent.user for agent in agents[1:]} | hook_users
    users -= {None, config.agent.user}
    hosts = [p.allowed_hosts for p in verifiers] + [agent.allowed_hosts for agent in agents]
    modes = [p.network_mode for p in verifiers] + [agent.network_mode for agent in agents]
    refused = {
        "several services": bool(services - {"main"}),
        "an allow-list of hosts": any(hosts) or "allowlist" in modes,
        "min_reward of other keys than 'reward'": any(gate - {"reward"} for gate in gates),
        f"steps or collect by other users {sorted(map(str, users))}": bool(users),
    }
    for environment in environments:
        for name, is_asked in environment.refused().items():
            refused[name] = refused.get(name, False) or is_asked
    return refused
