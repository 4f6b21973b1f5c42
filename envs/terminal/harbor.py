"""A user's folder of tasks in the Harbor layout.

    NAME/task.toml  instruction.md  environment/  tests/test.sh  solution/solve.sh

What a sandbox without network and images cannot carry out is refused by name, never left out.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clawrl_gym.envs.tasks import BuildStep, Task
from clawrl_gym.envs.terminal import dockerfile
from clawrl_gym.envs.terminal.build import build_steps
from clawrl_gym.envs.terminal.context import Context
from clawrl_gym.errors import TaskError
from clawrl_gym.types import Split

HOST_BASE = "host"
"""`FROM host`: the sandbox's default root, this machine's own /usr."""

REWARD_FILES = ("/logs/verifier/reward.json", "/logs/verifier/reward.txt")
SPLITS: tuple[Split, ...] = ("train", "heldout")
HELDOUT_SHARE = 5
"""One task in about this many is held out when the folder does not say."""

NEEDS_DOCKER = "this task needs the Docker sandbox, which does not exist yet"


@dataclass(frozen=True, slots=True)
class HarborTasks:
    """The tasks of one folder."""

    folders: Mapping[str, Path]
    """By task id."""
    splits: Mapping[str, Split]
    has_rootfs: bool
    """A root file system is configured: it stands for whatever base a task names."""

    @classmethod
    def open(cls, root: Path, has_rootfs: bool) -> HarborTasks:
        """Find the tasks and check that each has its files. Raises TaskError."""
        named = [split for split in SPLITS if (root / split).is_dir()]
        if (root / "task.toml").exists():
            folders = {root.resolve().name: root}
            splits = _split_by_name(folders)
        elif named:
            folders, splits = {}, {}
            for split in named:
                own = {f"{split}/{path.name}": path for path in _children(root / split)}
                folders |= own
                splits |= dict.fromkeys(own, split)
        else:
            folders = {path.name: path for path in _children(root)}
            splits = _split_by_name(folders)
        if not folders:
            raise TaskError(f"got the folder {str(root)!r} without tasks, expected NAME/task.toml")
        for folder in folders.values():
            _require_files(folder)
        return cls(folders, splits, has_rootfs)

    def ids(self, split: Split) -> list[str]:
        return sorted(task_id for task_id, own in self.splits.items() if own == split)

    def load(self, task_id: str) -> Task:
        """Read a task. Raises TaskError for an unknown id or a task that cannot be carried out."""
        if task_id not in self.folders:
            raise TaskError(f"got task {task_id!r}, expected one of {sorted(self.folders)[:20]}")
        return load_task(task_id, self.splits[task_id], self.folders[task_id], self.has_rootfs)


def load_task(task_id: str, split: Split, folder: Path, has_rootfs: bool) -> Task:
    """One task folder as a Task. Raises TaskError."""
    _require_files(folder)
    context = Context(folder)
    config = _config(context)
    _refuse_unsupported(config, context)
    environment, verifier = _table(config, "environment"), _table(config, "verifier")
    image = _dockerfile(context, environment, has_rootfs)
    workdir = str(environment.get("workdir") or image.workdir)
    verifier_env = _variables(verifier, "verifier", folder)
    oracle_env = _variables(_table(config, "solution"), "solution", folder)
    steps = build_steps(image, context, _seconds(environment, "build_timeout_sec", 600.0))
    folders = BuildStep(command="mkdir -p /logs/agent /logs/verifier /logs/artifacts")
    solved = context.has("solution/solve.sh")
    category = _table(config, "metadata").get("category")
    return Task(
        id=task_id,
        family=category if isinstance(category, str) and category else "user",
        split=split,
        instruction=strip_canary(context.text("instruction.md")),
        build=(*steps, folders),
        grader=dockerfile.in_folder("bash /tests/test.sh", ".", verifier_env),
        grader_files=_below("/tests", context, "tests"),
        reward_files=REWARD_FILES,
        solution=_oracle(oracle_env) if solved else (),
        solution_files=_below("/solution", context, "solution") if solved else {},
        workdir=workdir,
        env=image.env | _variables(environment, "environment", folder),
        grader_timeout_s=_seconds(verifier, "timeout_sec", 600.0),
    )


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


def _children(root: Path) -> list[Path]:
    return sorted(p for p in root.iterdir() if p.is_dir() and p.name[:1] not in (".", "_"))


def _split_by_name(folders: Mapping[str, Path]) -> dict[str, Split]:
    """About one in five held out, by a hash of the name; one of each at least from two tasks on."""
    order = sorted(folders, key=lambda name: hashlib.sha256(name.encode()).digest())
    heldout = {n for n in order if hashlib.sha256(n.encode()).digest()[0] % HELDOUT_SHARE == 0}
    if len(order) > 1:
        heldout = (heldout or {order[0]}) - ({order[-1]} if len(heldout) == len(order) else set())
    else:
        heldout = set()
    return {name: "heldout" if name in heldout else "train" for name in order}


def _require_files(folder: Path) -> None:
    for name in ("task.toml", "instruction.md", "tests/test.sh"):
        if not (folder / name).is_file():
            raise TaskError(f"task folder {str(folder)!r} has no {name!r}")


def _config(context: Context) -> dict[str, Any]:
    try:
        return tomllib.loads(context.text("task.toml"))
    except (ValueError, RecursionError) as error:
        raise TaskError(f"task folder {str(context.root)!r}: 'task.toml': {error}") from error


def _table(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    table = config.get(name, {})
    if not isinstance(table, dict):
        raise TaskError(f"got {name} = {table!r} in task.toml, expected a table [{name}]")
    return table


def _refuse_unsupported(config: Mapping[str, Any], context: Context) -> None:
    """Say which part of the task a sandbox cannot give, before anything is started."""
    environment, verifier = _table(config, "environment"), _table(config, "verifier")
    user = {_table(config, "agent").get("user"), verifier.get("user")} - {None, "root", 0}
    compose = [
        name for name in ("yaml", "yml") if context.has(f"environment/docker-compose.{name}")
    ]
    reasons = {
        "several steps": "steps" in config or context.has("steps"),
        f"environment.os={environment.get('os')!r}": environment.get("os", "linux") != "linux",
        "gpus": bool(environment.get("gpus")),
        "tpu": bool(environment.get("tpu")),
        "mcp_servers": bool(environment.get("mcp_servers")),
        "healthcheck": bool(environment.get("healthcheck")),
        "an allow-list of hosts": bool(environment.get("allowed_hosts")),
        f"a user of its own {sorted(map(str, user))}": bool(user),
        "docker-compose": bool(compose),
        "a verifier with its own environment": verifier.get("environment_mode") == "separate"
        or "environment" in verifier
        or context.has("tests/Dockerfile"),
        "verifier.collect": bool(verifier.get("collect")),
    }
    asked = [reason for reason, is_asked in reasons.items() if is_asked]
    if asked:
        raise TaskError(
            f"task folder {str(context.root)!r} asks for {', '.join(asked)}: not supported"
        )


def _dockerfile(
    context: Context, environment: Mapping[str, Any], has_rootfs: bool
) -> dockerfile.Dockerfile:
    """What the environment is made of; without a Dockerfile the sandbox as it is."""
    name = "environment/Dockerfile"
    if context.has(name):
        image = dockerfile.parse(context.text(name), f"{context.root}/{name}")
    elif context.has("environment") and any(context.path("environment").iterdir()):
        raise TaskError(f"task folder {str(context.root)!r} has 'environment' but no {name!r}")
    else:
        image = dockerfile.Dockerfile(base=HOST_BASE, workdir="/root")
    bases = {image.base, str(environment.get("docker_image") or image.base)} - {HOST_BASE}
    if bases and not has_rootfs:
        raise TaskError(
            f"task folder {str(context.root)!r} is built on {', '.join(sorted(bases))}: "
            f"{NEEDS_DOCKER}; set env.sandbox.rootfs to a folder with that root file system, or "
            f"write FROM {HOST_BASE} if this machine's own /usr will do"
        )
    return image


def _variables(table: Mapping[str, Any], name: str, folder: Path) -> dict[str, str]:
    """The table's `env`. Variables of this machine are never read, only their defaults."""
    values = table.get("env", {})
    if not isinstance(values, dict):
        raise TaskError(
            f"task folder {str(folder)!r}: got {name}.env = {values!r}, expected a table"
        )
    result = {}
    for key, value in values.items():
        plain = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(value))
        if "${" in plain or not re.fullmatch(r"[A-Za-z_]\w*", key):
            raise TaskError(
                f"task folder {str(folder)!r}: got {name}.env {key}={value!r}, expected a plain "
                "value or ${NAME:-default}: variables of this machine are not handed in"
            )
        result[key] = plain
    return result


def _seconds(table: Mapping[str, Any], name: str, default: float) -> float:
    value = table.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6:
        raise TaskError(f"got {name} = {value!r} in task.toml, expected seconds")
    return float(value)


def _below(target: str, context: Context, relative: str) -> dict[str, Any]:
    return {f"{target}/{path}": file for path, file in context.tree(relative).items()}
