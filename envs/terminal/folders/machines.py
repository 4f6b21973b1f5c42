"""Opens the machines of tasks: an image found or built, a sandbox of it, its own steps, its health.

Containers do not start with the image's entrypoint, as the shell is ours; it is run once in the
background before the first command, for images whose services it starts.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from clawrl_gym.core.errors import AgentFault, EnvError, SandboxError, TaskError, boundary
from clawrl_gym.envs.sandbox.interface import FileData, Sandbox, SandboxSpec
from clawrl_gym.envs.sandbox.sandboxes import Sandboxes
from clawrl_gym.envs.terminal.task import Health, Image, MachineSpec

_LOG_FOLDERS = ("/logs/agent", "/logs/verifier", "/logs/artifacts")
_STEP_S = 60.0
"""Seconds for quick steps, such as changing to a folder."""


@dataclass(frozen=True, slots=True)
class ResolvedImage:
    """An image that is there."""

    name: str
    workdir: str
    entrypoint: tuple[str, ...]


class Machines:
    """Opens the machines of one environment; looks each image up once."""

    def __init__(self, sandboxes: Sandboxes) -> None:
        self._sandboxes = sandboxes
        self._images: dict[Image, ResolvedImage] = {}
        self.agent_mounts: Mapping[str, str] = {}
        """Folders of an agent that works inside, shown by every machine."""

    @property
    def opener(self) -> object:
        """The opener of machines; None where that is the sandbox's own kind."""
        return self._sandboxes.opener

    @property
    def artifact_bytes(self) -> int:
        """Room on a grader's machine in bytes, packed and unpacked."""
        return (self._sandboxes.limits.disk_mb << 20) // 3

    def open(self, machine: MachineSpec, label: str, *, now: bool = False) -> tuple[Sandbox, str]:
        """A fresh sandbox, set up, and its working directory. `label` names it in errors.

        `now`: started now, and not taken from those that stand ready.
        Raises SandboxError, or TaskError for what the task itself got wrong.
        """
        if machine.image is not None and not self._sandboxes.capabilities.images:
            raise TaskError(f"{label} needs the image {machine.image}: sandbox=docker")
        image = None if machine.image is None else self._find(machine.image)
        workdir = machine.workdir or (image.workdir if image else "/root")
        sandbox = self._sandboxes.open(
            SandboxSpec(
                workdir="/" if machine.build else workdir,
                env=machine.env,
                image=image.name if image else None,
                user=machine.user,
                agent_mounts=self.agent_mounts,
            ),
            now=now,
        )
        try:
            if image and image.entrypoint:
                sandbox.exec(_background(image.entrypoint), _STEP_S)
            _carry_out(sandbox, machine, workdir, label)
            if machine.health is not None:
                await_health(sandbox, machine.health, label)
        except BaseException:
            sandbox.close()
            raise
        return sandbox, workdir

    def works(self, machine: MachineSpec) -> bool:
        """Whether a fresh one comes up and answers now."""
        try:
            sandbox, _ = self.open(machine, "a machine to compare with", now=True)
            try:
                return sandbox.exec(":", _STEP_S).exit_code == 0
            finally:
                sandbox.close()
        except EnvError:
            return False

    def _find(self, image: Image) -> ResolvedImage:
        resolved = self._images.get(image)
        if resolved is None:
            resolved = self._images[image] = resolve_image(image)
        return resolved


@contextmanager
def agents_doing(machines: Machines | None, machine: MachineSpec, what: str) -> Iterator[None]:
    """Tell the agent's doing from infrastructure's where a sandbox that it was in fails.

    A fresh one is the proof: when that works, the agent has broken its own. Raises AgentFault then,
    else the SandboxError as it is.
    """
    try:
        yield
    except SandboxError as error:
        if machines is None or not machines.works(machine):
            raise
        raise AgentFault(f"{what}: {error}; a fresh sandbox works") from error


def resolve_image(image: Image) -> ResolvedImage:
    """Have an image, built or pulled. Raises TaskError for one that does not build."""
    from pathlib import Path

    from clawrl_gym.envs.sandbox.docker.engine import engine
    from clawrl_gym.envs.sandbox.docker.images import build_image, ensure_image

    name = image.name
    if name:
        ensure_image(name)
    else:
        name = build_image(
            Path(image.context),
            image.dockerfile,
            build_args=dict(image.build_args),
            timeout_s=image.build_timeout_s,
        )
    with boundary(SandboxError, f"looking at the image {name!r}"):
        config: Mapping[str, object] = engine().images.get(name).attrs.get("Config") or {}
    entrypoint = config.get("Entrypoint")
    words = tuple(map(str, entrypoint)) if isinstance(entrypoint, list) else ()
    return ResolvedImage(name, str(config.get("WorkingDir") or "/"), words)


def make_log_folders(sandbox: Sandbox) -> None:
    """Harbor's log folders; written from outside where the shell's user may not make them."""
    if sandbox.exec(f"mkdir -p {' '.join(_LOG_FOLDERS)} 2> /dev/null", _STEP_S).exit_code != 0:
        for folder in _LOG_FOLDERS:
            sandbox.write(f"{folder}/.keep", b"")


def write_files(sandbox: Sandbox, files: Mapping[str, FileData], workdir: str) -> None:
    """Write a task's own files; paths may be relative to the working directory."""
    for path, file in files.items():
        sandbox.write(absolute_path(workdir, path), file.data, file.mode)


def absolute_path(workdir: str, path: str) -> str:
    """An absolute path."""
    return path if path.startswith("/") else f"{workdir.rstrip('/')}/{path}"


def _background(entrypoint: tuple[str, ...]) -> str:
    words = shlex.join([*entrypoint, "sleep", "infinity"])
    return f"{{ {words} < /dev/null > /dev/null 2>&1 & }} 2> /dev/null; disown"


def _carry_out(sandbox: Sandbox, machine: MachineSpec, workdir: str, label: str) -> None:
    for step in machine.build:
        write_files(sandbox, step.files, workdir)
        if step.command:
            must_succeed(sandbox, step.command, step.timeout_s, label)
    if machine.build:
        change_folder = f"mkdir -p {shlex.quote(workdir)} && cd {shlex.quote(workdir)}"
        must_succeed(sandbox, change_folder, _STEP_S, label)


def must_succeed(sandbox: Sandbox, command: str, timeout_s: float, label: str) -> None:
    """Run a task's own command. Raises TaskError with the end of what it said."""
    result = sandbox.exec(command, timeout_s)
    if result.exit_code != 0:
        outcome = "ran too long" if result.timed_out else f"ended with exit code {result.exit_code}"
        raise TaskError(
            f"{label}: {command[:200]!r} {outcome}: {result.output[-500:].strip()!r}; a sandbox "
            "has no network unless it is given one: what a task installs must be in its image"
        )


def await_health(sandbox: Sandbox, health: Health, label: str) -> None:
    """Ask until the machine is well. Raises TaskError when it does not get well."""
    start, failures = time.monotonic(), 0
    while True:
        result = sandbox.exec(f"( {health.command}\n)", health.timeout_s)
        if result.exit_code == 0:
            return
        starting = time.monotonic() - start < health.start_period_s
        failures += not starting
        if failures >= health.retries:
            raise TaskError(
                f"{label} is not healthy: {health.command[:200]!r} failed {failures} times, at "
                f"last with {result.output[-300:].strip()!r}"
            )
        time.sleep(health.start_interval_s if starting else health.interval_s)
