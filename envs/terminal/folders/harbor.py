"""A task in the Harbor layout (Terminal-Bench 2), whole or in several steps.

    task.toml  instruction.md  environment/  tests/test.sh  solution/solve.sh
    task.toml  environment/  steps/NAME/{instruction.md, workdir/, tests/, solution/}

What no sandbox of ours gives is refused by name, never left out. Four things differ: where
task.toml does not say, the verifier has a machine of its own (`verifier.py`); it finds files and
not processes, so a server that the agent left running is gone; it runs as the agent's user unless
its machine is described apart; in the mean over steps those that were never reached count 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from clawrl_gym.core.errors import TaskError
from clawrl_gym.core.types import Split
from clawrl_gym.envs.sandbox.interface import FileData
from clawrl_gym.envs.terminal.folders import dockerfile
from clawrl_gym.envs.terminal.folders.compose import read_compose
from clawrl_gym.envs.terminal.folders.machine_request import (
    NEEDS_DOCKER,
    MachineRequest,
    SandboxFeatures,
)
from clawrl_gym.envs.terminal.folders.task_folder import TaskFolder
from clawrl_gym.envs.terminal.folders.task_toml import (
    Artifacts,
    EnvironmentTable,
    StepTable,
    TaskToml,
    VerifierTable,
    read_task_toml,
)
from clawrl_gym.envs.terminal.folders.verifier import with_verifier
from clawrl_gym.envs.terminal.network import refuse_fetching
from clawrl_gym.envs.terminal.task import Artifact, BuildStep, MachineSpec, Task

REWARD_FILES = ("/logs/verifier/reward.json", "/logs/verifier/reward.txt")
PUBLISHED = Artifact("/logs/artifacts")
"""Artifact that a grader on a machine of its own always gets."""
_COMPOSE_VARIABLES = {"MAIN_IMAGE_NAME": "", "CONTEXT_DIR": ".", "TEST_DIR": "/tests"}


def require_files(folder: Path) -> None:
    """Raises TaskError naming what the folder lacks; steps are looked at when it is loaded."""
    whole = ("task.toml", "instruction.md", "tests/test.sh")
    for name in ("task.toml",) if (folder / "steps").is_dir() else whole:
        if not (folder / name).is_file():
            raise TaskError(f"task folder {str(folder)!r} has no {name!r}")


def load_task(task_id: str, split: Split, folder: Path, features: SandboxFeatures) -> Task:
    """One task folder as a Task. Raises TaskError."""
    require_files(folder)
    task_folder = TaskFolder(folder)
    config = read_task_toml(task_folder)
    if task_folder.has("steps") != bool(config.steps):
        raise TaskError(
            f"task folder {str(folder)!r} has steps in only one of its two places, expected "
            "[[steps]] in task.toml and a folder steps/NAME for each"
        )
    trajectories = [
        f"{part}trajectory.json" for part in ("", *(f"steps/{s.name}/" for s in config.steps))
    ]
    if any(task_folder.has(name) for name in trajectories):
        raise TaskError(
            f"task folder {str(folder)!r} begins with a conversation (trajectory.json): not "
            "supported"
        )
    machine = features.machine(
        task_folder,
        _machine_request(task_folder, "environment", config.environment, config.agent.user),
    )
    task = Task(
        id=task_id,
        family=_family(config),
        split=split,
        instruction="",
        image=machine.image,
        build=machine.build,
        workdir=machine.workdir,
        env=machine.env,
        user=machine.user,
        health=machine.health,
    )
    if not config.steps:
        whole = _part(task, machine, task_folder, config, features, None)
        return replace(whole, repaired=tuple(task_folder.repaired))
    bare = replace(task, build=(), health=None)
    steps = tuple(
        _part(bare, machine, task_folder, config, features, step) for step in config.steps
    )
    strategy = config.multi_step_reward_strategy or "mean"
    return replace(
        task,
        instruction=steps[0].instruction,
        steps=steps,
        step_reward=strategy,
        repaired=tuple(task_folder.repaired),
    )


def _part(
    task: Task,
    machine: MachineSpec,
    task_folder: TaskFolder,
    config: TaskToml,
    features: SandboxFeatures,
    step: StepTable | None,
) -> Task:
    """The task, or one step of it: its instruction, tests and solution."""
    below = "" if step is None else f"steps/{step.name}/"
    verifier = config.verifier if step is None else step.verifier
    grading = _merged(config.verifier, verifier)
    tests = _below("/tests", task_folder, "tests") if task_folder.has("tests") else {}
    if below and task_folder.has(f"{below}tests"):
        tests |= _below("/tests", task_folder, f"{below}tests")
    if "/tests/test.sh" not in tests:
        raise TaskError(f"{task_folder} has no '{below}tests/test.sh'")
    if not features.network:
        script = tests["/tests/test.sh"].data.decode(errors="replace")
        refuse_fetching(script, f"{task_folder.root}/{below}tests/test.sh")
    own_machine = _verifier_machine(task_folder, config, step, features)
    if own_machine is None and grading.user not in (None, task.user, *_roots(task.user)):
        raise TaskError(
            f"{task_folder}: got verifier.user={grading.user!r}, expected the "
            f"agent's own {task.user!r} unless the verifier has its own environment"
        )
    solution = f"{below}solution"
    solved = task_folder.has(f"{solution}/solve.sh")
    artifacts = [*config.artifacts, *([] if step is None else step.artifacts)]
    part = replace(
        task,
        id=task.id if step is None else f"{task.id}#{step.name}",
        instruction=strip_canary(task_folder.text(f"{below}instruction.md")),
        build=task.build if step is None else _step_setup(task_folder, below, step, task),
        health=task.health if step is None or step.healthcheck is None
        else step.healthcheck.health(),
        grader=dockerfile.in_folder("bash /tests/test.sh", ".", grading.env),
        grader_files=tests,
        grader_timeout_s=grading.timeout_sec,
        reward_files=REWARD_FILES,
        solution=_oracle(config.solution.env) if solved else (),
        solution_files=_below("/solution", task_folder, solution) if solved else {},
        collect=tuple(
            BuildStep(command=hook.command, timeout_s=hook.timeout_sec)
            for hook in grading.collect
        ),
        artifacts=_artifacts(artifacts),
        min_reward=None if step is None else step.least,
    )  # fmt: skip
    return with_verifier(
        part,
        features.verifier,
        machine=machine,
        own=own_machine,
        asks_to_share=_mode(config, step) == "shared",
    )


def _mode(config: TaskToml, step: StepTable | None) -> str | None:
    """The verifier's environment by task.toml; a step's value takes precedence."""
    said = [None if step is None else step.verifier.environment_mode]
    return next(filter(None, [*said, config.verifier.environment_mode]), None)


def _merged(task: VerifierTable, step: VerifierTable) -> VerifierTable:
    """A step's verifier: what it does not say is the task's."""
    if step is task:
        return task
    overrides = {name: getattr(step, name) for name in step.model_fields_set}
    overrides["env"] = task.env | step.env
    return task.model_copy(update=overrides)


def _roots(user: str | None) -> tuple[str, ...]:
    """Names for who the verifier is when the agent has no user of its own."""
    return ("root", "0") if user in (None, "root", "0") else ()


def _step_setup(
    task_folder: TaskFolder, below: str, step: StepTable, task: Task
) -> tuple[BuildStep, ...]:
    """The step's files go into the working directory, then its setup.sh runs there."""
    if not task_folder.has(f"{below}workdir"):
        return ()
    files = task_folder.tree(f"{below}workdir")
    command = ""
    if "setup.sh" in files:
        command = "bash setup.sh"
        files["setup.sh"] = task_folder.script(f"{below}workdir/setup.sh")
    return (BuildStep(files, command),)


