"""A task in the layout of Terminal-Bench 1.

    task.yaml  run-tests.sh  tests/  solution.sh or solution.yaml  Dockerfile or docker-compose.yaml

Solved is what pytest's summary says, with three differences that close holes: a skipped test has
not passed, every test function that is written in tests/ must have run, and the script must end
with exit code 0. The agent's shell is ours, not tmux; interactive solutions are typed line by line.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.types import Split
from clawrl_gym.envs.sandbox.interface import FileData
from clawrl_gym.envs.terminal.folders.compose import read_compose
from clawrl_gym.envs.terminal.folders.harbor import strip_canary
from clawrl_gym.envs.terminal.folders.machine_request import MachineRequest, SandboxFeatures
from clawrl_gym.envs.terminal.folders.task_folder import TaskFolder
from clawrl_gym.envs.terminal.folders.task_toml import Seconds
from clawrl_gym.envs.terminal.folders.verifier import with_verifier
from clawrl_gym.envs.terminal.network import refuse_fetching
from clawrl_gym.envs.terminal.pytest_summary import collected
from clawrl_gym.envs.terminal.task import Task

COMPOSE_VARIABLES = {
    "T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME": "",
    "T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME": "client",
    "T_BENCH_TASK_DOCKER_NAME_PREFIX": "tb",
    "T_BENCH_TEST_DIR": "/tests",
    "T_BENCH_CONTAINER_LOGS_PATH": "/logs",
    "T_BENCH_CONTAINER_AGENT_LOGS_PATH": "/agent-logs",
}


class TaskYaml(BaseModel):
    """The fields that mean something here; the others describe the task."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    instruction: str = Field(min_length=1)
    category: str = "software_engineering"
    parser_name: Literal["pytest"] = "pytest"
    max_test_timeout_sec: Seconds = 60.0
    run_tests_in_same_shell: bool = False
    """The reference's shell is the agent's own; ours is always a fresh one."""


class TypedCommand(BaseModel):
    """One entry of solution.yaml."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    command: str
    append_enter: bool = True


def require_files(folder: Path) -> None:
    """Raises TaskError naming what the folder lacks."""
    for name in ("task.yaml", "run-tests.sh"):
        if not (folder / name).is_file():
            raise TaskError(f"task folder {str(folder)!r} has no {name!r}")


def load_task(task_id: str, split: Split, folder: Path, features: SandboxFeatures) -> Task:
    """One task folder as a Task. Raises TaskError."""
    require_files(folder)
    task_folder = TaskFolder(folder)
    config = _config(task_folder)
    machine = features.machine(task_folder, _machine_request(task_folder))
    if not features.network:
        refuse_fetching(task_folder.text("run-tests.sh"), f"{folder}/run-tests.sh")
    tests = _tests(task_folder)
    solution, solution_files = _solution(task_folder)
    task = Task(
        id=task_id,
        family=config.category or "user",
        split=split,
        instruction=strip_canary(config.instruction),
        image=machine.image,
        build=machine.build,
        workdir=machine.workdir,
        env=machine.env,
        user=machine.user,
        health=machine.health,
        grader="export TEST_DIR=/tests; bash /tests/run-tests.sh",
        grader_files=tests,
        grader_timeout_s=config.max_test_timeout_sec,
        expected_tests=_expected(tests),
        solution=solution,
        solution_files=solution_files,
    )
    task = replace(task, repaired=tuple(task_folder.repaired))
    return with_verifier(task, features.verifier, machine=machine)


def _config(task_folder: TaskFolder) -> TaskYaml:
    return task_folder.validated("task.yaml", TaskYaml, _yaml(task_folder, "task.yaml"))


def _yaml(task_folder: TaskFolder, name: str) -> object:
    try:
        return yaml.safe_load(task_folder.text(name))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise TaskError(f"{task_folder}: {name!r}: {error}") from error


def _machine_request(task_folder: TaskFolder) -> MachineRequest:
    for name in ("docker-compose.yaml", "docker-compose.yml"):
        if task_folder.has(name):
            where = f"{task_folder.root}/{name}"
            request = read_compose(task_folder.text(name), where, ".", COMPOSE_VARIABLES, "client")
            return replace(request, needs_dockerfile=request.image is None)
    return MachineRequest(".")


def _tests(task_folder: TaskFolder) -> dict[str, FileData]:
    files = task_folder.scripts("tests") if task_folder.has("tests") else {}
    tests = {f"/tests/{path}": file for path, file in files.items()}
    return {**tests, "/tests/run-tests.sh": task_folder.script("run-tests.sh")}


def _expected(tests: dict[str, FileData]) -> tuple[str, ...]:
    """The test functions that are written in the files that pytest collects by itself."""
    names: dict[str, None] = {}
    for path, file in tests.items():
        base = path.rpartition("/")[2]
        if base.endswith(".py") and (base.startswith("test_") or base.endswith("_test.py")):
            names |= dict.fromkeys(collected(file.data.decode(errors="replace")))
    return tuple(names)


def _solution(task_folder: TaskFolder) -> tuple[tuple[str, ...], dict[str, FileData]]:
    if task_folder.has("solution.sh"):
        return ("bash /oracle/solution.sh",), {
            "/oracle/solution.sh": task_folder.script("solution.sh")
        }
    if not task_folder.has("solution.yaml"):
        return (), {}
    document = _yaml(task_folder, "solution.yaml")
    try:
        if not isinstance(document, Iterable | None):
            raise TypeError(f"got {document!r:.100}")
        typed = [TypedCommand.model_validate(entry) for entry in document or ()]
    except (ValidationError, TypeError) as error:
        raise TaskError(
            f"{task_folder}: 'solution.yaml': expected a list of entries with a command: {error}"
        ) from error
    if any(not entry.append_enter for entry in typed):
        raise TaskError(
            f"{task_folder}: 'solution.yaml' types keys into a running "
            "program (append_enter: false): not supported, write a solution.sh"
        )
    return tuple(entry.command for entry in typed), {}
