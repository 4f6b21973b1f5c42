"""Turns a task's wishes for its machine into a `MachineSpec` that the sandboxes at hand can be.

Where sandboxes stand on images, those are taken or built as they stand. Elsewhere the part of a
Dockerfile that needs no image is carried out; what cannot be is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from clawrl_gym.core.errors import TaskError
from clawrl_gym.envs.terminal.folders import dockerfile
from clawrl_gym.envs.terminal.folders.task_folder import TaskFolder
from clawrl_gym.envs.terminal.folders.verifier import VerifierMode
from clawrl_gym.envs.terminal.task import Health, Image, MachineSpec

HOST_BASE = "host"
"""`FROM host`: the sandbox as it is; with bubblewrap this machine's own /usr."""
NEEDS_DOCKER = "this task needs sandbox=docker (env.sandbox.type=docker)"
_ROOT = (None, "root", "0")


@dataclass(frozen=True, slots=True)
class MachineRequest:
    """A task's requirements on a machine."""

    folder: str
    """Build context, relative to the task's folder."""
    dockerfile: str = "Dockerfile"
    """Relative to `folder`."""
    image: str | None = None
    """Name of an image; wins over the Dockerfile where images can be had."""
    workdir: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    build_args: tuple[tuple[str, str], ...] = ()
    user: str | None = None
    health: Health | None = None
    build_timeout_s: float = 600.0
    needs_dockerfile: bool = True
    """Files in `folder` without a Dockerfile are a mistake, as they would be lost."""


@dataclass(frozen=True, slots=True)
class SandboxFeatures:
    """Features of an environment's sandboxes."""

    images: bool = False
    """Images of tasks can be had."""
    users: bool = False
    """A task's commands run as the user that it names."""
    rootfs: bool = False
    """A root file system is configured; it stands for whatever base a task names."""
    network: bool = False
    """Sandboxes reach the network."""
    verifier: VerifierMode = "auto"
    only_trusted: bool = False
    """Tasks whose grades are not trusted are refused."""
    sandboxes: str = ""
    """How they are made: findings about a verifier hold for the same ones."""

    @property
    def key(self) -> str:
        """Names these sandboxes in `Task.key`, in the words of all runs before."""
        return (
            f"SandboxFeatures(docker={self.images!r}, rootfs={self.rootfs!r}, "
            f"network={self.network!r}, verifier={self.verifier!r}, "
            f"only_trusted={self.only_trusted!r}, sandboxes={self.sandboxes!r})"
        )

    def machine(self, task_folder: TaskFolder, request: MachineRequest) -> MachineSpec:
        """Raises TaskError for what the sandboxes at hand cannot be."""
        name = f"{request.folder}/{request.dockerfile}"
        if self.images and request.image is not None:
            return self._of_image(task_folder, Image(request.image), request)
        if task_folder.has(name):
            text = task_folder.text(name)
        elif request.needs_dockerfile and _has_files(task_folder, request.folder):
            raise TaskError(f"{task_folder} has {request.folder!r} but no {name!r}")
        else:
            text = f"FROM {HOST_BASE}\nWORKDIR /root\n"
        if self.images and not _stands_on_host(text):
            task_folder.path(name)  # which must not lead outside
            folder = str(task_folder.path(request.folder))
            image = Image(
                "", folder, request.dockerfile, request.build_args, request.build_timeout_s
            )
            return self._of_image(task_folder, image, request)
        return self._carried_out(task_folder, request, text, f"{task_folder.root}/{name}")

    def _carried_out(
        self, task_folder: TaskFolder, request: MachineRequest, text: str, where: str
    ) -> MachineSpec:
        parsed = dockerfile.parse(text, where)
        bases = {parsed.base, request.image or parsed.base} - {HOST_BASE}
        if bases and not self.rootfs:
            raise TaskError(
                f"{task_folder} is built on {', '.join(map(repr, sorted(bases)))}: "
                f"{NEEDS_DOCKER}; or set env.sandbox.rootfs to a folder with that root file "
                f"system, or write FROM {HOST_BASE} if the sandbox's own programs will do"
            )
        self._check_user(task_folder, request)
        return MachineSpec(
            build=tuple(
                dockerfile.build_steps(parsed, task_folder, request.folder, request.build_timeout_s)
            ),
            workdir=request.workdir or parsed.workdir,
            env=parsed.env | dict(request.env),
            user=request.user if self.users else None,
            health=request.health,
        )

    def _of_image(
        self, task_folder: TaskFolder, image: Image, request: MachineRequest
    ) -> MachineSpec:
        self._check_user(task_folder, request)
        return MachineSpec(
            image, (), request.workdir, dict(request.env), request.user, request.health
        )

    def _check_user(self, task_folder: TaskFolder, request: MachineRequest) -> None:
        if request.user not in _ROOT and not self.users:
            raise TaskError(
                f"{task_folder} asks for a user of its own {request.user!r}: {NEEDS_DOCKER}"
            )


def _stands_on_host(text: str) -> bool:
    bases = re.findall(r"^\s*FROM\s+(\S+)", text, re.IGNORECASE | re.MULTILINE)
    return bases == [HOST_BASE]


def _has_files(task_folder: TaskFolder, folder: str) -> bool:
    return task_folder.has(folder) and any(task_folder.path(folder).iterdir())