def _verifier_machine(
    task_folder: TaskFolder, config: TaskToml, step: StepTable | None, features: SandboxFeatures
) -> MachineSpec | None:
    """Where the tests run when that is not the agent's machine; a step's word goes first."""
    tables = [config.verifier] if step is None else [step.verifier, config.verifier]
    modes = [table.is_separate for table in tables if table.is_separate is not None]
    if not (modes and modes[0]):
        return None
    user = next((table.user for table in tables if table.user is not None), None)
    folders = ["tests"] if step is None else [f"steps/{step.name}/tests", "tests"]
    for table, folder in zip(tables, folders, strict=True):
        environment = table.environment
        if environment is not None and environment.docker_image and features.images:
            return features.machine(
                task_folder, _machine_request(task_folder, folder, environment, user)
            )
        if task_folder.has(f"{folder}/Dockerfile") or task_folder.has(
            f"{folder}/docker-compose.yaml"
        ):
            used = environment or EnvironmentTable()
            return features.machine(task_folder, _machine_request(task_folder, folder, used, user))
        if environment is not None and environment.docker_image:
            raise TaskError(
                f"{task_folder}: the verifier runs in the image "
                f"{environment.docker_image!r}: {NEEDS_DOCKER}"
            )
    verifier_environment = next((table.environment for table in tables if table.environment), None)
    used = config.environment if verifier_environment is None else verifier_environment
    return features.machine(task_folder, _machine_request(task_folder, "environment", used, user))


def _machine_request(
    task_folder: TaskFolder, folder: str, environment: EnvironmentTable, user: str | None
) -> MachineRequest:
    """Machine request of a folder and its table together; the table takes precedence."""
    request = MachineRequest(folder)
    for name in ("docker-compose.yaml", "docker-compose.yml"):
        if task_folder.has(f"{folder}/{name}"):
            text = task_folder.text(f"{folder}/{name}")
            where = f"{task_folder.root}/{folder}/{name}"
            request = read_compose(text, where, folder, _COMPOSE_VARIABLES, "main")
            break
    health = environment.healthcheck
    return replace(
        request,
        image=environment.docker_image or request.image,
        workdir=environment.workdir or request.workdir,
        env={**request.env, **environment.env},
        user=user or request.user,
        health=request.health if health is None else health.health(),
        build_timeout_s=environment.build_timeout_sec,
        needs_dockerfile=folder == "environment",
    )


def _artifacts(declared: Artifacts) -> tuple[Artifact, ...]:
    artifacts = {table.source.rstrip("/"): table.artifact() for table in declared}
    return tuple({PUBLISHED.source: PUBLISHED, **artifacts}.values())


def _family(config: TaskToml) -> str:
    category = config.metadata.get("category")
    return category if isinstance(category, str) and category else "user"


def _oracle(env: Mapping[str, str]) -> tuple[str, ...]:
    command = "bash /solution/solve.sh"
    return (dockerfile.in_folder(command, ".", env) if env else command,)


def strip_canary(text: str) -> str:
    """The instruction without its leading canary lines."""
    lines = text.splitlines()
    while lines and (not lines[0].strip() or _CANARY.match(lines[0].strip())):
        lines.pop(0)
    return "\n".join(lines).strip()


_CANARY = re.compile(r"(<!--.*canary.*-->|#.*canary.*)$", re.IGNORECASE)


def _below(target: str, task_folder: TaskFolder, relative: str) -> dict[str, FileData]:
    return {f"{target}/{path}": file for path, file in task_folder.scripts(relative).items()}
